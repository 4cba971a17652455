//! What is read of break-glass credentials, one shape per question.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::super::cursor::Key;
use super::super::search::{Order, Search};
use super::super::{Cursor, CursorError, OwnedBy, Page, SealedSecret, StoreError};
use super::KeyPurpose;
use crate::ids::ClusterId;
use crate::state::break_glass::{BreakGlass, Credential, Revocation, StateName, Surface};
use crate::time::Timestamp;

/// A cluster's working set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedBreakGlass {
    /// What is going on; `None` for a cluster that never had anything.
    pub record: Option<BreakGlass>,
    /// The row version that the next write is guarded by; 0 for the first one.
    pub version: u64,
    /// Who may make its calls.
    pub ownership: OwnedBy,
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

impl BreakGlassPurge {
    /// Before when a credential in which state may go.
    pub(in crate::store) const fn states(&self) -> [(StateName, Timestamp); 4] {
        [
            (StateName::Denied, self.denied_before),
            (StateName::Failed, self.failed_before),
            (StateName::Revoked, self.history_before),
            (StateName::Expired, self.history_before),
        ]
    }
}

/// Where a page of revocations begins: before this time and id.
pub(in crate::store) fn revocation_start(
    cursor: Option<&Cursor>,
) -> Result<(Timestamp, Uuid), StoreError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok((Timestamp::from_micros(i64::MAX), Uuid::max())),
        Some(Key::Revocation { at, id }) => Ok((Timestamp::from_micros(*at), *id)),
        Some(
            Key::Rotation { .. }
            | Key::PullSecret { .. }
            | Key::Attention { .. }
            | Key::Audit { .. }
            | Key::Campaign { .. }
            | Key::Member { .. },
        ) => Err(CursorError::OtherList.into()),
    }
}

/// Cuts the one row too many.
pub(in crate::store) fn revocation_page(
    items: Vec<Revocation>,
    limit: u32,
    total: u64,
) -> Page<Revocation> {
    Page::cut(items, limit, Some(total), |row| Key::Revocation {
        at: row.created_at.as_micros(),
        id: row.id.0,
    })
}
