//! How a rotation goes on by itself, phase by phase.

use super::super::adoption::Verdict;
use super::super::model::{
    Account, AccountPhase, End, Pause, PullSecret, RetireReason, Rotation, RotationError,
    RotationPhase, RotationReason, Slot,
};
use super::super::policy::{OnDeadline, Policy};
use super::super::{Context, Event};
use super::schedule::window_closed;
use super::served;
use crate::time::Timestamp;

/// Between the decision by proof and the first deletion the proof must still hold: any use of the old
/// credential takes it back.
pub(super) fn withdrawal(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
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

pub(super) fn rotating(
    record: &PullSecret,
    rotation: &Rotation,
    context: &mut Context<'_>,
) -> Option<Event> {
    let at = context.now;
    match &rotation.phase {
        RotationPhase::Pending => {
            // A compromise does not wait for its turn nor for older accounts to be gone.
            let urgent = rotation.reason == RotationReason::Compromise;
            let turn = urgent || (record.is_drained() && context.may_start);
            window_closed(record, rotation, context).or_else(|| {
                (turn && record.has_room())
                    .then_some(Event::GenerationStarted { generation: rotation.to, at })
            })
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
        // Nothing retired, so there is nothing to prove and nothing to delete.
        RotationPhase::DualCredentialPeriod { .. } if rotation.scope.only_adds() => {
            let end = End::Completed { old_credentials_revoked: true };
            Some(ended(record, rotation, end, context))
        }
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
            let passed = *deadline <= at && context.time_is_trusted;
            follows.or_else(|| match on_deadline {
                OnDeadline::Revoke if passed && !drifted => {
                    Some(Event::RetirementDecided { why: RetireReason::Deadline, at })
                }
                OnDeadline::Rollback if passed => Some(Event::RollbackRequested { at }),
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
            let all = *end == End::RolledBack;
            let left = record.accounts.iter().any(|account| {
                let old = matches!(account.phase, AccountPhase::Retiring | AccountPhase::Deleting);
                (account.born_generation == rotation.to || (all && old))
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
    // Whether everybody has moved is also a matter of how long somebody was not seen.
    if !context.time_is_trusted {
        return None;
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
    let old = |account: &&Account| account.retired_from(rotation.from);
    let verified = |account: &Account| account.verified_at.is_some_and(|at| at >= asked_at);
    let alive = record.accounts.iter().filter(old).all(verified);
    let hash = super::super::cluster_hash(&record.cluster_id);
    alive.then(|| Event::GenerationServed {
        generation: rotation.from,
        deadline: context.now.plus(context.policy.grace_period),
        on_deadline: OnDeadline::Hold,
        check_at: context.policy.next_check(hash, context.now),
        at: context.now,
    })
}

fn drift_cleared(record: &PullSecret, at: Timestamp) -> Option<Event> {
    let alive =
        |account: &Account| account.phase != AccountPhase::Serving || account.verified_at.is_some();
    record.accounts.iter().all(alive).then_some(Event::DriftCleared { at })
}

/// A scheduled slot that did not complete is tried again, later and later; so are dead accounts.
fn ended(record: &PullSecret, rotation: &Rotation, end: End, context: &Context<'_>) -> Event {
    let at = context.now;
    let completed = matches!(end, End::Completed { .. });
    let slot = match rotation.slot {
        Some(slot_at) if !completed => {
            let failures = record.slot.map_or(0, |slot| slot.failures).saturating_add(1);
            let retry_at = at.plus(Policy::slot_retry(failures));
            Some(Slot { at: slot_at, failures, retry_at })
        }
        Some(_) => None,
        // Whatever put a whole new generation into service did what the slot wanted.
        None => record.slot.filter(|_| !completed || !rotation.scope.is_whole()),
    };
    let reissue_pause = match rotation.reason {
        RotationReason::Drift if completed => None,
        RotationReason::Drift => {
            let before = record.reissue_pause.map_or(0, |pause| pause.failures);
            let failures = before.saturating_add(1);
            Some(Pause { failures, until: at.plus(Policy::slot_retry(failures)) })
        }
        RotationReason::Manual
        | RotationReason::Scheduled
        | RotationReason::Compromise
        | RotationReason::Registries => record.reissue_pause,
    };
    Event::RotationEnded { end, slot, reissue_pause, at }
}
