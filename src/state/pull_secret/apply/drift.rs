//! What it means for a rotation that an account which is handed out is dead, or alive again.

use super::super::model::{AccountPhase, PullSecret, RotationPhase};

impl PullSecret {
    pub(super) fn set_drifted(&mut self, to: bool) {
        match self.phase_mut() {
            Some(
                RotationPhase::DualCredentialPeriod { drifted, .. }
                | RotationPhase::RollingBack { drifted, .. },
            ) => *drifted = to,
            Some(
                RotationPhase::Pending
                | RotationPhase::CreatingCredentials
                | RotationPhase::VerifyingCredentials
                | RotationPhase::RevokingOld { .. }
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_),
            )
            | None => {}
        }
    }

    /// Whether the generation that is not served has begun to be deleted.
    fn deletion_began(&self) -> bool {
        let decided = match self.rotation().map(|rotation| &rotation.phase) {
            Some(
                RotationPhase::RevokingOld { .. }
                | RotationPhase::RollingBack { decided: Some(_), .. },
            ) => true,
            Some(
                RotationPhase::Pending
                | RotationPhase::CreatingCredentials
                | RotationPhase::VerifyingCredentials
                | RotationPhase::DualCredentialPeriod { .. }
                | RotationPhase::RollingBack { decided: None, .. }
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_),
            )
            | None => false,
        };
        // Where a registry only goes there is nothing to delete, and the served accounts are looked at all the same.
        let any = |phase| self.accounts.iter().any(|account| account.phase == phase);
        decided && any(AccountPhase::Deleting) && !any(AccountPhase::Retiring)
    }

    /// Nothing is deleted while the served credential is dead. What is being deleted already is never served
    /// again, so there is nothing to go back to then.
    pub(super) fn drift_found(&mut self) {
        if self.deletion_began() {
            return;
        }
        self.adoption_withdrawn();
        self.set_drifted(true);
    }
}
