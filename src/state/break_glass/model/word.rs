//! The states' words: our own, and what each surface calls them.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

/// The states of a credential, as the database, the audit and metrics spell them.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are those of CredentialState")]
pub enum StateName {
    Requested,
    Accepted,
    Issuing,
    Active,
    AwaitingRevocation,
    Revoking,
    Revoked,
    Denied,
    Failed,
    Expired,
}

/// The interfaces that show credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Surface {
    /// `clusters_mgmt/v1`, whose clients break on words that they do not know.
    ClustersMgmt,
    /// `aro_hcp/v1alpha1`.
    AroHcp,
}

/// A state as a surface spells it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the words speak for themselves")]
pub enum Word {
    Created,
    Issuing,
    Issued,
    AwaitingRevocation,
    Revoking,
    Revoked,
    Denied,
    Failed,
    Expired,
}

impl StateName {
    /// What a surface calls it.
    #[must_use]
    pub const fn word(self, surface: Surface) -> Word {
        match (self, surface) {
            (Self::Requested | Self::Accepted, _) => Word::Created,
            (Self::Issuing, Surface::ClustersMgmt) => Word::Created,
            (Self::Issuing, Surface::AroHcp) => Word::Issuing,
            (Self::Active, _) => Word::Issued,
            (Self::AwaitingRevocation, _) => Word::AwaitingRevocation,
            (Self::Revoking, Surface::ClustersMgmt) => Word::AwaitingRevocation,
            (Self::Revoking, Surface::AroHcp) => Word::Revoking,
            (Self::Revoked, _) => Word::Revoked,
            (Self::Denied, Surface::ClustersMgmt) => Word::Failed,
            (Self::Denied, Surface::AroHcp) => Word::Denied,
            (Self::Failed, _) => Word::Failed,
            (Self::Expired, _) => Word::Expired,
        }
    }

    /// True when nothing happens to it any more, retention aside.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Revoked | Self::Denied | Self::Failed | Self::Expired => true,
            Self::Requested
            | Self::Accepted
            | Self::Issuing
            | Self::Active
            | Self::AwaitingRevocation
            | Self::Revoking => false,
        }
    }

    /// True while it may still become a working credential.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        match self {
            Self::Requested | Self::Accepted | Self::Issuing => true,
            Self::Active
            | Self::AwaitingRevocation
            | Self::Revoking
            | Self::Revoked
            | Self::Denied
            | Self::Failed
            | Self::Expired => false,
        }
    }
}
