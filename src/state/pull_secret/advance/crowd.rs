//! How many generations may live at once. Compromise after compromise must not pile them up: a further one
//! waits in `pending` until its new generation is the third at most.
//!
//! Knows accounts, evidence and time; decides nothing by itself.

use std::collections::BTreeSet;

use super::super::Context;
use super::super::adoption::Verdict;
use super::super::model::{Account, AccountPhase, PullSecret, Rotation, RotationPhase};
use super::super::policy::Policy;
use crate::ids::{Generation, RegistryId};
use crate::time::Timestamp;

/// So many generations may live at a registry beside one that is being made.
const BESIDE_A_NEW_ONE: usize = 2;

impl PullSecret {
    /// True when one more generation would be the third at most, at every registry.
    pub(in super::super) fn has_room(&self) -> bool {
        let lives = |account: &Account| match account.phase {
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Burnt => true,
            AccountPhase::Gone | AccountPhase::Residue => false,
        };
        self.at_most_beside(lives)
    }

    /// The rotation that waits because too many generations were handed out: what is served is verified,
    /// and the oldest generation goes as soon as its own deadline or the cluster's proof lets it.
    pub(in super::super) fn crowded_out(&self) -> Option<&Rotation> {
        let rotation = self.rotation()?;
        let waits = match rotation.phase {
            RotationPhase::Pending => true,
            RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => false,
        };
        let crowded = !self.at_most_beside(|account| account.phase.is_handed_out());
        (waits && crowded).then_some(rotation)
    }

    /// Whether a third generation is handed out somewhere, whatever is dead.
    pub(in super::super) fn is_crowded(&self) -> bool {
        !self.few_live(|account| account.phase.is_handed_out())
    }

    fn at_most_beside(&self, lives: impl Fn(&Account) -> bool) -> bool {
        // Nothing is deleted while a served account is dead: only its successor helps, and does not wait.
        self.accounts.iter().any(is_dead) || self.few_live(lives)
    }

    fn few_live(&self, lives: impl Fn(&Account) -> bool) -> bool {
        let at = |registry: &RegistryId| {
            let here = self.accounts.iter().filter(|account| account.registry_id == *registry);
            let living = here.filter(|account| lives(account));
            living.map(|account| account.born_generation).collect::<BTreeSet<Generation>>().len()
        };
        let registries: BTreeSet<_> =
            self.accounts.iter().map(|account| &account.registry_id).collect();
        registries.into_iter().all(|registry| at(registry) <= BESIDE_A_NEW_ONE)
    }

    /// When the oldest generation may go without proof. Only a compromise hands out a third one, so it is
    /// a compromise's deadline, counted from the switch; nothing before the served accounts are verified.
    pub(in super::super) fn crowd_deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let rotation = self.crowded_out()?;
        let verified = self.served_verified_since(rotation.created_at);
        let since = self.served()?.since;
        verified.then(|| since.plus(policy.compromise_deadline))
    }
}

/// Whether this account is the one that makes room for a rotation that waits.
pub(super) fn makes_room(record: &PullSecret, account: &Account, context: &Context<'_>) -> bool {
    let Some(rotation) = record.crowded_out() else { return false };
    let Some(deadline) = record.crowd_deadline(context.policy) else { return false };
    // The served generation may be the oldest of all, after a rollback; it is not the one that goes.
    let retiring = record.accounts.iter().filter(|other| {
        other.registry_id == account.registry_id && other.phase == AccountPhase::Retiring
    });
    let oldest = retiring.map(|other| other.born_generation).min();
    let min_overlap = context.policy.min_overlap_for(rotation.reason);
    let proved = || record.retirement(context.policy, min_overlap, context.now) == Verdict::Now;
    account.phase == AccountPhase::Retiring
        && oldest == Some(account.born_generation)
        && (deadline <= context.now || proved())
}

/// Served, and found dead by a verification.
fn is_dead(account: &Account) -> bool {
    account.phase == AccountPhase::Serving && account.verified_at.is_none()
}
