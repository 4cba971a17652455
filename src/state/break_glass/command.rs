//! What the machine can be told, and why it may say no.

use std::time::Duration;

use strum::{AsRefStr, EnumDiscriminants, VariantArray};

use super::model::{Call, StateName, Subject};
use crate::ids::{CallToken, ClusterId, CredentialId, RevocationId};
use crate::state::shared::Failure;
use crate::time::Timestamp;

/// Everything that can be asked of, or told to, one cluster's break-glass credentials.
#[derive(Debug, Clone, PartialEq, EnumDiscriminants, AsRefStr)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(CommandName), derive(VariantArray, Hash))]
pub enum Command {
    /// There shall be a credential.
    Request {
        /// The cluster, for one that never had any.
        cluster_id: ClusterId,
        /// The new credential's id.
        credential_id: CredentialId,
        /// Whom it names; one is made up where the caller does not care.
        username: Option<String>,
        /// Its end.
        expires_at: Timestamp,
        /// The caller's own signing request.
        signing_request: Option<String>,
        /// Who asks.
        by: String,
        /// Why.
        reason: Option<String>,
    },
    /// A second person agrees.
    Approve {
        /// To which.
        credential_id: CredentialId,
        /// Who.
        by: String,
    },
    /// A second person does not.
    Deny {
        /// To which.
        credential_id: CredentialId,
        /// Who.
        by: String,
        /// Why, as it is shown.
        reason: Option<String>,
    },
    /// None of the cluster's credentials shall work any more. Joins a running revocation of all.
    RevokeAll {
        /// The cluster, for one that never had any.
        cluster_id: ClusterId,
        /// The new revocation's id.
        revocation_id: RevocationId,
        /// Who asks.
        by: String,
        /// Why.
        reason: Option<String>,
    },
    /// One of them shall not work any more.
    RevokeOne {
        /// Which.
        credential_id: CredentialId,
        /// The new revocation's id.
        revocation_id: RevocationId,
        /// Who asks.
        by: String,
        /// Why.
        reason: Option<String>,
    },
    /// Somebody wants to read the bundle, which must not be empty.
    WantBundle {
        /// The cluster, for one that never had any.
        cluster_id: ClusterId,
    },
    /// An adapter says that the API servers run with this version of the bundle.
    ConfirmBundle {
        /// Which.
        version: u64,
    },
    /// A call is about to be made.
    Announce {
        /// For what.
        subject: Subject,
        /// Which call.
        call: Call,
        /// Fresh for this attempt.
        token: CallToken,
    },
    /// A call cannot be made now.
    Defer {
        /// For what.
        subject: Subject,
        /// When to try again.
        until: Timestamp,
        /// Why, made safe.
        reason: String,
    },
    /// A call ended.
    Answer {
        /// For what it was made.
        subject: Subject,
        /// The token it was announced with.
        token: CallToken,
        /// What it said.
        answer: Answer,
    },
    /// A new owner closes every open announcement: nobody will ever answer them.
    TakeOver,
    /// Time has passed.
    Tick,
    /// The credentials' own code panicked too often: stop, and try once more then.
    Quarantine {
        /// The time of the one new try.
        retry_at: Timestamp,
    },
    /// The pause of a quarantine is over.
    Release,
}

/// What a call said.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "one variant per call")]
pub enum Answer {
    Submit(SubmitAnswer),
    Endorse(EndorseAnswer),
    Collect(CollectAnswer),
    Probe(ProbeAnswer),
    Rotate(RotateAnswer),
    Check(CheckAnswer),
    Make(MakeAnswer),
}

/// What came of giving the signer a request. The same request may be given again, so whether a lost one was
/// applied does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitAnswer {
    /// The signer has it.
    Submitted,
    /// It signed at once; what is secret is stored with the event.
    Signed {
        /// The certificate's end.
        not_after: Timestamp,
    },
    /// Refused for good.
    Refused(String),
    /// It cannot work.
    Broken(String),
    /// No answer, or definitely not applied.
    Failed(Failure),
}

/// What came of approving a request at the signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndorseAnswer {
    /// Approved.
    Endorsed,
    /// Refused for good.
    Refused(String),
    /// No answer, or definitely not applied.
    Failed(Failure),
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectAnswer {
    /// There is a certificate, its key matches and its chain leads to the signer.
    Signed {
        /// Its end.
        not_after: Timestamp,
    },
    /// Not yet. A request that is missing proves nothing.
    Pending,
    /// Refused for good.
    Refused(String),
    /// The signer failed, or what it signed is not what was asked for.
    Broken(String),
    /// No answer.
    Failed(Failure),
}

/// What the API servers said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// Each of those that were asked.
    Seen(Vec<EndpointSeen>),
    /// Nobody was asked.
    Failed(Failure),
}

/// What one API server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSeen {
    /// Its address, as configured.
    pub endpoint: String,
    /// To what is probed; of several, "rejected" means each of them and "accepted" any.
    pub verdict: Verdict,
    /// To a control that it has to accept.
    pub control: Verdict,
}

/// What an API server said to a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It knows the name.
    Accepted,
    /// `401`.
    Rejected,
    /// Anything else; in safe words. Never taken for a rejection.
    Unknown(String),
}

/// What came of asking for a rotation of the signer's authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotateAnswer {
    /// It has the request.
    Begun,
    /// This request can never succeed; another one may.
    Lost(String),
    /// No answer, or definitely not applied.
    Failed(Failure),
}

/// How far the rotation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckAnswer {
    /// It goes on.
    Running {
        /// What it last said, made safe.
        progress: String,
    },
    /// What was signed before is void.
    Done {
        /// Before when.
        cut_off: Option<Timestamp>,
    },
    /// This request can never succeed; another one may.
    Lost(String),
    /// No answer.
    Failed(Failure),
}

/// What came of making an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MakeAnswer {
    /// Made; what is secret is stored with the event.
    Made {
        /// Its end.
        not_after: Timestamp,
    },
    /// Not made.
    Failed(Failure),
}

impl Answer {
    /// The call that it answers.
    #[must_use]
    pub const fn call(&self) -> Call {
        match self {
            Self::Submit(_) => Call::Submit,
            Self::Endorse(_) => Call::Endorse,
            Self::Collect(_) => Call::Collect,
            Self::Probe(_) => Call::Probe,
            Self::Rotate(_) => Call::Rotate,
            Self::Check(_) => Call::Check,
            Self::Make(_) => Call::Make,
        }
    }

    /// The answer that stands in for one that says nothing.
    #[must_use]
    pub const fn failed(call: Call, failure: Failure) -> Self {
        match call {
            Call::Submit => Self::Submit(SubmitAnswer::Failed(failure)),
            Call::Endorse => Self::Endorse(EndorseAnswer::Failed(failure)),
            Call::Collect => Self::Collect(CollectAnswer::Failed(failure)),
            Call::Probe => Self::Probe(ProbeAnswer::Failed(failure)),
            Call::Rotate => Self::Rotate(RotateAnswer::Failed(failure)),
            Call::Check => Self::Check(CheckAnswer::Failed(failure)),
            Call::Make => Self::Make(MakeAnswer::Failed(failure)),
        }
    }

    /// The answer that stands in for one that will never come.
    #[must_use]
    pub fn lost(call: Call, message: &str) -> Self {
        let message = message.to_owned();
        Self::failed(call, Failure { message, retry_after: None, blocked: false })
    }

    /// The same when it was the service that died: not the call's failure, and no reason to wait.
    #[must_use]
    pub fn died(call: Call) -> Self {
        let message = "the service stopped while the call was running".to_owned();
        Self::failed(call, Failure { message, retry_after: Some(Duration::ZERO), blocked: true })
    }
}

/// Why a command is not allowed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Rejection {
    /// No such credential, or it has ended.
    #[error("there is no such credential, or it has ended")]
    NotFound,
    /// A live credential has that name.
    #[error("the username is in use by another credential of the cluster")]
    UsernameTaken,
    /// Too many live ones.
    #[error("at most {limit} credentials of a cluster may live at once")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A revocation of all is running.
    #[error("the credentials of the cluster are being revoked")]
    BeingRevoked {
        /// By which revocation.
        revocation_id: RevocationId,
    },
    /// The signer revokes all or nothing.
    #[error("the signer cannot revoke a single credential")]
    CannotRevokeOne,
    /// Nobody has to agree to it any more.
    #[error("not allowed while the credential is {state}")]
    State {
        /// The state.
        state: StateName,
    },
    /// A second person has to decide.
    #[error("the one who asked for a credential cannot decide about it")]
    OwnRequest,
    /// This version of the bundle was never published.
    #[error("the trust bundle never had this etag")]
    UnknownBundle,
    /// The call is not wanted, or its outcome comes too late.
    #[error("the call is not current")]
    NotCurrent,
    /// The credentials are quarantined.
    #[error("the credentials are quarantined until {retry_at}")]
    Quarantined {
        /// The time of the next try.
        retry_at: Timestamp,
    },
}
