//! What follows by itself: from the state and the time alone, one event at a time.
//!
//! Level-triggered: each rule asks "is this so and not yet done?", never "what just happened?". A rule's
//! event makes the rule false, so the loop in `decide` ends.

mod accounts;
mod crowd;
mod doubt;
mod partial;
mod rotation;
mod schedule;

use std::time::Duration;

use accounts::{plan, removal};
use doubt::doubt;
pub(super) use doubt::is_doubted;
use partial::{next_in_line, reissue};
use rotation::{rotating, withdrawal};
use schedule::{next_moves, scheduled};

use super::accept::answer::outcome;
use super::model::{
    Account, AccountPhase, PullSecret, RecordState, Refusal, RotationReason, Trouble,
};
use super::policy::Policy;
use super::{Answer, Context, Event};
use crate::ids::{Generation, RegistryId};
use crate::time::Timestamp;

pub(super) fn advance(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    match record.quarantine {
        Some(quarantine) if quarantine.retry_at > context.now => return None,
        // The pause is over: one new try. Another row of panics puts it back.
        Some(_) => return Some(Event::Released { at: context.now }),
        None => {}
    }
    lost_call(record, context)
        .or_else(|| doubt(record, context))
        .or_else(|| withdrawal(record, context))
        .or_else(|| removal(record, context))
        .or_else(|| plan(record, context))
        .or_else(|| next_moves(record, context))
        .or_else(|| reissue(record, context))
        .or_else(|| by_state(record, context))
}

/// A call that has been running for too long will not be answered any more.
fn lost_call(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let (account, running) = record.accounts.iter().find_map(|account| {
        let running = account.call?;
        let lost_after = context.policy.call_lost_after(&account.registry_id);
        (running.at.plus(lost_after) <= context.now).then_some((account, running))
    })?;
    let answer = Answer::lost(running.call, "the call was not answered in time");
    outcome(record, account, running, &answer, context).into_iter().next()
}

fn by_state(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let at = context.now;
    match &record.state {
        RecordState::Issuing { generation: None } => record
            .is_drained()
            .then(|| Event::GenerationStarted { generation: record.last_generation.next(), at }),
        RecordState::Issuing { generation: Some(generation) } => {
            issuing(record, *generation, context)
        }
        RecordState::Active { .. } => {
            next_in_line(record, at).or_else(|| scheduled(record, context))
        }
        RecordState::Rotating { rotation, .. } => rotating(record, rotation, context),
        RecordState::Revoking => record.accounts_gone().then_some(Event::Revoked { at }),
        RecordState::Revoked => retention(record, context.policy.history_after, context),
        RecordState::Denied(_) => retention(record, context.policy.denied_after, context),
        RecordState::Failed(_) => retention(record, context.policy.failed_after, context),
    }
}

fn served(
    record: &PullSecret,
    generation: Generation,
    reason: RotationReason,
    context: &Context<'_>,
) -> Event {
    let at = context.now;
    let (after, on_deadline) = context.policy.deadline_for(reason);
    let hash = super::cluster_hash(&record.cluster_id);
    Event::GenerationServed {
        generation,
        deadline: at.plus(after),
        on_deadline,
        check_at: context.policy.next_check(hash, at),
        at,
    }
}

fn issuing(record: &PullSecret, generation: Generation, context: &Context<'_>) -> Option<Event> {
    let at = context.now;
    match record.stopper(generation, context.policy) {
        Some(Stopper { refused: true, registry_id, message }) => {
            Some(Event::IssueDenied { refusal: Refusal { registry_id, message }, at })
        }
        Some(Stopper { refused: false, registry_id, message }) => {
            Some(Event::IssueFailed { refusal: Refusal { registry_id, message }, at })
        }
        None => record
            .all_in(generation, |account| account.phase == AccountPhase::Verified)
            .then(|| served(record, generation, RotationReason::Manual, context)),
    }
}

/// A record goes when it has been over for long enough and nothing of it is left at any registry.
fn retention(record: &PullSecret, after: Duration, context: &Context<'_>) -> Option<Event> {
    let at = context.now;
    let old = record.state_since.max(record.created_at).plus(after) <= at;
    (old && context.time_is_trusted && record.accounts_gone()).then_some(Event::Removed { at })
}

/// The account that keeps a generation from being made.
struct Stopper {
    refused: bool,
    registry_id: RegistryId,
    message: String,
}

impl PullSecret {
    fn stopper(&self, generation: Generation, policy: &Policy) -> Option<Stopper> {
        let candidates = self
            .work()?
            .1
            .iter()
            .filter_map(|id| self.candidate(generation, id))
            // A running call may still bring the success.
            .filter(|account| account.call.is_none());
        let stops = |account: &&Account| {
            account.trouble.refused || account.trouble.spent >= policy.give_up_after
        };
        let account = candidates.into_iter().find(stops)?;
        let Trouble { refused, last_error, .. } = account.trouble.clone();
        let message = last_error.unwrap_or_else(|| "no reason was given".to_owned());
        Some(Stopper { refused, registry_id: account.registry_id.clone(), message })
    }

    fn all_in(&self, generation: Generation, is: impl Fn(&Account) -> bool) -> bool {
        let makes = self.work().map_or(&[][..], |(_, makes)| makes);
        makes.iter().all(|id| self.candidate(generation, id).is_some_and(&is))
    }

    fn accounts_gone(&self) -> bool {
        self.accounts.iter().all(|account| account.phase == AccountPhase::Gone)
    }

    /// True when every served account was verified by a call announced at or after `since`.
    pub(super) fn served_verified_since(&self, since: Timestamp) -> bool {
        self.accounts
            .iter()
            .filter(|account| account.phase == AccountPhase::Serving)
            .all(|account| account.verified_at.is_some_and(|at| at >= since))
    }
}
