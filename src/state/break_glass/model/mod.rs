//! The words of break-glass: a cluster's credentials, their revocations, the authorities beside them.
//!
//! Only data and questions about it. What may change it is in `accept` and `advance`.

mod authority;
mod credential;
mod revocation;
mod word;

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

pub use authority::{Authority, AuthorityKind};
pub use credential::{Certificate, Credential, CredentialState, EndpointProgress, IssueStep};
pub use revocation::{Revocation, RevocationScope, RevocationState};
pub use word::{StateName, Surface, Word};

use crate::ids::{AuthorityId, ClusterId, CredentialId, RevocationId};
use crate::state::shared::Quarantine;
use crate::time::Timestamp;

/// A call of this machine that is running.
pub type Announcement = crate::state::shared::Announcement<Call>;

/// Everything that is going on with one cluster's break-glass credentials, history aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakGlass {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Credentials that have not ended, whose call is still running, or that ended in the step being
    /// decided.
    pub credentials: Vec<Credential>,
    /// Revocations that are running, and those that ended in the step being decided.
    pub revocations: Vec<Revocation>,
    /// Authorities that no credential owns.
    pub authorities: Vec<Authority>,
    /// Raised whenever the set of trusted authorities changes.
    pub bundle_version: u64,
    /// The latest version that an adapter has confirmed.
    pub confirmed_version: u64,
    /// Set while the credentials' own code keeps failing.
    pub quarantine: Option<Quarantine>,
    /// When the cluster first had to do with break-glass.
    pub created_at: Timestamp,
}

/// Who signs.
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
pub enum Signer {
    /// The embedded one: an authority for each credential.
    LocalCa,
    /// HyperShift's control-plane-pki-operator: one authority for all.
    KubernetesCsr,
}

impl Signer {
    /// Whether one credential can be revoked without the others.
    #[must_use]
    pub const fn revokes_one(self) -> bool {
        match self {
            Self::LocalCa => true,
            Self::KubernetesCsr => false,
        }
    }

    /// How many credentials of one cluster may live at once.
    #[must_use]
    pub const fn most_live(self) -> Option<usize> {
        match self {
            Self::LocalCa => Some(64),
            Self::KubernetesCsr => None,
        }
    }
}

/// What a call is made for. At most one call per subject runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each names what it is the id of")]
pub enum Subject {
    Credential(CredentialId),
    Revocation(RevocationId),
    Authority(AuthorityId),
}

/// The calls to a signer and to API servers.
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
pub enum Call {
    /// Gives the signer the request. A repetition names the same request. The embedded signer signs at once.
    Submit,
    /// Says that the request is approved.
    Endorse,
    /// Fetches the certificate, when there is one.
    Collect,
    /// Asks every API server whether it accepts what the subject is about.
    Probe,
    /// Asks the signer to rotate its authority.
    Rotate,
    /// Asks how far that is.
    Check,
    /// Makes an authority of our own.
    Make,
}

impl BreakGlass {
    /// A cluster that has nothing yet.
    #[must_use]
    pub const fn new(cluster_id: ClusterId, at: Timestamp) -> Self {
        Self {
            cluster_id,
            credentials: Vec::new(),
            revocations: Vec::new(),
            authorities: Vec::new(),
            bundle_version: 0,
            confirmed_version: 0,
            quarantine: None,
            created_at: at,
        }
    }

    /// The credential with this id.
    #[must_use]
    pub fn credential(&self, id: CredentialId) -> Option<&Credential> {
        self.credentials.iter().find(|credential| credential.id == id)
    }

    /// The revocation with this id.
    #[must_use]
    pub fn revocation(&self, id: RevocationId) -> Option<&Revocation> {
        self.revocations.iter().find(|revocation| revocation.id == id)
    }

    /// The running revocation of all credentials. While there is one, nothing is issued.
    #[must_use]
    pub fn fence(&self) -> Option<&Revocation> {
        let all = |revocation: &&Revocation| revocation.scope == RevocationScope::All;
        self.revocations.iter().filter(all).find(|revocation| revocation.is_running())
    }

    /// Credentials that have not ended.
    pub fn live(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.iter().filter(|credential| !credential.state.name().is_ended())
    }

    /// What a revocation is still about.
    pub fn revoked_by(&self, id: RevocationId) -> impl Iterator<Item = &Credential> {
        self.credentials.iter().filter(move |credential| match credential.state {
            CredentialState::AwaitingRevocation { revocation }
            | CredentialState::Revoking { revocation } => revocation == id,
            CredentialState::Requested
            | CredentialState::Accepted
            | CredentialState::Issuing { .. }
            | CredentialState::Active
            | CredentialState::Revoked { .. }
            | CredentialState::Denied
            | CredentialState::Failed
            | CredentialState::Expired => false,
        })
    }

    /// The running call of a subject.
    #[must_use]
    pub fn call_of(&self, subject: Subject) -> Option<Announcement> {
        match subject {
            Subject::Credential(id) => self.credential(id)?.call,
            Subject::Revocation(id) => self.revocation(id)?.call,
            Subject::Authority(id) => self.authorities.iter().find(|a| a.id == id)?.call,
        }
    }

    /// Every running call.
    pub fn calls(&self) -> impl Iterator<Item = (Subject, Announcement)> {
        let credentials = self.credentials.iter().map(|c| (Subject::Credential(c.id), c.call));
        let revocations = self.revocations.iter().map(|r| (Subject::Revocation(r.id), r.call));
        let authorities = self.authorities.iter().map(|a| (Subject::Authority(a.id), a.call));
        let all = credentials.chain(revocations).chain(authorities);
        all.filter_map(|(subject, call)| Some((subject, call?)))
    }

    /// Drops what only the step just stored needed.
    #[must_use]
    pub fn compact(mut self) -> Self {
        self.credentials.retain(|c| !c.state.name().is_ended() || c.call.is_some());
        self.revocations.retain(|r| r.is_running() || r.call.is_some());
        self.authorities.retain(|a| !a.dropped);
        self
    }
}
