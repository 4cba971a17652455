//! `Revoke`: there shall be no pull secret. Always allowed; what it takes to get there follows from the
//! state (`advance`).

use super::super::model::{AccountPhase, End, PullSecret, RecordState, RotationError};
use super::super::{Context, Event};

pub(super) fn revoke(state: Option<&PullSecret>, context: &Context<'_>) -> Vec<Event> {
    let Some(record) = state else { return Vec::new() };
    let at = context.now;
    match &record.state {
        RecordState::Revoked => Vec::new(),
        RecordState::Revoking => {
            let waiting = |phase| matches!(phase, AccountPhase::Residue);
            let any = record.accounts.iter().any(|account| waiting(account.phase));
            if any { vec![Event::RetryRequested { at }] } else { Vec::new() }
        }
        RecordState::Rotating { .. } => {
            let error = RotationError {
                code: "revoked".to_owned(),
                message: "the pull secret was deleted".to_owned(),
                registry_id: None,
            };
            let end = End::Cancelled(Some(error));
            let waits = record.waiting.is_some();
            let waiting = waits.then(|| Event::WaitingEnded { end: end.clone(), at });
            let running = Event::RotationEnded { end, slot: None, reissue_pause: None, at };
            let mut events = vec![running];
            events.extend(waiting);
            events.push(Event::RevocationRequested { at });
            events
        }
        RecordState::Issuing { .. }
        | RecordState::Active { .. }
        | RecordState::Denied(_)
        | RecordState::Failed(_) => vec![Event::RevocationRequested { at }],
    }
}
