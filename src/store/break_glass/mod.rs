//! What the service asks of its database about break-glass credentials.
//!
//! | file | subject |
//! |---|---|
//! | [`BreakGlassStore`] (here) | the questions |
//! | `commit` | what one step writes: the difference between two states |
//! | `views` | what is read |
//!
//! Keys are opaque bytes here; certificates are public and only kept.

mod commit;
mod views;

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

pub(super) use commit::Changes;
pub use commit::{BreakGlassCommit, KeyPurpose, Material};
pub use views::{
    BreakGlassPurge, CertificateKind, CredentialList, CredentialQuery, LoadedBreakGlass, OwnedKey,
};
pub(super) use views::{revocation_page, revocation_start};

use super::{Claimed, Cursor, OwnedBy, Page, SealedSecret, StoreError};
use crate::ids::{CallToken, ClusterId, CredentialId, ReplicaId, RevocationId};
use crate::state::break_glass::{Credential, Revocation, Subject};
use crate::time::Timestamp;

/// Each call is one transaction, or one snapshot.
#[async_trait]
pub trait BreakGlassStore: Send + Sync + std::fmt::Debug + 'static {
    // Steps of the machine.

    /// A cluster's working set.
    async fn load_break_glass(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<LoadedBreakGlass, StoreError>;
    /// Writes one step and answers the new version. `Conflict` means that nothing was written.
    async fn commit_break_glass(&self, commit: BreakGlassCommit<'_>) -> Result<u64, StoreError>;
    /// Takes work that is due and that no living replica owns, or this one does, the oldest first. The taker
    /// becomes the owner, and the due time moves to `push_until`.
    async fn break_glass_due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError>;
    /// Takes work, due or not, whose owner has no row any more.
    async fn break_glass_orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError>;
    /// Moves the due time of a cluster that is still at this version and epoch, and keeps or gives back its
    /// ownership; true when it was.
    async fn reschedule_break_glass(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError>;
    /// The version of a cluster's row, if there is one.
    async fn break_glass_version(&self, cluster_id: &ClusterId) -> Result<Option<u64>, StoreError>;
    /// Whether this call of this subject is still the announced one.
    async fn is_current_break_glass(
        &self,
        subject: Subject,
        token: CallToken,
    ) -> Result<bool, StoreError>;

    // Reads.

    /// One credential of this cluster, ended or not.
    async fn credential(
        &self,
        cluster_id: &ClusterId,
        credential_id: CredentialId,
    ) -> Result<Option<Credential>, StoreError>;
    /// Credentials of a cluster, controls aside, with the exact number of all that match.
    async fn list_credentials(&self, query: &CredentialQuery)
    -> Result<CredentialList, StoreError>;
    /// One revocation of this cluster, ended or not.
    async fn revocation(
        &self,
        cluster_id: &ClusterId,
        revocation_id: RevocationId,
    ) -> Result<Option<Revocation>, StoreError>;
    /// Revocations of a cluster, newest first.
    async fn list_revocations(
        &self,
        cluster_id: &ClusterId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, StoreError>;
    /// The certificates (PEM) that an owner (a credential, an authority) has.
    async fn certificates(
        &self,
        owner: Uuid,
    ) -> Result<BTreeMap<CertificateKind, String>, StoreError>;
    /// A private key.
    async fn sealed_key(
        &self,
        owner: Uuid,
        purpose: KeyPurpose,
    ) -> Result<Option<SealedSecret>, StoreError>;
    /// How many credentials are in which state; states without any are left out.
    async fn credential_counts(&self) -> Result<BTreeMap<String, u64>, StoreError>;

    /// How much is in trouble since before then, or in quarantine.
    async fn stuck_break_glass(&self, before: Timestamp) -> Result<u64, StoreError>;

    // Keys.

    /// How many private keys each key of the ring seals.
    async fn break_glass_key_census(&self) -> Result<BTreeMap<String, u64>, StoreError>;
    /// Private keys that another key than this one seals, by owner and purpose.
    async fn break_glass_sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<(Uuid, KeyPurpose)>,
        limit: u32,
    ) -> Result<Vec<OwnedKey>, StoreError>;
    /// Replaces a private key that is still as it was read; true when it was.
    async fn break_glass_reseal(
        &self,
        old: &OwnedKey,
        new: &SealedSecret,
    ) -> Result<bool, StoreError>;

    // Upkeep.

    /// Removes credentials and revocations that ended long enough ago, at most a batch of each; answers how
    /// many went. The rule is `state::break_glass::removable_at`.
    async fn purge_break_glass(&self, before: BreakGlassPurge) -> Result<u64, StoreError>;
}
