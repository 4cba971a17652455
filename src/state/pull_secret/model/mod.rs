//! The words of a pull secret: its record, accounts, rotations and consumers.
//!
//! Only data and questions about it. What may change it is in `accept` and `advance`.

mod account;
mod rotation;
mod schedule;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

pub(super) use account::SURE;
pub use account::{Account, AccountPhase, Announcement, Call, GoneHow};
pub use rotation::{
    End, RetireReason, Rotation, RotationError, RotationPhase, RotationReason, RotationStatus,
    Scope,
};
pub use schedule::{Pause, Schedule, Slot};

use crate::ids::{AccountId, ClusterId, Generation, RegistryId};
pub use crate::state::shared::{Quarantine, Trouble};
use crate::time::Timestamp;

/// Everything the service knows of one cluster's pull secret, history aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSecret {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// What it is doing.
    pub state: RecordState,
    /// When `state` last changed its kind.
    pub state_since: Timestamp,
    /// The recorded set of registries; only a partial rotation or a new start changes it.
    pub registries: Vec<RegistryId>,
    /// The highest generation number ever given out.
    pub last_generation: Generation,
    /// Accounts that are not gone, and those that went in the step being decided.
    pub accounts: Vec<Account>,
    /// Who has been seen using which generation.
    pub consumers: Vec<Consumer>,
    /// Rotations that ended in the step being decided; kept by the store, not here.
    pub ended: Vec<Rotation>,
    /// When the record was first made.
    pub created_at: Timestamp,
    /// When a rotation last put a new generation into service.
    pub last_rotated_at: Option<Timestamp>,
    /// When the schedule wants the next rotation.
    pub next_rotation_at: Option<Timestamp>,
    /// From when the interval counts: the last time that a whole new generation was put into service.
    pub interval_from: Option<Timestamp>,
    /// What its schedule has of its own.
    pub schedule: Schedule,
    /// A scheduled slot that has failed and is being tried again.
    pub slot: Option<Slot>,
    /// Set while dead accounts could not be replaced.
    pub reissue_pause: Option<Pause>,
    /// A partial rotation that waits for the running one to end.
    pub waiting: Option<Box<Rotation>>,
    /// Set while the credential's own code keeps failing.
    pub quarantine: Option<Quarantine>,
}

/// The states of `DESIGN` section 3, each with what only it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordState {
    /// The first accounts are being made; without a generation it waits for older ones to be gone.
    Issuing {
        /// The generation being made.
        generation: Option<Generation>,
    },
    /// One generation is valid.
    Active {
        /// What is handed out.
        served: Served,
    },
    /// A rotation is in one of its phases.
    Rotating {
        /// What is handed out.
        served: Served,
        /// The running rotation.
        rotation: Box<Rotation>,
    },
    /// Every account is being deleted.
    Revoking,
    /// Every account is gone.
    Revoked,
    /// A registry refused an account for good.
    Denied(Refusal),
    /// Trouble outlasted `retry.give_up_after`.
    Failed(Refusal),
}

/// The words of [`RecordState`], as the API, the database and metrics spell them.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are those of RecordState")]
pub enum StateName {
    Issuing,
    Active,
    Rotating,
    Revoking,
    Revoked,
    Denied,
    Failed,
}

impl RecordState {
    /// The state's word.
    #[must_use]
    pub const fn name(&self) -> StateName {
        match self {
            Self::Issuing { .. } => StateName::Issuing,
            Self::Active { .. } => StateName::Active,
            Self::Rotating { .. } => StateName::Rotating,
            Self::Revoking => StateName::Revoking,
            Self::Revoked => StateName::Revoked,
            Self::Denied(_) => StateName::Denied,
            Self::Failed(_) => StateName::Failed,
        }
    }
}

/// The generation that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Its number.
    pub generation: Generation,
    /// The last switch of the served generation; only evidence after it counts.
    pub since: Timestamp,
}

/// Why a record is `denied` or `failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The registry that refused or did not answer.
    pub registry_id: RegistryId,
    /// Its words, made safe.
    pub message: String,
}

/// Somebody who has been seen with a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// How it was seen.
    pub source: EvidenceSource,
    /// Its name within the source.
    pub name: String,
    /// Its latest word.
    pub generation: Generation,
    /// When that was observed.
    pub observed_at: Timestamp,
}

/// Where evidence of use comes from.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// The cluster presented the credential itself.
    Heartbeat,
    /// The registry's own record.
    Registry,
    /// An adapter said what it applied.
    Adapter,
}

impl PullSecret {
    /// What is handed out, where something is.
    #[must_use]
    pub const fn served(&self) -> Option<Served> {
        match &self.state {
            RecordState::Active { served } | RecordState::Rotating { served, .. } => Some(*served),
            RecordState::Issuing { .. }
            | RecordState::Revoking
            | RecordState::Revoked
            | RecordState::Denied(_)
            | RecordState::Failed(_) => None,
        }
    }

    /// The number of the served generation; [`Generation::NONE`] while none is.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.served().map_or(Generation::NONE, |served| served.generation)
    }

    /// The running rotation.
    #[must_use]
    pub const fn rotation(&self) -> Option<&Rotation> {
        match &self.state {
            RecordState::Rotating { rotation, .. } => Some(rotation),
            RecordState::Issuing { .. }
            | RecordState::Active { .. }
            | RecordState::Revoking
            | RecordState::Revoked
            | RecordState::Denied(_)
            | RecordState::Failed(_) => None,
        }
    }

    /// The account with this id.
    #[must_use]
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.iter().find(|account| account.id == id)
    }

    /// The generation that is being made, if one is.
    #[must_use]
    pub fn working_generation(&self) -> Option<Generation> {
        match &self.state {
            RecordState::Issuing { generation } => *generation,
            RecordState::Rotating { rotation, .. } => match rotation.phase {
                RotationPhase::CreatingCredentials | RotationPhase::VerifyingCredentials => {
                    Some(rotation.to)
                }
                RotationPhase::Pending
                | RotationPhase::DualCredentialPeriod { .. }
                | RotationPhase::RevokingOld { .. }
                | RotationPhase::RollingBack { .. }
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_) => None,
            },
            RecordState::Active { .. }
            | RecordState::Revoking
            | RecordState::Revoked
            | RecordState::Denied(_)
            | RecordState::Failed(_) => None,
        }
    }

    /// The registries whose accounts are being made, with the generation being made.
    pub(super) fn work(&self) -> Option<(Generation, &[RegistryId])> {
        let generation = self.working_generation()?;
        let scope = self.rotation().map_or(&Scope::Whole, |rotation| &rotation.scope);
        Some((generation, scope.makes(&self.registries)))
    }

    /// The candidate for one registry of a generation: the account that is neither spoilt nor going.
    #[must_use]
    pub fn candidate(&self, generation: Generation, registry: &RegistryId) -> Option<&Account> {
        self.accounts.iter().find(|account| {
            account.born_generation == generation
                && account.registry_id == *registry
                && account.phase.is_candidate()
        })
    }

    /// True when nothing of an earlier generation is still to be deleted; residue does not count.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        !self.accounts.iter().any(|account| match account.phase {
            AccountPhase::Deleting | AccountPhase::Burnt => true,
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Gone
            | AccountPhase::Residue => false,
        })
    }

    /// True while a served account was found dead.
    #[must_use]
    pub fn has_dead(&self) -> bool {
        let dead = |a: &Account| a.phase == AccountPhase::Serving && a.verified_at.is_none();
        self.accounts.iter().any(dead)
    }

    /// True for a rotation that only the limit of the fleet holds back. A compromise waits for nobody.
    #[must_use]
    pub fn waits_for_turn(&self) -> bool {
        let RecordState::Rotating { rotation, .. } = &self.state else { return false };
        matches!(rotation.phase, RotationPhase::Pending)
            && rotation.reason != RotationReason::Compromise
            && self.quarantine.is_none()
            && self.is_drained()
    }

    /// Drops what only the step just stored needed: accounts that are gone, rotations that ended.
    #[must_use]
    pub fn compact(mut self) -> Self {
        self.accounts.retain(|account| account.phase != AccountPhase::Gone);
        self.ended.clear();
        self
    }
}
