//! `Rotate`: one rotation at a time, except that a compromise takes a running one's place.

use super::super::model::{
    End, PullSecret, RecordState, Rotation, RotationError, RotationPhase, RotationReason,
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
    let at = context.now;
    match &record.state {
        RecordState::Active { .. } => {
            let rotation = requested(record, id, reason, force_immediate, context);
            Ok(vec![Event::RotationRequested { rotation }])
        }
        RecordState::Rotating { rotation: running, .. } => match reason {
            RotationReason::Compromise => {
                let rotation = requested(record, id, reason, force_immediate, context);
                let end = End::Cancelled(Some(superseded()));
                let next_rotation_at = record.next_rotation_at;
                // A promoted one has filled its slot, however it ends.
                let slot = record.slot.filter(|_| running.promoted_at.is_none());
                Ok(vec![
                    Event::RotationEnded { end, slot, next_rotation_at, at },
                    Event::RotationRequested { rotation },
                ])
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

/// A rotation in its first phase. Its generation number is spent from here on.
pub(in super::super) fn requested(
    record: &PullSecret,
    id: RotationId,
    reason: RotationReason,
    force_immediate: bool,
    context: &Context<'_>,
) -> Box<Rotation> {
    Box::new(Rotation {
        id,
        reason,
        force_immediate,
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

fn superseded() -> RotationError {
    RotationError {
        code: "superseded".to_owned(),
        message: "a rotation because of a compromise took its place".to_owned(),
        registry_id: None,
    }
}
