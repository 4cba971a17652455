//! What happened. An event is a fact: `apply` never refuses one.

use strum::{AsRefStr, EnumDiscriminants, IntoStaticStr, VariantArray};

use super::model::{
    Authority, Call, Certificate, Credential, EndpointProgress, Revocation, Subject,
};
use crate::ids::{AuthorityId, CallToken, ClusterId, CredentialId, RevocationId};
use crate::state::shared::{Quarantine, Trouble};
use crate::time::Timestamp;

/// One fact about a cluster's break-glass credentials. Each becomes one audit row and one log line.
#[derive(Debug, Clone, PartialEq, EnumDiscriminants, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(EventName), derive(VariantArray, Hash))]
#[expect(missing_docs, reason = "the fields are those of the model")]
pub enum Event {
    /// The cluster has to do with break-glass for the first time.
    Opened { cluster_id: ClusterId, at: Timestamp },
    /// A credential was asked for.
    CredentialRequested { credential: Box<Credential> },
    /// A second person agreed.
    CredentialApproved { credential_id: CredentialId, by: String, at: Timestamp },
    /// A second person, or the signer (`by` is empty), said no.
    CredentialDenied {
        credential_id: CredentialId,
        by: Option<String>,
        message: String,
        at: Timestamp,
    },
    /// It did not come about.
    CredentialFailed { credential_id: CredentialId, message: String, at: Timestamp },
    /// It is usable.
    CredentialIssued { credential_id: CredentialId, message: String, at: Timestamp },
    /// It came to its end.
    CredentialExpired { credential_id: CredentialId, at: Timestamp },
    /// Its revocation is proved.
    CredentialRevoked { credential_id: CredentialId, revocation_id: RevocationId, at: Timestamp },
    /// A call will be made.
    CallAnnounced { subject: Subject, call: Call, token: CallToken, at: Timestamp },
    /// A call ended without saying anything.
    CallFailed { subject: Subject, call: Call, trouble: Trouble, next_attempt_at: Timestamp },
    /// A call has to wait.
    CallDeferred { subject: Subject, call: Call, trouble: Trouble, next_attempt_at: Timestamp },
    /// A call ended with a word that another event acts on, or that nobody waits for any more.
    CallEnded { subject: Subject, call: Call, at: Timestamp },
    /// The signer has the request.
    RequestSubmitted { credential_id: CredentialId, at: Timestamp },
    /// The request is approved at the signer.
    RequestEndorsed { credential_id: CredentialId, at: Timestamp },
    /// There is no certificate yet.
    CertificateAwaited { credential_id: CredentialId, next_attempt_at: Timestamp },
    /// There is a certificate.
    CertificateSigned { credential_id: CredentialId, certificate: Certificate },
    /// The API servers that have to agree are these.
    EndpointsSet { subject: Subject, endpoints: Vec<EndpointProgress> },
    /// API servers were asked.
    EndpointsSeen {
        subject: Subject,
        endpoints: Vec<EndpointProgress>,
        trouble: Trouble,
        next_attempt_at: Timestamp,
    },
    /// Credentials shall be revoked.
    RevocationRequested {
        revocation: Box<Revocation>,
        /// What it is about.
        credentials: Vec<CredentialId>,
        /// The revocations of one that it takes over.
        supersedes: Vec<RevocationId>,
    },
    /// The signer has begun to rotate.
    RotationBegun { revocation_id: RevocationId, at: Timestamp },
    /// It goes on.
    RotationWatched { revocation_id: RevocationId, progress: String, next_attempt_at: Timestamp },
    /// This request to the signer can never succeed: the next one is due.
    RotationLost { revocation_id: RevocationId, message: String, next_attempt_at: Timestamp },
    /// The signer has rotated.
    RotationDone { revocation_id: RevocationId, cut_off: Option<Timestamp>, at: Timestamp },
    /// What is revoked is not trusted any more; that has to be proved.
    ProvingBegan {
        revocation_id: RevocationId,
        endpoints: Vec<EndpointProgress>,
        message: String,
        at: Timestamp,
    },
    /// A revocation is over.
    RevocationCompleted { revocation_id: RevocationId, at: Timestamp },
    /// An authority of our own is needed.
    AuthorityWanted { authority: Box<Authority> },
    /// It was made.
    AuthorityMade { authority_id: AuthorityId, not_after: Timestamp, at: Timestamp },
    /// It came to its end.
    AuthorityDropped { authority_id: AuthorityId, at: Timestamp },
    /// An adapter has loaded a version of the bundle.
    BundleConfirmed { version: u64, at: Timestamp },
    /// The credentials' own code keeps failing.
    Quarantined { quarantine: Quarantine },
    /// The pause is over.
    Released { at: Timestamp },
}

impl Event {
    /// What it is about, where that is one thing.
    #[must_use]
    pub fn subject(&self) -> Option<Subject> {
        match self {
            Self::CredentialRequested { credential } => Some(Subject::Credential(credential.id)),
            Self::CredentialApproved { credential_id, .. }
            | Self::CredentialDenied { credential_id, .. }
            | Self::CredentialFailed { credential_id, .. }
            | Self::CredentialIssued { credential_id, .. }
            | Self::CredentialExpired { credential_id, .. }
            | Self::CredentialRevoked { credential_id, .. }
            | Self::RequestSubmitted { credential_id, .. }
            | Self::RequestEndorsed { credential_id, .. }
            | Self::CertificateAwaited { credential_id, .. }
            | Self::CertificateSigned { credential_id, .. } => {
                Some(Subject::Credential(*credential_id))
            }
            Self::CallAnnounced { subject, .. }
            | Self::CallFailed { subject, .. }
            | Self::CallDeferred { subject, .. }
            | Self::CallEnded { subject, .. }
            | Self::EndpointsSet { subject, .. }
            | Self::EndpointsSeen { subject, .. } => Some(*subject),
            Self::RevocationRequested { revocation, .. } => {
                Some(Subject::Revocation(revocation.id))
            }
            Self::RotationBegun { revocation_id, .. }
            | Self::RotationWatched { revocation_id, .. }
            | Self::RotationLost { revocation_id, .. }
            | Self::RotationDone { revocation_id, .. }
            | Self::ProvingBegan { revocation_id, .. }
            | Self::RevocationCompleted { revocation_id, .. } => {
                Some(Subject::Revocation(*revocation_id))
            }
            Self::AuthorityWanted { authority } => Some(Subject::Authority(authority.id)),
            Self::AuthorityMade { authority_id, .. }
            | Self::AuthorityDropped { authority_id, .. } => {
                Some(Subject::Authority(*authority_id))
            }
            Self::Opened { .. }
            | Self::BundleConfirmed { .. }
            | Self::Quarantined { .. }
            | Self::Released { .. } => None,
        }
    }

    /// The call whose outcome it is; a call has exactly one.
    #[must_use]
    pub const fn outcome_of(&self) -> Option<Call> {
        match self {
            Self::CallFailed { call, .. } | Self::CallEnded { call, .. } => Some(*call),
            Self::RequestSubmitted { .. } => Some(Call::Submit),
            Self::RequestEndorsed { .. } => Some(Call::Endorse),
            Self::CertificateAwaited { .. } => Some(Call::Collect),
            Self::EndpointsSeen { .. } => Some(Call::Probe),
            Self::RotationBegun { .. } => Some(Call::Rotate),
            Self::RotationWatched { .. } | Self::RotationDone { .. } => Some(Call::Check),
            Self::AuthorityMade { .. } => Some(Call::Make),
            // These follow the end of a call, which may be one or the other.
            Self::CertificateSigned { .. }
            | Self::RotationLost { .. }
            | Self::Opened { .. }
            | Self::CredentialRequested { .. }
            | Self::CredentialApproved { .. }
            | Self::CredentialDenied { .. }
            | Self::CredentialFailed { .. }
            | Self::CredentialIssued { .. }
            | Self::CredentialExpired { .. }
            | Self::CredentialRevoked { .. }
            | Self::CallAnnounced { .. }
            | Self::CallDeferred { .. }
            | Self::EndpointsSet { .. }
            | Self::RevocationRequested { .. }
            | Self::ProvingBegan { .. }
            | Self::RevocationCompleted { .. }
            | Self::AuthorityWanted { .. }
            | Self::AuthorityDropped { .. }
            | Self::BundleConfirmed { .. }
            | Self::Quarantined { .. }
            | Self::Released { .. } => None,
        }
    }
}
