//! What a committed step adds to the metrics: how rotations end, and how long things took.

use std::time::Duration;

use crate::state::pull_secret::{Event, PullSecret, RecordState, Rotation, RotationPhase};
use crate::telemetry::Metrics;
use crate::time::Timestamp;

/// Counts the events that led from one state to the other.
pub fn events(
    metrics: &Metrics,
    before: Option<&PullSecret>,
    after: Option<&PullSecret>,
    events: &[Event],
) {
    for event in events {
        if let Event::GenerationServed { at, .. } = event {
            served(metrics, before, after, *at);
        }
        if let (
            Event::RotationEnded { at, .. },
            Some(RotationPhase::RevokingOld { decided_at, .. }),
        ) = (event, phase(before))
        {
            metrics.revoked("old_generation", at.since(*decided_at));
        }
        if let Event::Revoked { at } = event {
            let since = before.filter(|it| matches!(it.state, RecordState::Revoking));
            let took = since.map_or(Duration::ZERO, |it| at.since(it.state_since));
            metrics.revoked("pull_secret", took);
        }
    }
    if let (Some(RotationPhase::RevokingOld { decided_at, .. }), true) =
        (phase(before), deletion_began(events))
        && let Some(promoted_at) =
            before.and_then(PullSecret::rotation).and_then(|it| it.promoted_at)
    {
        metrics.dual_period(decided_at.since(promoted_at));
    }
    for rotation in after.iter().flat_map(|record| &record.ended) {
        metrics.rotation_ended(rotation.reason.into(), rotation.phase.name());
    }
}

fn phase(record: Option<&PullSecret>) -> Option<&RotationPhase> {
    record.and_then(PullSecret::rotation).map(|rotation| &rotation.phase)
}

/// From the decision on a word of the old credential can still take it back; from here on nothing can.
fn deletion_began(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::DeletionDecided { .. }))
}

fn served(
    metrics: &Metrics,
    before: Option<&PullSecret>,
    after: Option<&PullSecret>,
    at: Timestamp,
) {
    // A rollback serves a generation again that was promoted before.
    let promoted = |rotation: &&Rotation| rotation.promoted_at == Some(at);
    if let Some(rotation) = after.and_then(PullSecret::rotation).filter(promoted) {
        metrics.promoted(at.since(rotation.created_at));
        return;
    }
    let issuing = before.filter(|record| matches!(record.state, RecordState::Issuing { .. }));
    if let Some(record) = issuing {
        metrics.issued(at.since(record.state_since));
    }
}
