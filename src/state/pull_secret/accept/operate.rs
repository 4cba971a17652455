//! The operator's hand: complete, extend, rollback, cancel, and what quarantine and force do.
//! Which phase allows which is the last column of `DESIGN` section 3, "Rotation".

use std::time::Duration;

use super::super::model::{
    AccountPhase, End, GoneHow, PullSecret, Quarantine, RecordState, RetireReason, Rotation,
    RotationPhase,
};
use super::super::{Context, Event, Rejection};
use crate::ids::{AccountId, RotationId};
use crate::time::Timestamp;

/// The rotation that is meant; one that waits is in phase `pending` like any other.
fn running(record: &PullSecret, id: RotationId) -> Result<&Rotation, Rejection> {
    if let Some(waiting) = waiting(record, id) {
        return Ok(waiting);
    }
    match record.rotation() {
        Some(rotation) if rotation.id == id => Ok(rotation),
        Some(_) | None => Err(Rejection::NotThatRotation),
    }
}

fn waiting(record: &PullSecret, id: RotationId) -> Option<&Rotation> {
    record.waiting.as_deref().filter(|rotation| rotation.id == id)
}

pub(super) fn complete(
    record: &PullSecret,
    id: RotationId,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let rotation = running(record, id)?;
    match &rotation.phase {
        RotationPhase::DualCredentialPeriod { .. } | RotationPhase::RollingBack { .. } => {
            Ok(vec![Event::RetirementDecided { why: RetireReason::Operator, at: context.now }])
        }
        phase @ (RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_)) => Err(Rejection::Phase { phase: phase.name() }),
    }
}

pub(super) fn extend(
    record: &PullSecret,
    id: RotationId,
    by: Duration,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let rotation = running(record, id)?;
    match &rotation.phase {
        RotationPhase::DualCredentialPeriod { deadline, .. } => {
            Ok(vec![Event::DeadlineMoved { deadline: deadline.plus(by), at: context.now }])
        }
        phase @ (RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_)) => Err(Rejection::Phase { phase: phase.name() }),
    }
}

pub(super) fn rollback(
    record: &PullSecret,
    id: RotationId,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let rotation = running(record, id)?;
    match &rotation.phase {
        RotationPhase::DualCredentialPeriod { rollback_at: Some(_), .. } => Ok(Vec::new()),
        RotationPhase::DualCredentialPeriod { rollback_at: None, .. } => {
            Ok(vec![Event::RollbackRequested { at: context.now }])
        }
        phase @ (RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_)) => Err(Rejection::Phase { phase: phase.name() }),
    }
}

pub(super) fn cancel(
    record: &PullSecret,
    id: RotationId,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    if waiting(record, id).is_some() {
        return Ok(vec![Event::WaitingEnded { end: End::Cancelled(None), at: context.now }]);
    }
    let rotation = running(record, id)?;
    match &rotation.phase {
        // Nothing was made yet, but the way out is the same: `advance` finds nothing to remove.
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials => {
            Ok(vec![Event::RemovalDecided { end: End::Cancelled(None), at: context.now }])
        }
        phase @ (RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_)) => Err(Rejection::Phase { phase: phase.name() }),
    }
}

pub(super) fn quarantine(
    record: &PullSecret,
    retry_at: Timestamp,
    context: &Context<'_>,
) -> Vec<Event> {
    let since = record.quarantine.map_or(context.now, |quarantine| quarantine.since);
    vec![Event::Quarantined { quarantine: Quarantine { since, retry_at } }]
}

pub(super) fn release(record: &PullSecret, context: &Context<'_>) -> Vec<Event> {
    match record.quarantine {
        Some(_) => vec![Event::Released { at: context.now }],
        None => Vec::new(),
    }
}

pub(super) fn force_gone(
    record: &PullSecret,
    account_id: AccountId,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let account = record.account(account_id).ok_or(Rejection::NotInUse)?;
    if account.phase != AccountPhase::Residue {
        return Err(Rejection::State { state: RecordState::name(&record.state) });
    }
    Ok(vec![Event::AccountGone { account_id, how: GoneHow::Forced, at: context.now }])
}
