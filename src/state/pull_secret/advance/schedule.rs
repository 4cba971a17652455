//! The schedule: when the next rotation is wanted, and that it begins inside its window.

use super::super::model::{
    End, PullSecret, Rotation, RotationError, RotationPhase, RotationReason, Scope,
};
use super::super::{Context, Event};
use crate::ids::RotationId;

/// The shown and stored time follows the rules: those of the configuration, of the cluster, and the slot
/// that is being retried. So a change of any of them needs no path of its own.
pub(super) fn next_moves(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    record.served()?;
    let fills = |rotation: &Rotation| rotation.slot.is_some() && rotation.promoted_at.is_none();
    if record.rotation().is_some_and(fills) {
        return None;
    }
    let now = context.now;
    let (shown, wanted) = (record.next_rotation_at, record.wants_to_begin(context.policy, now));
    let both_due = shown.is_some_and(|at| at <= now) && wanted.is_some_and(|at| at <= now);
    let moves = shown != wanted && !both_due;
    moves.then_some(Event::NextRotationMoved { next_rotation_at: wanted, at: now })
}

/// A slot that is due becomes a rotation; whether the fleet lets it begin is asked there.
pub(super) fn scheduled(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let due = record.wants_to_begin(context.policy, context.now)?;
    if due > context.now {
        return None;
    }
    let slot = record.next_slot(context.policy)?;
    let id = RotationId(context.entropy.uuid(context.now));
    let (reason, scope) = (RotationReason::Scheduled, Scope::Whole);
    let mut rotation = super::super::accept::requested(record, id, reason, scope, context);
    rotation.slot = Some(slot);
    Some(Event::RotationRequested { rotation })
}

/// A scheduled rotation that did not get its turn inside the window waits for the next one. That is no
/// failure of its slot.
pub(super) fn window_closed(
    record: &PullSecret,
    rotation: &Rotation,
    context: &Context<'_>,
) -> Option<Event> {
    let window = record.window(context.policy)?;
    let waits = rotation.slot.is_some() && rotation.phase == RotationPhase::Pending;
    if !waits || window.closes_at(context.now).is_some() {
        return None;
    }
    let error = RotationError {
        code: "window_closed".to_owned(),
        message: "its turn did not come while the window was open".to_owned(),
        registry_id: None,
    };
    Some(Event::RotationEnded {
        end: End::Cancelled(Some(error)),
        slot: record.slot,
        reissue_pause: record.reissue_pause,
        at: context.now,
    })
}
