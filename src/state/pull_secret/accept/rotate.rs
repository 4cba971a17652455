//! `Rotate`: one rotation at a time, except that a compromise takes a running one's place.

use super::super::model::{
    End, PullSecret, RecordState, Rotation, RotationError, RotationPhase, RotationReason, Scope,
};
use super::super::{Context, Event, Rejection};
use crate::ids::RotationId;

pub(super) fn rotate(
    record: &PullSecret,
    id: RotationId,
    reason: RotationReason,
    force_immediate: bool,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let asked = || {
        let mut rotation = requested(record, id, reason, Scope::Whole, context);
        rotation.force_immediate = force_immediate;
        Event::RotationRequested { rotation }
    };
    match &record.state {
        RecordState::Active { .. } => Ok(vec![asked()]),
        RecordState::Rotating { rotation: running, .. } => match reason {
            RotationReason::Compromise => {
                let message = "a rotation because of a compromise took its place";
                Ok(vec![superseded(record, message, context), asked()])
            }
            RotationReason::Manual
            | RotationReason::Scheduled
            | RotationReason::Registries
            | RotationReason::Drift => Err(Rejection::RotationRunning {
                rotation_id: running.id,
                status: running.status(),
                started_at: running.started_at,
            }),
        },
        RecordState::Revoked => Err(Rejection::NoRecord),
        RecordState::Issuing { .. }
        | RecordState::Revoking
        | RecordState::Denied(_)
        | RecordState::Failed(_) => Err(Rejection::State { state: record.state.name() }),
    }
}

/// A rotation in its first phase. Its generation number is spent when it is the running one.
pub(in super::super) fn requested(
    record: &PullSecret,
    id: RotationId,
    reason: RotationReason,
    scope: Scope,
    context: &Context<'_>,
) -> Box<Rotation> {
    Box::new(Rotation {
        id,
        scope,
        reason,
        force_immediate: false,
        slot: None,
        from: record.generation(),
        to: record.last_generation.next(),
        phase: RotationPhase::Pending,
        created_at: context.now,
        started_at: None,
        promoted_at: None,
        completed_at: None,
    })
}

/// The same rotation with the generations of now.
pub(in super::super) fn renewed(record: &PullSecret, waiting: &Rotation) -> Box<Rotation> {
    let (from, to) = (record.generation(), record.last_generation.next());
    Box::new(Rotation { from, to, ..waiting.clone() })
}

/// The running rotation gives way to another one.
pub(in super::super) fn superseded(
    record: &PullSecret,
    message: &str,
    context: &Context<'_>,
) -> Event {
    let error = RotationError {
        code: "superseded".to_owned(),
        message: message.to_owned(),
        registry_id: None,
    };
    // A whole one that was promoted has filled its slot, however it ends.
    let filled = record
        .rotation()
        .is_some_and(|running| running.promoted_at.is_some() && running.scope.is_whole());
    Event::RotationEnded {
        end: End::Cancelled(Some(error)),
        slot: record.slot.filter(|_| !filled),
        reissue_pause: record.reissue_pause,
        at: context.now,
    }
}
