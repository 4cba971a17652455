//! A database that was restored: what its rows say may be long past, so every account is as good as unanswered.
//!
//! The rule of `DESIGN` section 5. It needs no state of its own: an account from before the restore whose
//! unanswered mark is older than that has not been doubted yet.

use super::super::model::{Account, AccountPhase, Call, PullSecret};
use super::super::{Context, Event};
use crate::time::Timestamp;

pub(super) fn doubt(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    // A clock that went back must not make the new accounts look like old ones.
    let restored_at = context.restored_at.filter(|at| *at <= context.now)?;
    let doubted = |account: &Account| is_doubted(account, restored_at);
    record.accounts.iter().any(doubted).then_some(Event::Doubted { restored_at, at: context.now })
}

/// Whether the row was written before the database was restored, and nobody has asked the registry since.
///
/// A create whose answer is still awaited, and a name that was definitely somebody else's, are settled by their
/// own rules. A mark would make a stranger's account look like ours where there are no markers.
pub(in super::super) fn is_doubted(account: &Account, restored_at: Timestamp) -> bool {
    let asked = account.call.is_some_and(|running| match running.call {
        Call::Create | Call::Lookup => true,
        Call::Verify | Call::Revoke => false,
    });
    let open = match (account.phase, account.unanswered_create_at) {
        (AccountPhase::Gone, _) => false,
        (AccountPhase::Planned, _) => !account.trouble.refused,
        (AccountPhase::Creating, None) => false,
        (
            AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Burnt
            | AccountPhase::Residue,
            None,
        ) => !asked,
        (
            AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Burnt
            | AccountPhase::Residue,
            Some(since),
        ) => since < restored_at,
    };
    open && account.planned_at < restored_at
}
