//! Which outside call an account wants in this state. Asked by `effects` and by whoever judges an answer.

use super::model::{Account, AccountPhase, Call, PullSecret, RotationPhase};
use crate::time::Timestamp;

impl PullSecret {
    /// The call that this account wants, running ones aside, and when it is due.
    pub(super) fn wanted_call(&self, account: &Account) -> Option<(Call, Timestamp)> {
        let due = account.next_attempt_at;
        match account.phase {
            AccountPhase::Planned => (!account.trouble.refused).then_some((Call::Create, due)),
            AccountPhase::Creating => Some((Call::Lookup, due)),
            AccountPhase::Created => Some((Call::Verify, due)),
            AccountPhase::Verified | AccountPhase::Gone => None,
            AccountPhase::Serving => self.check_of_served(account).map(|at| (Call::Verify, at)),
            AccountPhase::Retiring => self.check_of_old(account).map(|at| (Call::Verify, at)),
            AccountPhase::Deleting | AccountPhase::Burnt | AccountPhase::Residue => {
                Some((Call::Revoke, due))
            }
        }
    }

    fn check_of_served(&self, account: &Account) -> Option<Timestamp> {
        // After a restore a login from before it proves nothing.
        let doubted = account.unanswered_create_at.and_then(|since| check_since(account, since));
        let decided = match self.rotation().map(|rotation| &rotation.phase) {
            Some(
                RotationPhase::RevokingOld { decided_at, .. }
                | RotationPhase::RollingBack { decided: Some((decided_at, _)), .. },
            ) => check_since(account, *decided_at),
            Some(RotationPhase::Pending) => {
                self.crowded_out().and_then(|rotation| check_since(account, rotation.created_at))
            }
            Some(
                RotationPhase::DualCredentialPeriod { .. }
                | RotationPhase::RollingBack { decided: None, .. }
                | RotationPhase::CreatingCredentials
                | RotationPhase::VerifyingCredentials
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_),
            )
            | None => None,
        };
        decided.or(doubted).or_else(|| next_look(account))
    }

    fn check_of_old(&self, account: &Account) -> Option<Timestamp> {
        let rotation = self.rotation()?;
        match &rotation.phase {
            RotationPhase::DualCredentialPeriod { rollback_at: Some(asked_at), .. }
                if account.retired_from(rotation.from) =>
            {
                check_since(account, *asked_at)
            }
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => None,
        }
    }
}

/// Now and then, and soon again after it was found dead.
fn next_look(account: &Account) -> Option<Timestamp> {
    let due = if account.verified_at.is_none() { Some(Timestamp::EPOCH) } else { account.check_at };
    due.map(|due| due.max(account.next_attempt_at))
}

/// A login that begins before the decision proves nothing for it, so it is not due earlier, even when the
/// clock went back.
fn check_since(account: &Account, since: Timestamp) -> Option<Timestamp> {
    let stale = account.verified_at.is_none_or(|at| at < since);
    stale.then_some(account.next_attempt_at.max(since))
}
