//! `Reschedule`: this cluster's own schedule. When it wants what follows from it is in `advance`.

use super::super::model::{PullSecret, RecordState, Schedule};
use super::super::{Change, Context, Event, Rejection, ScheduleChange};

pub(super) fn reschedule(
    record: &PullSecret,
    change: &ScheduleChange,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    match &record.state {
        RecordState::Issuing { .. } | RecordState::Active { .. } | RecordState::Rotating { .. } => {
        }
        RecordState::Revoked => return Err(Rejection::NoRecord),
        RecordState::Revoking | RecordState::Denied(_) | RecordState::Failed(_) => {
            return Err(Rejection::State { state: record.state.name() });
        }
    }
    // A slot is later than the one before, so that none completes twice.
    let earliest = record.interval_from.unwrap_or(context.now).max(context.now);
    if let Change::To(at) = &change.next_at
        && *at <= earliest
    {
        return Err(Rejection::TimePassed { earliest });
    }
    let schedule = Schedule {
        enabled: change.enabled.applied(record.schedule.enabled.as_ref()),
        next_at: change.next_at.applied(record.schedule.next_at.as_ref()),
        window: change.window.applied(record.schedule.window.as_ref()),
    };
    // Whoever names a time does not want a failed slot tried again at another one.
    let slot = match change.next_at {
        Change::To(_) => None,
        Change::Keep | Change::Clear => record.slot,
    };
    if schedule == record.schedule && slot == record.slot {
        return Ok(Vec::new());
    }
    Ok(vec![Event::ScheduleChanged { schedule: Box::new(schedule), slot, at: context.now }])
}
