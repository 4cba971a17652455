//! What is read of break-glass credentials, one shape per question.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::super::SealedSecret;
use super::super::search::{Order, Search};
use super::KeyPurpose;
use crate::ids::ClusterId;
use crate::state::break_glass::{BreakGlass, Credential, Surface};
use crate::time::Timestamp;

/// A cluster's working set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedBreakGlass {
    /// What is going on; `None` for a cluster that never had anything.
    pub record: Option<BreakGlass>,
    /// The row version that the next write is guarded by; 0 for the first one.
    pub version: u64,
}

/// Which credentials, in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialQuery {
    /// Of which cluster.
    pub cluster_id: ClusterId,
    /// Whose words states are ordered by.
    pub surface: Surface,
    /// Which of them; all without one.
    pub search: Option<Search>,
    /// In which order; behind it always by id, which is the order in which they were asked for.
    pub order: Vec<Order>,
    /// How many are left out before the first.
    pub offset: u64,
    /// At most so many; all without one.
    pub limit: Option<u32>,
}

/// A page of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialList {
    /// Those of the page.
    pub items: Vec<Credential>,
    /// How many match in all.
    pub total: u64,
}

/// The public texts (PEM) that an owner may have.
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
pub enum CertificateKind {
    /// The credential's own certificate.
    Credential,
    /// The authority that signed it, for the trust bundle.
    Authority,
    /// The certificate of a probe, or of a control's login.
    Probe,
    /// The signing request that every repetition gives.
    SigningRequest,
}

/// A sealed private key and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedKey {
    /// Of which credential or authority.
    pub owner: Uuid,
    /// What it opens.
    pub purpose: KeyPurpose,
    /// The bytes.
    pub sealed: SealedSecret,
}

/// What has ended before these times may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakGlassPurge {
    /// Denied credentials.
    pub denied_before: Timestamp,
    /// Failed ones.
    pub failed_before: Timestamp,
    /// Revoked and expired ones, and revocations.
    pub history_before: Timestamp,
    /// At most so many rows of each kind.
    pub batch: u32,
}
