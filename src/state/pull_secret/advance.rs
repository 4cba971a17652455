//! What follows by itself: from the state and the time alone, one event at a time.
//!
//! Level-triggered: each rule asks "is this so and not yet done?", never "what just happened?". A rule's
//! event makes the rule false, so the loop in `decide` ends.

use super::accept::answer::{count_failure, outcome};
use super::adoption::Verdict;
use super::model::{
    Account, AccountPhase, End, GoneHow, PullSecret, RecordState, Refusal, RetireReason, Rotation,
    RotationError, RotationPhase, RotationReason, Slot, Trouble,
};
use super::policy::{OnDeadline, Policy};
use super::{Answer, Context, Event};
use crate::ids::{Generation, RegistryId, RotationId};
use crate::time::Timestamp;

use std::time::Duration;

/// A failed slot of the schedule is tried again after these pauses, the last one for ever.
const SLOT_RETRIES: [Duration; 3] = [
    Duration::from_secs(60 * 60),
    Duration::from_secs(4 * 60 * 60),
    Duration::from_secs(24 * 60 * 60),
];

pub(super) fn advance(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    if record.quarantine.is_some_and(|quarantine| quarantine.retry_at > context.now) {
        return None;
    }
    lost_call(record, context)
        .or_else(|| withdrawal(record, context))
        .or_else(|| removal(record, context))
        .or_else(|| plan(record, context))
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

/// Between the decision by proof and the first deletion the proof must still hold: any use of the old
/// credential takes it back.
fn withdrawal(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    let rotation = record.rotation()?;
    let by_proof = match &rotation.phase {
        RotationPhase::RevokingOld { why, .. } => *why == RetireReason::Adopted,
        RotationPhase::RollingBack { decided, .. } => {
            decided.is_some_and(|(_, why)| why == RetireReason::Adopted)
        }
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    };
    let untouched = record.accounts.iter().any(|a| a.phase == AccountPhase::Retiring);
    if !by_proof || !untouched {
        return None;
    }
    let min_overlap = context.policy.min_overlap_for(rotation.reason);
    match record.retirement(context.policy, min_overlap, context.now) {
        Verdict::Now => None,
        Verdict::NotYet { .. } => Some(Event::AdoptionWithdrawn { at: context.now }),
    }
}

/// Whatever ought to go is marked for deletion; what was never made goes at once.
fn removal(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    let at = context.now;
    record.accounts.iter().filter(|account| ought_to_go(record, account)).find_map(|account| {
        let account_id = account.id;
        let gone = |how| Some(Event::AccountGone { account_id, how, at });
        match account.phase {
            AccountPhase::Planned => gone(GoneHow::NeverCreated),
            // Neither running nor unanswered: the registry said that the name is somebody's.
            AccountPhase::Creating
                if account.call.is_none() && account.unanswered_create_at.is_none() =>
            {
                gone(GoneHow::Foreign)
            }
            AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring => Some(Event::DeletionDecided { account_id, at }),
            AccountPhase::Deleting
            | AccountPhase::Gone
            | AccountPhase::Burnt
            | AccountPhase::Residue => None,
        }
    })
}

/// Which accounts the state has no more use for. What was handed out goes only by a decision.
fn ought_to_go(record: &PullSecret, account: &Account) -> bool {
    let handed_out = account.phase.is_handed_out();
    match &record.state {
        RecordState::Revoking
        | RecordState::Revoked
        | RecordState::Denied(_)
        | RecordState::Failed(_) => true,
        RecordState::Issuing { generation } => Some(account.born_generation) != *generation,
        RecordState::Active { .. } => !handed_out,
        RecordState::Rotating { rotation, .. } => match &rotation.phase {
            RotationPhase::CreatingCredentials | RotationPhase::VerifyingCredentials => {
                !handed_out && account.born_generation != rotation.to
            }
            RotationPhase::RevokingOld { decided_at, .. } => {
                account.phase != AccountPhase::Serving
                    && (!handed_out || record.served_verified_since(*decided_at))
            }
            RotationPhase::RemovingNew { .. } => {
                account.phase != AccountPhase::Serving
                    && (!handed_out || account.born_generation == rotation.to)
            }
            RotationPhase::Pending
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::Ended(_) => !handed_out,
        },
    }
}

/// Every registry of the generation being made has one candidate; a spoilt name gets a successor.
fn plan(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let generation = record.working_generation()?;
    let registry =
        record.registries.iter().find(|id| record.candidate(generation, id).is_none())?.clone();
    let prefix = context.policy.registry(&registry).prefix;
    let name = context.entropy.account_name(&prefix, &record.cluster_id, generation);
    // The successor goes on counting where the spoilt name stopped, or a registry that loses every answer
    // would be asked for ever, at full speed. The first successor begins at once.
    let spoilt = record
        .accounts
        .iter()
        .rfind(|account| account.born_generation == generation && account.registry_id == registry);
    let mut trouble = spoilt.map(|account| account.trouble.clone()).unwrap_or_default();
    // A lost create was counted when it was lost, a name that is somebody else's is counted here.
    if spoilt.is_some_and(|account| account.phase == AccountPhase::Gone) {
        count_failure(&mut trouble, "the name is taken by somebody else", context);
    }
    let next_attempt_at = if trouble.attempts > 1 {
        context.now.plus(context.policy.retry.delay(trouble.attempts - 1, &mut context.entropy))
    } else {
        context.now
    };
    let account = Account {
        id: crate::ids::AccountId(context.entropy.uuid(context.now)),
        registry_id: registry,
        name,
        born_generation: generation,
        phase: AccountPhase::Planned,
        remote_id: None,
        username: None,
        call: None,
        unanswered_create_at: None,
        trouble,
        next_attempt_at,
        planned_at: context.now,
        created_at: None,
        verified_at: None,
        last_used_at: None,
        gone_at: None,
    };
    Some(Event::AccountPlanned { account: Box::new(account) })
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
        RecordState::Active { .. } => scheduled(record, context),
        RecordState::Rotating { rotation, .. } => rotating(record, rotation, context),
        RecordState::Revoking => record.accounts_gone().then_some(Event::Revoked { at }),
        RecordState::Revoked => retention(record, context.policy.history_after, at),
        RecordState::Denied(_) => retention(record, context.policy.denied_after, at),
        RecordState::Failed(_) => retention(record, context.policy.failed_after, at),
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

fn scheduled(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    context.policy.interval?;
    let due = record.next_rotation_at.filter(|due| *due <= context.now)?;
    if !context.may_start {
        return None;
    }
    let id = RotationId(context.entropy.uuid(context.now));
    let reason = RotationReason::Scheduled;
    let mut rotation = super::accept::requested(record, id, reason, false, context);
    rotation.slot = Some(record.slot.map_or(due, |slot| slot.at));
    Some(Event::RotationRequested { rotation })
}

fn rotating(record: &PullSecret, rotation: &Rotation, context: &mut Context<'_>) -> Option<Event> {
    let at = context.now;
    match &rotation.phase {
        RotationPhase::Pending => {
            // A compromise does not wait for its turn nor for older accounts to be gone.
            let urgent = rotation.reason == RotationReason::Compromise;
            let turn = urgent || (record.is_drained() && context.may_start);
            turn.then_some(Event::GenerationStarted { generation: rotation.to, at })
        }
        RotationPhase::CreatingCredentials => stopped(record, rotation, context).or_else(|| {
            let created = |account: &Account| {
                matches!(account.phase, AccountPhase::Created | AccountPhase::Verified)
            };
            record.all_in(rotation.to, created).then_some(Event::AllCreated { at })
        }),
        RotationPhase::VerifyingCredentials => stopped(record, rotation, context).or_else(|| {
            record
                .all_in(rotation.to, |account| account.phase == AccountPhase::Verified)
                .then(|| served(record, rotation.to, rotation.reason, context))
        }),
        RotationPhase::DualCredentialPeriod { deadline, on_deadline, drifted, rollback_at } => {
            // A dead new generation is the best reason for a rollback, so this comes before drift.
            if let Some(asked_at) = rollback_at {
                return rolled_back(record, rotation, *asked_at, context);
            }
            let follows = if *drifted {
                drift_cleared(record, at)
            } else {
                retirement(record, rotation, context)
            };
            follows.or_else(|| match on_deadline {
                OnDeadline::Revoke if *deadline <= at && !drifted => {
                    Some(Event::RetirementDecided { why: RetireReason::Deadline, at })
                }
                OnDeadline::Rollback if *deadline <= at => Some(Event::RollbackRequested { at }),
                OnDeadline::Hold | OnDeadline::Revoke | OnDeadline::Rollback => None,
            })
        }
        RotationPhase::RevokingOld { decided_at, .. } => {
            let going =
                |a: &Account| matches!(a.phase, AccountPhase::Retiring | AccountPhase::Deleting);
            if record.accounts.iter().any(going) {
                return None;
            }
            // What earlier rotations left behind is not this one's.
            let left = |a: &Account| {
                a.phase == AccountPhase::Residue
                    && a.born_generation < rotation.to
                    && a.trouble.since.is_some_and(|since| since >= *decided_at)
            };
            let end = End::Completed { old_credentials_revoked: !record.accounts.iter().any(left) };
            Some(ended(record, rotation, end, context))
        }
        RotationPhase::RollingBack { drifted: true, .. } => drift_cleared(record, at),
        RotationPhase::RollingBack { decided: Some((decided_at, _)), .. } => record
            .served_verified_since(*decided_at)
            .then_some(Event::RemovalDecided { end: End::RolledBack, at }),
        RotationPhase::RollingBack { decided: None, .. } => retirement(record, rotation, context),
        RotationPhase::RemovingNew { end } => {
            let left = record.accounts.iter().any(|account| {
                account.born_generation == rotation.to
                    && !matches!(
                        account.phase,
                        AccountPhase::Gone | AccountPhase::Burnt | AccountPhase::Residue
                    )
            });
            (!left).then(|| ended(record, rotation, end.clone(), context))
        }
        RotationPhase::Ended(_) => None,
    }
}

fn stopped(record: &PullSecret, rotation: &Rotation, context: &Context<'_>) -> Option<Event> {
    let stopper = record.stopper(rotation.to, context.policy)?;
    let code = if stopper.refused { "denied" } else { "gave_up" };
    let error = RotationError {
        code: code.to_owned(),
        message: stopper.message,
        registry_id: Some(stopper.registry_id),
    };
    Some(Event::RemovalDecided { end: End::Failed(error), at: context.now })
}

fn retirement(record: &PullSecret, rotation: &Rotation, context: &Context<'_>) -> Option<Event> {
    let at = context.now;
    let forward = matches!(rotation.phase, RotationPhase::DualCredentialPeriod { .. });
    if rotation.force_immediate && forward {
        return Some(Event::RetirementDecided { why: RetireReason::Forced, at });
    }
    let min_overlap = context.policy.min_overlap_for(rotation.reason);
    match record.retirement(context.policy, min_overlap, at) {
        Verdict::Now => Some(Event::RetirementDecided { why: RetireReason::Adopted, at }),
        Verdict::NotYet { .. } => None,
    }
}

/// The old generation is served again once each of its accounts was verified after the request.
fn rolled_back(
    record: &PullSecret,
    rotation: &Rotation,
    asked_at: Timestamp,
    context: &Context<'_>,
) -> Option<Event> {
    let old = |account: &&Account| {
        account.phase == AccountPhase::Retiring && account.born_generation == rotation.from
    };
    let verified = |account: &Account| account.verified_at.is_some_and(|at| at >= asked_at);
    let alive = record.accounts.iter().filter(old).all(verified);
    let next_rotation_at = record.next_rotation_at;
    alive.then(|| Event::GenerationServed {
        generation: rotation.from,
        deadline: context.now.plus(context.policy.grace_period),
        on_deadline: OnDeadline::Hold,
        next_rotation_at,
        at: context.now,
    })
}

fn drift_cleared(record: &PullSecret, at: Timestamp) -> Option<Event> {
    let alive =
        |account: &Account| account.phase != AccountPhase::Serving || account.verified_at.is_some();
    record.accounts.iter().all(alive).then_some(Event::DriftCleared { at })
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
        next_rotation_at: context.policy.next_rotation(hash, at),
        at,
    }
}

/// A scheduled slot that did not complete is tried again, later and later.
fn ended(record: &PullSecret, rotation: &Rotation, end: End, context: &Context<'_>) -> Event {
    let at = context.now;
    let promoted = matches!(end, End::Completed { .. });
    let (slot, next_rotation_at) = match rotation.slot {
        Some(slot_at) if !promoted => {
            let failures = record.slot.map_or(0, |slot| slot.failures).saturating_add(1);
            let index = usize::try_from(failures).unwrap_or(usize::MAX).min(SLOT_RETRIES.len()) - 1;
            (Some(Slot { at: slot_at, failures }), Some(at.plus(SLOT_RETRIES[index])))
        }
        // Whoever put a new generation into service has set the next slot.
        Some(_) => (None, record.next_rotation_at),
        None if promoted => (None, record.next_rotation_at),
        None => (record.slot, record.next_rotation_at),
    };
    Event::RotationEnded { end, slot, next_rotation_at, at }
}

/// A record goes when it has been over for long enough and nothing of it is left at any registry.
fn retention(record: &PullSecret, after: Duration, at: Timestamp) -> Option<Event> {
    let old = record.state_since.max(record.created_at).plus(after) <= at;
    (old && record.accounts_gone()).then_some(Event::Removed { at })
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
            .registries
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
        self.registries.iter().all(|id| self.candidate(generation, id).is_some_and(&is))
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
