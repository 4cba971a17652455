//! The words of a rotation: its reasons, its phases, its ends.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::super::policy::OnDeadline;
use super::Account;
use crate::ids::{Generation, RegistryId, RotationId};
use crate::time::Timestamp;

/// Which accounts a rotation replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All of them.
    Whole,
    /// The recorded set changes: those added get accounts, those of the removed go, all others are kept.
    Registries {
        /// Registries that the record does not have yet.
        added: Vec<RegistryId>,
        /// Registries that it has no longer.
        removed: Vec<RegistryId>,
    },
    /// Dead accounts are made anew, all others are kept.
    Accounts {
        /// Their registries.
        replaced: Vec<RegistryId>,
    },
}

impl Scope {
    /// The registries that get a new account; `recorded` is the record's set.
    #[must_use]
    pub fn makes<'a>(&'a self, recorded: &'a [RegistryId]) -> &'a [RegistryId] {
        match self {
            Self::Whole => recorded,
            Self::Registries { added, .. } => added,
            Self::Accounts { replaced } => replaced,
        }
    }

    /// Whether a switch to the new generation retires the account served at this registry.
    #[must_use]
    pub fn retires(&self, registry: &RegistryId) -> bool {
        match self {
            Self::Whole => true,
            Self::Registries { removed, .. } => removed.contains(registry),
            Self::Accounts { replaced } => replaced.contains(registry),
        }
    }

    /// Nothing retires, so nothing has to be proved.
    #[must_use]
    pub fn only_adds(&self) -> bool {
        match self {
            Self::Registries { removed, .. } => removed.is_empty(),
            Self::Whole | Self::Accounts { .. } => false,
        }
    }

    /// Whether it replaces every account.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Registries { .. } | Self::Accounts { .. } => false,
        }
    }
}

/// One rotation, running or just ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Its identity.
    pub id: RotationId,
    /// Which accounts it replaces.
    pub scope: Scope,
    /// Why it was asked for.
    pub reason: RotationReason,
    /// Revoke as soon as the new generation is verified.
    pub force_immediate: bool,
    /// The scheduled slot that it fills.
    pub slot: Option<Timestamp>,
    /// The generation that was served when it was asked for.
    pub from: Generation,
    /// The generation that it makes.
    pub to: Generation,
    /// How far it is.
    pub phase: RotationPhase,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its first account was planned.
    pub started_at: Option<Timestamp>,
    /// When its new generation was first served.
    pub promoted_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// Why a rotation was asked for.
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
pub enum RotationReason {
    /// Somebody asked.
    Manual,
    /// The schedule asked.
    Scheduled,
    /// The old credential is known to be in wrong hands.
    Compromise,
    /// A registry is added or removed.
    Registries,
    /// A dead account is made anew.
    Drift,
}

/// The phases of `DESIGN` section 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationPhase {
    /// Waits for its turn.
    Pending,
    /// Accounts are being made, registries side by side.
    CreatingCredentials,
    /// All made, not all verified.
    VerifyingCredentials,
    /// Both generations are valid, the new one is served.
    DualCredentialPeriod {
        /// When `on_deadline` decides.
        deadline: Timestamp,
        /// What the deadline does.
        on_deadline: OnDeadline,
        /// A verification said that a served account is dead.
        drifted: bool,
        /// A rollback was asked for then; the old accounts are being verified.
        rollback_at: Option<Timestamp>,
    },
    /// The old generation is on its way out. Until every served account was verified again after
    /// `decided_at`, nothing is deleted.
    RevokingOld {
        /// The decision.
        decided_at: Timestamp,
        /// Who or what made it.
        why: RetireReason,
        /// The deadline that was running, for the way back.
        deadline: Timestamp,
        /// What that deadline does.
        on_deadline: OnDeadline,
    },
    /// The dual-credential period in the other direction: the old generation is served.
    RollingBack {
        /// Shown only; a rollback always holds.
        deadline: Timestamp,
        /// A verification said that a served account is dead.
        drifted: bool,
        /// The decision to remove the new generation; the served one is verified again first.
        decided: Option<(Timestamp, RetireReason)>,
    },
    /// The new generation is being deleted.
    RemovingNew {
        /// How the rotation ends once that is done.
        end: End,
    },
    /// It is over.
    Ended(End),
}

/// Who or what decided that the old generation goes.
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
pub enum RetireReason {
    /// Adoption was proved.
    Adopted,
    /// An operator said `complete`.
    Operator,
    /// The deadline passed and the policy is `revoke`.
    Deadline,
    /// `force_immediate`.
    Forced,
}

/// How a rotation ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The new generation is served.
    Completed {
        /// False when residue is left.
        old_credentials_revoked: bool,
    },
    /// A registry refused, or trouble lasted too long.
    Failed(RotationError),
    /// Somebody or something took its place.
    Cancelled(Option<RotationError>),
    /// The old generation is served again.
    RolledBack,
}

/// Why a rotation did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationError {
    /// A short word: `denied`, `gave_up`, `superseded`, `revoked`.
    pub code: String,
    /// Plain words.
    pub message: String,
    /// The registry concerned.
    pub registry_id: Option<RegistryId>,
}

/// The words of a rotation's status.
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
#[expect(missing_docs, reason = "the words are defined in the design")]
pub enum RotationStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
    Cancelled,
    RolledBack,
}

impl RotationPhase {
    /// The phase's word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::CreatingCredentials => "creating_credentials",
            Self::VerifyingCredentials => "verifying_credentials",
            Self::DualCredentialPeriod { .. } => "dual_credential_period",
            Self::RevokingOld { .. } => "revoking_old",
            Self::RollingBack { .. } => "rolling_back",
            Self::RemovingNew { .. } => "removing_new",
            Self::Ended(end) => end.word(),
        }
    }
}

impl End {
    /// The word of the status that goes with it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::RolledBack => "rolled_back",
        }
    }

    /// The error that goes with it.
    #[must_use]
    pub const fn error(&self) -> Option<&RotationError> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Cancelled(error) => error.as_ref(),
            Self::Completed { .. } | Self::RolledBack => None,
        }
    }
}

impl Rotation {
    /// The status that goes with the phase.
    #[must_use]
    pub const fn status(&self) -> RotationStatus {
        match &self.phase {
            RotationPhase::Pending => RotationStatus::Pending,
            RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::RemovingNew { .. } => RotationStatus::InProgress,
            RotationPhase::Ended(End::Completed { .. }) => RotationStatus::Completed,
            RotationPhase::Ended(End::Failed(_)) => RotationStatus::Failed,
            RotationPhase::Ended(End::Cancelled(_)) => RotationStatus::Cancelled,
            RotationPhase::Ended(End::RolledBack) => RotationStatus::RolledBack,
        }
    }

    /// The deadline of a dual-credential period in either direction.
    #[must_use]
    pub const fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            RotationPhase::DualCredentialPeriod { deadline, .. }
            | RotationPhase::RevokingOld { deadline, .. }
            | RotationPhase::RollingBack { deadline, .. } => Some(*deadline),
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => None,
        }
    }

    /// True when a verification found a served account dead.
    #[must_use]
    pub const fn drifted(&self) -> bool {
        match &self.phase {
            RotationPhase::DualCredentialPeriod { drifted, .. }
            | RotationPhase::RollingBack { drifted, .. } => *drifted,
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => false,
        }
    }

    /// For an account that is served and that this rotation kept: the generation that is not served, of which
    /// it is a part as well. `None` for one that tells the two apart, and while there is only one.
    #[must_use]
    pub fn other_of(&self, account: &Account) -> Option<Generation> {
        let kept = account.born_generation != self.to && !self.scope.retires(&account.registry_id);
        match &self.phase {
            RotationPhase::DualCredentialPeriod { .. } | RotationPhase::RevokingOld { .. } => {
                kept.then_some(self.from)
            }
            RotationPhase::RollingBack { .. } => kept.then_some(self.to),
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => None,
        }
    }
}
