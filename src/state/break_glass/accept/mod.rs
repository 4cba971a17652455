//! Answers commands: one file per verb. What follows by itself afterwards is in `advance`.

mod announce;
pub(super) mod answer;
mod bundle;
mod decide_on;
pub(super) mod probe;
mod request;
mod revoke;

use super::model::BreakGlass;
use super::{Command, Context, Event, Rejection};
use crate::ids::ClusterId;
use crate::state::shared::Quarantine;
use crate::time::Timestamp;

pub(super) fn accept(
    state: Option<&BreakGlass>,
    command: &Command,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    refuse_in_quarantine(state, command, context)?;
    match command {
        Command::Request { .. } => request::request(state, command, context),
        Command::Approve { credential_id, by } => {
            decide_on::approve(known(state)?, *credential_id, by, context)
        }
        Command::Deny { credential_id, by, reason } => {
            decide_on::deny(known(state)?, *credential_id, by, reason.as_deref(), context)
        }
        Command::RevokeAll { cluster_id, revocation_id, by, reason } => {
            let asked = revoke::Asked { id: *revocation_id, by, reason: reason.as_deref() };
            Ok(revoke::all(state, cluster_id, &asked, context))
        }
        Command::RevokeOne { credential_id, revocation_id, by, reason } => {
            let asked = revoke::Asked { id: *revocation_id, by, reason: reason.as_deref() };
            revoke::one(state, *credential_id, &asked, context)
        }
        Command::WantBundle { cluster_id } => Ok(bundle::want(state, cluster_id, context)),
        Command::ConfirmBundle { version } => bundle::confirm(state, *version, context),
        Command::Announce { subject, call, token } => {
            announce::announce(known(state)?, *subject, *call, *token, context)
        }
        Command::Defer { subject, until, reason } => {
            announce::defer(known(state)?, *subject, *until, reason, context)
        }
        Command::Answer { subject, token, answer } => {
            answer::answer(known(state)?, *subject, *token, answer, context)
        }
        Command::TakeOver => Ok(answer::take_over(state, context)),
        Command::Tick => Ok(Vec::new()),
        Command::Quarantine { retry_at } => Ok(quarantine(known(state)?, *retry_at, context.now)),
        Command::Release => Ok(match known(state)?.quarantine {
            Some(_) => vec![Event::Released { at: context.now }],
            None => Vec::new(),
        }),
    }
}

fn known(state: Option<&BreakGlass>) -> Result<&BreakGlass, Rejection> {
    state.ok_or(Rejection::NotFound)
}

/// The first event of a cluster that never had anything.
fn opened(
    state: Option<&BreakGlass>,
    cluster_id: &ClusterId,
    context: &Context<'_>,
) -> Option<Event> {
    let event = || Event::Opened { cluster_id: cluster_id.clone(), at: context.now };
    state.is_none().then(event)
}

fn quarantine(record: &BreakGlass, retry_at: Timestamp, now: Timestamp) -> Vec<Event> {
    let since = record.quarantine.map_or(now, |quarantine| quarantine.since);
    vec![Event::Quarantined { quarantine: Quarantine { since, retry_at } }]
}

/// Outcomes are still taken and time still passes; what would start work is refused.
fn refuse_in_quarantine(
    state: Option<&BreakGlass>,
    command: &Command,
    context: &Context<'_>,
) -> Result<(), Rejection> {
    let Some(quarantine) = state.and_then(|record| record.quarantine) else { return Ok(()) };
    if quarantine.retry_at <= context.now {
        return Ok(());
    }
    match command {
        Command::Request { .. }
        | Command::Approve { .. }
        | Command::Deny { .. }
        | Command::RevokeAll { .. }
        | Command::RevokeOne { .. }
        | Command::WantBundle { .. }
        | Command::Announce { .. } => Err(Rejection::Quarantined { retry_at: quarantine.retry_at }),
        Command::ConfirmBundle { .. }
        | Command::Defer { .. }
        | Command::Answer { .. }
        | Command::TakeOver
        | Command::Tick
        | Command::Quarantine { .. }
        | Command::Release => Ok(()),
    }
}
