//! The words of a pull secret: its record, accounts, rotations and consumers.
//!
//! Only data and questions about it. What may change it is in `accept` and `advance`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use crate::ids::{
    AccountId, AccountName, CallToken, ClusterId, Generation, RegistryId, RotationId,
};
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
    /// A scheduled slot that has failed and is being tried again.
    pub slot: Option<Slot>,
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

/// One account at one registry, for one cluster, born in one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its identity; its secret is sealed for it.
    pub id: AccountId,
    /// Where it lives.
    pub registry_id: RegistryId,
    /// Its name, fixed before the first call and never used again.
    pub name: AccountName,
    /// The generation it was made for.
    pub born_generation: Generation,
    /// Where it is in its life.
    pub phase: AccountPhase,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// The full login name as the registry gave it.
    pub username: Option<String>,
    /// The call that is running now; at most one per account.
    pub call: Option<Announcement>,
    /// When the create whose answer was lost had been announced. Never cleared: such a create may still be
    /// applied, so "gone" needs a call that began later than this plus the registry's settle time.
    pub unanswered_create_at: Option<Timestamp>,
    /// What went wrong since the last success.
    pub trouble: Trouble,
    /// The next call is not due before this.
    pub next_attempt_at: Timestamp,
    /// When it was planned.
    pub planned_at: Timestamp,
    /// When the registry said that it exists.
    pub created_at: Option<Timestamp>,
    /// The announcement of the last verification that succeeded.
    pub verified_at: Option<Timestamp>,
    /// When somebody else than this service was last seen using it.
    pub last_used_at: Option<Timestamp>,
    /// When it went.
    pub gone_at: Option<Timestamp>,
}

/// The life of an account.
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
pub enum AccountPhase {
    /// Named, nothing sent; or its create was definitely not applied.
    Planned,
    /// Its create was sent; without a running call it has to be looked up.
    Creating,
    /// It exists and we hold its secret.
    Created,
    /// A login with it succeeded.
    Verified,
    /// It is part of what is handed out.
    Serving,
    /// It was handed out and may still be in use.
    Retiring,
    /// Its deletion is decided, which is final.
    Deleting,
    /// The registry said that it is gone, late enough.
    Gone,
    /// Its name is spoilt by a lost create; it is deleted until that is certain.
    Burnt,
    /// The registry does not let it go.
    Residue,
}

/// How an account came to be `gone`.
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
pub enum GoneHow {
    /// The registry said so.
    Deleted,
    /// Nothing was ever made under its name.
    NeverCreated,
    /// The name belongs to somebody else; it was left alone.
    Foreign,
    /// An operator ended it without the registry's word.
    Forced,
}

/// The outside calls.
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
#[expect(missing_docs, reason = "named as in the registry trait")]
pub enum Call {
    Create,
    Lookup,
    Verify,
    Revoke,
}

/// A call that was announced in the database and has no accepted outcome yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// Which call.
    pub call: Call,
    /// An outcome counts only while this is current.
    pub token: CallToken,
    /// The time of the announcement; the call itself begins later.
    pub at: Timestamp,
}

/// What went wrong with an account since its last success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The first failure of the row.
    pub since: Option<Timestamp>,
    /// Failures that were the account's own; a blocked registry costs none.
    pub attempts: u32,
    /// What has been used up of `retry.give_up_after`.
    pub spent: Duration,
    /// Since when that clock runs; it stands still while the registry is blocked.
    pub counting_since: Option<Timestamp>,
    /// Whether the last failure was the registry's.
    pub blocked: bool,
    /// The last failure, made safe.
    pub last_error: Option<String>,
    /// The registry refused this account for good.
    pub refused: bool,
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

/// One rotation, running or just ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Its identity.
    pub id: RotationId,
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
        on_deadline: super::policy::OnDeadline,
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
        on_deadline: super::policy::OnDeadline,
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

/// A slot of the schedule that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The slot's own time.
    pub at: Timestamp,
    /// How often it failed.
    pub failures: u32,
}

/// The credential's own code panicked too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quarantine {
    /// Since when.
    pub since: Timestamp,
    /// When one new try comes.
    pub retry_at: Timestamp,
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

    /// Drops what only the step just stored needed: accounts that are gone, rotations that ended.
    #[must_use]
    pub fn compact(mut self) -> Self {
        self.accounts.retain(|account| account.phase != AccountPhase::Gone);
        self.ended.clear();
        self
    }
}

impl AccountPhase {
    /// True while the account may still become, or is, part of what is handed out.
    #[must_use]
    pub const fn is_candidate(self) -> bool {
        match self {
            Self::Planned | Self::Creating | Self::Created | Self::Verified | Self::Serving => true,
            Self::Retiring | Self::Deleting | Self::Gone | Self::Burnt | Self::Residue => false,
        }
    }

    /// True while the cluster may log in with it as far as this service is concerned.
    #[must_use]
    pub const fn is_handed_out(self) -> bool {
        matches!(self, Self::Serving | Self::Retiring)
    }
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
}
