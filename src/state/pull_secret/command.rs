//! What the machine can be told, and why it may say no.

use std::time::Duration;

use strum::{AsRefStr, EnumDiscriminants, VariantArray};

use super::model::{Call, EvidenceSource};
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId, RotationId};
pub use crate::state::shared::Failure;
use crate::time::Timestamp;
use crate::window::Window;

/// Everything that can be asked of, or told to, one cluster's pull secret.
#[derive(Debug, Clone, PartialEq, EnumDiscriminants, AsRefStr)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(CommandName), derive(VariantArray, Hash))]
pub enum Command {
    /// There shall be a pull secret. Without a list: every enabled registry at first creation, the
    /// recorded set ever after.
    Issue {
        /// The cluster, for a record that does not exist yet.
        cluster_id: ClusterId,
        /// The wanted set.
        registries: Option<Vec<RegistryId>>,
    },
    /// There shall be none.
    Revoke,
    /// Replace the credentials.
    Rotate {
        /// The new rotation's id.
        rotation_id: RotationId,
        /// Why.
        reason: super::model::RotationReason,
        /// Revoke as soon as the new ones are verified.
        force_immediate: bool,
    },
    /// An operator ends the dual-credential period without proof.
    Complete {
        /// Which rotation.
        rotation_id: RotationId,
    },
    /// An operator moves the deadline.
    Extend {
        /// Which rotation.
        rotation_id: RotationId,
        /// By how much.
        by: Duration,
    },
    /// An operator wants the old generation back.
    Rollback {
        /// Which rotation.
        rotation_id: RotationId,
    },
    /// An operator calls the rotation off before anything was switched.
    Cancel {
        /// Which rotation.
        rotation_id: RotationId,
    },
    /// Somebody was seen with a credential.
    Observe(Evidence),
    /// A call is about to be made.
    Announce {
        /// For which account.
        account_id: AccountId,
        /// Which call.
        call: Call,
        /// Fresh for this attempt.
        token: CallToken,
    },
    /// A call cannot be made now.
    Defer {
        /// For which account.
        account_id: AccountId,
        /// When to try again.
        until: Timestamp,
        /// Why, made safe.
        reason: String,
    },
    /// A call ended.
    Answer {
        /// Of which account.
        account_id: AccountId,
        /// The token it was announced with.
        token: CallToken,
        /// What it said.
        answer: Answer,
    },
    /// A new owner closes every open announcement: nobody will ever answer them.
    TakeOver,
    /// Time has passed.
    Tick,
    /// The credential's own code panicked too often: stop, and try once more then.
    Quarantine {
        /// The time of the one new try.
        retry_at: Timestamp,
    },
    /// The pause of a quarantine is over.
    Release,
    /// An operator ends an account that its registry does not let go.
    ForceGone {
        /// Which account.
        account_id: AccountId,
    },
    /// A registry's listing does not hold an account that is handed out.
    Missing {
        /// Which account.
        account_id: AccountId,
        /// When the listing was asked for.
        listed_at: Timestamp,
    },
    /// The recorded set of registries changes; all other accounts are kept. Dead accounts need no command.
    RotatePartly {
        /// The new rotation's id.
        rotation_id: RotationId,
        /// Registries that get an account.
        added: Vec<RegistryId>,
        /// Registries whose accounts go.
        removed: Vec<RegistryId>,
    },
    /// The cluster's own schedule.
    Reschedule(Box<ScheduleChange>),
}

/// What is to become of the cluster's own schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleChange {
    /// Whether it is rotated by schedule.
    pub enabled: Change<bool>,
    /// When the next rotation is wanted.
    pub next_at: Change<Timestamp>,
    /// When rotations may begin.
    pub window: Change<Window>,
}

/// What is to become of one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// Back to what is configured.
    Clear,
    /// This.
    To(T),
}

impl<T: Clone> Change<T> {
    /// What is true afterwards.
    #[must_use]
    pub fn applied(&self, before: Option<&T>) -> Option<T> {
        match self {
            Self::Keep => before.cloned(),
            Self::Clear => None,
            Self::To(value) => Some(value.clone()),
        }
    }
}

/// Somebody was seen with a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// How.
    pub source: EvidenceSource,
    /// Its name within the source, at most 63 characters.
    pub consumer: String,
    /// What it was seen with.
    pub subject: EvidenceSubject,
    /// When.
    pub observed_at: Timestamp,
}

/// What a consumer was seen with. A heartbeat and a registry's record name the account that was
/// presented, never who owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceSubject {
    /// One account.
    Account(AccountId),
    /// A whole generation, as an adapter names it.
    Generation(Generation),
}

/// What a call said.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "one variant per call")]
pub enum Answer {
    Create(CreateAnswer),
    Lookup(LookupAnswer),
    Verify(VerifyAnswer),
    Revoke(RevokeAnswer),
}

/// What a create said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateAnswer {
    /// Made by this call; the secret is stored with the event.
    Created {
        /// The registry's own id.
        remote_id: Option<String>,
        /// The full login name.
        username: String,
    },
    /// Somebody has that name.
    AlreadyExists,
    /// Refused for good.
    Refused(String),
    /// Definitely not applied.
    NotApplied(Failure),
    /// The answer was lost.
    Unknown(Failure),
}

/// What a lookup said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupAnswer {
    /// Not there at this moment.
    Absent,
    /// There.
    Present {
        /// The registry's own id.
        remote_id: Option<String>,
        /// The full login name.
        username: String,
        /// Whose it is.
        ownership: Ownership,
        /// The secret is at hand: readable, or chosen by us.
        adoptable: bool,
    },
    /// No answer.
    Failed(Failure),
}

/// Whose account a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Its marker is this very intent's.
    ThisIntent,
    /// Somebody else's marker.
    Foreign,
    /// No room for a marker there: the record of names decides.
    NoMarker,
}

/// What a verification said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyAnswer {
    /// A login succeeded and pulling is allowed.
    Valid,
    /// A login succeeded, but there is no right to pull.
    CannotPull,
    /// The login was refused.
    Invalid,
    /// No answer.
    Failed(Failure),
}

/// What a revocation said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevokeAnswer {
    /// Deleted by this call.
    Done,
    /// It was not there.
    AlreadyGone,
    /// The registry will not.
    Refused(String),
    /// No answer, or definitely not applied: asking again is harmless.
    Failed(Failure),
}

impl Answer {
    /// The call that it answers.
    #[must_use]
    pub const fn call(&self) -> Call {
        match self {
            Self::Create(_) => Call::Create,
            Self::Lookup(_) => Call::Lookup,
            Self::Verify(_) => Call::Verify,
            Self::Revoke(_) => Call::Revoke,
        }
    }

    /// The answer that stands in for one that will never come.
    #[must_use]
    pub fn lost(call: Call, message: &str) -> Self {
        let failure = Failure { message: message.to_owned(), retry_after: None, blocked: false };
        Self::unanswered(call, failure)
    }

    /// The answer that stands in for one that nobody waits for any more. The service's own end is not the
    /// account's failure.
    #[must_use]
    pub fn abandoned(call: Call) -> Self {
        let failure = Failure {
            message: "the service stopped while the call was running".to_owned(),
            retry_after: Some(Duration::ZERO),
            blocked: true,
        };
        Self::unanswered(call, failure)
    }

    const fn unanswered(call: Call, failure: Failure) -> Self {
        match call {
            Call::Create => Self::Create(CreateAnswer::Unknown(failure)),
            Call::Lookup => Self::Lookup(LookupAnswer::Failed(failure)),
            Call::Verify => Self::Verify(VerifyAnswer::Failed(failure)),
            Call::Revoke => Self::Revoke(RevokeAnswer::Failed(failure)),
        }
    }
}

/// Why a command is not allowed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Rejection {
    /// There is no pull secret.
    #[error("the cluster has no pull secret")]
    NoRecord,
    /// The state does not allow it.
    #[error("not allowed while the pull secret is {state}")]
    State {
        /// The state.
        state: super::model::StateName,
    },
    /// A rotation is running.
    #[error("rotation {rotation_id} is running")]
    RotationRunning {
        /// Which.
        rotation_id: RotationId,
        /// Its status.
        status: super::model::RotationStatus,
        /// When it started.
        started_at: Option<Timestamp>,
    },
    /// That rotation is not the running one.
    #[error("the rotation is not running")]
    NotThatRotation,
    /// The rotation's phase does not allow it.
    #[error("not allowed while the rotation is in phase {phase}")]
    Phase {
        /// The phase's word.
        phase: &'static str,
    },
    /// The list names a registry that is not configured or not enabled. The text does not show the name:
    /// whatever a client put there would stand in the log.
    #[error("a registry of the list is not configured")]
    UnknownRegistry(String),
    /// Not a single registry to make accounts at.
    #[error("no registry is enabled")]
    NoRegistry,
    /// The list lacks registries that the record has.
    #[error("the list lacks recorded registries: {}", .0.join(", "))]
    RegistryMissing(Vec<String>),
    /// The generation is not the served one.
    #[error("generation {served} is served")]
    NotServed {
        /// The one that is.
        served: Generation,
    },
    /// Nobody may present this account any more.
    #[error("the account is not in use")]
    NotInUse,
    /// Too many consumers.
    #[error("at most {limit} consumers per cluster")]
    TooManyConsumers {
        /// The limit.
        limit: usize,
    },
    /// The call is not wanted, or its outcome comes too late.
    #[error("the call is not current")]
    NotCurrent,
    /// The credential is quarantined.
    #[error("the credential is quarantined until {retry_at}")]
    Quarantined {
        /// The time of the next try.
        retry_at: Timestamp,
    },
    /// The next rotation cannot be that early.
    #[error("the next rotation must be later than {earliest}")]
    TimePassed {
        /// It has to be later than this.
        earliest: Timestamp,
    },
}
