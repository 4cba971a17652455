//! The words of one credential: what was asked for, where it is, what API servers say of it.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::{Announcement, Signer, StateName};
use crate::ids::{CredentialId, RevocationId};
use crate::state::shared::Trouble;
use crate::time::Timestamp;

/// One break-glass credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its identity; its keys are sealed for it.
    pub id: CredentialId,
    /// Whom the certificate names.
    pub username: String,
    /// Who signs it.
    pub signer: Signer,
    /// It is nobody's: it has no rights, and API servers have to accept it while others have to be rejected.
    pub control: bool,
    /// What it is doing.
    pub state: CredentialState,
    /// When `state` last changed its kind.
    pub state_since: Timestamp,
    /// What a person should know about the state, made safe.
    pub message: String,
    /// Who asked for it.
    pub requested_by: String,
    /// Why, as the caller said.
    pub reason: Option<String>,
    /// Who approved or denied it, where somebody had to.
    pub decided_by: Option<String>,
    /// The caller's own signing request (PEM); without one the service makes the key.
    pub signing_request: Option<String>,
    /// The end that was asked for; the certificate's own, once there is one.
    pub expires_at: Timestamp,
    /// What was signed.
    pub certificate: Option<Certificate>,
    /// What the API servers said of it, for an issuing credential.
    pub endpoints: Vec<EndpointProgress>,
    /// The call that is running now.
    pub call: Option<Announcement>,
    /// What went wrong since the last success.
    pub trouble: Trouble,
    /// The next call is not due before this.
    pub next_attempt_at: Timestamp,
    /// When it was asked for; records from before that was written down have none.
    pub created_at: Option<Timestamp>,
    /// Since when the clock of `break_glass.issue_deadline` runs.
    pub accepted_at: Option<Timestamp>,
    /// When it became usable.
    pub issued_at: Option<Timestamp>,
    /// When its revocation was proved.
    pub revoked_at: Option<Timestamp>,
}

/// A signed certificate, as far as the machine has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificate {
    /// Its end.
    pub not_after: Timestamp,
    /// When it was stored.
    pub signed_at: Timestamp,
}

/// The states of `DESIGN` section 4, each with what only it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialState {
    /// A second person has to agree.
    Requested,
    /// Nothing was done yet.
    Accepted,
    /// On its way.
    Issuing {
        /// How far.
        step: IssueStep,
    },
    /// Usable.
    Active,
    /// It shall be revoked.
    AwaitingRevocation {
        /// By which revocation.
        revocation: RevocationId,
    },
    /// It is no longer trusted, which has to be proved.
    Revoking {
        /// By which revocation.
        revocation: RevocationId,
    },
    /// Proved.
    Revoked {
        /// By which revocation.
        revocation: RevocationId,
    },
    /// Somebody, or the signer, said no.
    Denied,
    /// It did not come about.
    Failed,
    /// It came to its end.
    Expired,
}

/// How far an issuing credential is.
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
pub enum IssueStep {
    /// The signer is being given the request.
    Submitting,
    /// The request is being approved at the signer.
    Endorsing,
    /// The certificate is waited for.
    Collecting,
    /// The API servers have to accept it.
    Probing,
}

/// What one API server says of a credential, or of all that a revocation is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointProgress {
    /// Its address, as configured.
    pub endpoint: String,
    /// Rejections in a row, each with a control that was accepted.
    pub rejections: u32,
    /// When it was proved: accepted (issuing), or rejected often enough (revoking).
    pub proved_at: Option<Timestamp>,
    /// When it was last asked.
    pub seen_at: Option<Timestamp>,
    /// What is in the way, made safe.
    pub last_error: Option<String>,
}

impl EndpointProgress {
    /// An API server that was not asked yet.
    #[must_use]
    pub const fn new(endpoint: String) -> Self {
        Self { endpoint, rejections: 0, proved_at: None, seen_at: None, last_error: None }
    }
}

impl CredentialState {
    /// The state's word.
    #[must_use]
    pub const fn name(&self) -> StateName {
        match self {
            Self::Requested => StateName::Requested,
            Self::Accepted => StateName::Accepted,
            Self::Issuing { .. } => StateName::Issuing,
            Self::Active => StateName::Active,
            Self::AwaitingRevocation { .. } => StateName::AwaitingRevocation,
            Self::Revoking { .. } => StateName::Revoking,
            Self::Revoked { .. } => StateName::Revoked,
            Self::Denied => StateName::Denied,
            Self::Failed => StateName::Failed,
            Self::Expired => StateName::Expired,
        }
    }

    /// The revocation that it is, or was, subject to.
    #[must_use]
    pub const fn revocation(&self) -> Option<RevocationId> {
        match self {
            Self::AwaitingRevocation { revocation }
            | Self::Revoking { revocation }
            | Self::Revoked { revocation } => Some(*revocation),
            Self::Requested
            | Self::Accepted
            | Self::Issuing { .. }
            | Self::Active
            | Self::Denied
            | Self::Failed
            | Self::Expired => None,
        }
    }
}

impl Credential {
    /// One that was just accepted, without a name and without an end.
    #[must_use]
    pub fn new(id: CredentialId, signer: Signer, by: &str, now: Timestamp) -> Self {
        Self {
            id,
            username: String::new(),
            signer,
            control: false,
            state: CredentialState::Accepted,
            state_since: now,
            message: String::new(),
            requested_by: by.to_owned(),
            reason: None,
            decided_by: None,
            signing_request: None,
            expires_at: now,
            certificate: None,
            endpoints: Vec::new(),
            call: None,
            trouble: Trouble::default(),
            next_attempt_at: now,
            created_at: Some(now),
            accepted_at: Some(now),
            issued_at: None,
            revoked_at: None,
        }
    }

    /// Whether the service can log in with it, and so ask an API server about it: the embedded signer makes
    /// a probe for each, another signer's can be asked only with the credential's own key.
    #[must_use]
    pub const fn can_be_probed(&self) -> bool {
        let own_probe = match self.signer {
            Signer::LocalCa => true,
            Signer::KubernetesCsr => self.signing_request.is_none(),
        };
        self.certificate.is_some() && own_probe
    }
}
