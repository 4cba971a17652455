//! Answers commands: one file per verb. What follows by itself afterwards is in `advance`.

mod announce;
pub(super) mod answer;
mod issue;
mod missing;
mod observe;
mod operate;
mod partly;
mod revoke;
mod rotate;
mod schedule;

pub(super) use rotate::{renewed, requested, superseded};

use super::model::PullSecret;
use super::{Command, Context, Event, Rejection};

pub(super) fn accept(
    state: Option<&PullSecret>,
    command: &Command,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    refuse_in_quarantine(state, command, context)?;
    match command {
        Command::Issue { cluster_id, registries } => {
            issue::issue(state, cluster_id, registries.as_deref(), context)
        }
        Command::Revoke => Ok(revoke::revoke(state, context)),
        Command::Rotate { rotation_id, reason, force_immediate } => {
            rotate::rotate(known(state)?, *rotation_id, *reason, *force_immediate, context)
        }
        Command::Missing { account_id, listed_at } => {
            Ok(missing::missing(known(state)?, *account_id, *listed_at, context))
        }
        Command::RotatePartly { rotation_id, added, removed } => {
            partly::rotate_partly(known(state)?, *rotation_id, added, removed, context)
        }
        Command::Reschedule(change) => schedule::reschedule(known(state)?, change, context),
        Command::Complete { rotation_id } => {
            operate::complete(known(state)?, *rotation_id, context)
        }
        Command::Extend { rotation_id, by } => {
            operate::extend(known(state)?, *rotation_id, *by, context)
        }
        Command::Rollback { rotation_id } => {
            operate::rollback(known(state)?, *rotation_id, context)
        }
        Command::Cancel { rotation_id } => operate::cancel(known(state)?, *rotation_id, context),
        Command::Observe(evidence) => observe::observe(known(state)?, evidence, context),
        Command::Announce { account_id, call, token } => {
            announce::announce(known(state)?, *account_id, *call, *token, context)
        }
        Command::Defer { account_id, until, reason } => {
            announce::defer(known(state)?, *account_id, *until, reason, context)
        }
        Command::Answer { account_id, token, answer } => {
            answer::answer(known(state)?, *account_id, *token, answer, context)
        }
        Command::TakeOver => Ok(answer::take_over(state, context)),
        Command::Tick => Ok(Vec::new()),
        Command::Quarantine { retry_at } => {
            Ok(operate::quarantine(known(state)?, *retry_at, context))
        }
        Command::Release => Ok(operate::release(known(state)?, context)),
        Command::ForceGone { account_id } => {
            operate::force_gone(known(state)?, *account_id, context)
        }
    }
}

/// A record that a caller may act on; after `revoked` there is none.
fn known(state: Option<&PullSecret>) -> Result<&PullSecret, Rejection> {
    state.ok_or(Rejection::NoRecord)
}

/// Evidence is still taken and time still passes; what would start work is refused.
fn refuse_in_quarantine(
    state: Option<&PullSecret>,
    command: &Command,
    context: &Context<'_>,
) -> Result<(), Rejection> {
    let Some(quarantine) = state.and_then(|record| record.quarantine) else { return Ok(()) };
    if quarantine.retry_at <= context.now {
        return Ok(());
    }
    match command {
        Command::Issue { .. }
        | Command::Revoke
        | Command::Rotate { .. }
        | Command::RotatePartly { .. }
        | Command::Reschedule(_)
        | Command::Complete { .. }
        | Command::Extend { .. }
        | Command::Rollback { .. }
        | Command::Cancel { .. }
        | Command::Announce { .. }
        | Command::ForceGone { .. } => {
            Err(Rejection::Quarantined { retry_at: quarantine.retry_at })
        }
        Command::Observe(_)
        | Command::Missing { .. }
        | Command::Defer { .. }
        | Command::Answer { .. }
        | Command::TakeOver
        | Command::Tick
        | Command::Quarantine { .. }
        | Command::Release => Ok(()),
    }
}
