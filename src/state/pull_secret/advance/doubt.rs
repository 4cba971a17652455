//! A database that was restored: what its rows say may be long past, so every account is as good as unanswered.
//!
//! The rule of `DESIGN` section 5. It needs no state of its own: an account from before the restore whose
//! unanswered mark is older than that has not been doubted yet.

use super::super::model::{Account, AccountPhase, PullSecret};
use super::super::{Context, Event};
use crate::time::Timestamp;

pub(super) fn doubt(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    // A clock that went back must not make the new accounts look like old ones.
    let restored_at = context.restored_at.filter(|at| *at <= context.now)?;
    let doubted = |account: &Account| is_doubted(account, restored_at);
    record.accounts.iter().any(doubted).then_some(Event::Doubted { restored_at, at: context.now })
}

/// Whether the row was written before the database was restored, and nobody has asked the registry since.
pub(in super::super) fn is_doubted(account: &Account, restored_at: Timestamp) -> bool {
    let unanswered = account.unanswered_create_at.is_some_and(|since| since >= restored_at);
    account.phase != AccountPhase::Gone && account.planned_at < restored_at && !unanswered
}
