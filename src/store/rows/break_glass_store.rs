//! The break-glass store over one database: which question is which transaction.

/// Implements [`BreakGlassStore`](crate::store::break_glass::BreakGlassStore) with the functions of a backend's
/// `break_glass` module. `reading` and `writing` begin a transaction, `read` and `written` end it.
macro_rules! break_glass_store {
    ($store:ty) => {
        use std::collections::BTreeMap;

        use async_trait::async_trait;
        use uuid::Uuid;

        use super::break_glass;
        use crate::ids::{CallToken, ClusterId, CredentialId, ReplicaId, RevocationId};
        use crate::state::break_glass::{Credential, Revocation, Subject};
        use crate::store::break_glass::{
            BreakGlassCommit, BreakGlassPurge, BreakGlassStore, CertificateKind, Changes,
            CredentialList, CredentialQuery, KeyPurpose, LoadedBreakGlass, OwnedKey,
            revocation_page, revocation_start,
        };
        use crate::store::rows::break_glass_sql as sql;
        use crate::store::{Claimed, Cursor, OwnedBy, Page, SealedSecret, StoreError};
        use crate::time::Timestamp;

        #[async_trait]
        impl BreakGlassStore for $store {
            async fn load_break_glass(
                &self,
                cluster_id: &ClusterId,
            ) -> Result<LoadedBreakGlass, StoreError> {
                let mut tx = reading(self).await?;
                let loaded = break_glass::load(&mut tx, cluster_id).await;
                read(tx, loaded).await
            }

            async fn commit_break_glass(
                &self,
                commit: BreakGlassCommit<'_>,
            ) -> Result<u64, StoreError> {
                let changes = Changes::between(&commit)?;
                let mut tx = writing(self).await?;
                let done = match break_glass::write_step(&mut tx, &commit, &changes).await {
                    Ok(version) => tell(&mut tx, &commit, self.seal()).await.map(|()| version),
                    Err(error) => Err(error),
                };
                written(tx, done).await
            }

            async fn break_glass_due(
                &self,
                now: Timestamp,
                limit: u32,
                push_until: Timestamp,
                taker: ReplicaId,
            ) -> Result<Vec<Claimed>, StoreError> {
                due(self, now, limit, push_until, taker).await
            }

            async fn break_glass_orphans(
                &self,
                limit: u32,
                push_until: Timestamp,
                taker: ReplicaId,
            ) -> Result<Vec<Claimed>, StoreError> {
                orphans(self, limit, push_until, taker).await
            }

            async fn reschedule_break_glass(
                &self,
                cluster_id: &ClusterId,
                version: u64,
                due_at: Option<Timestamp>,
                ownership: OwnedBy,
            ) -> Result<bool, StoreError> {
                let mut tx = writing(self).await?;
                let set =
                    break_glass::reschedule(&mut tx, cluster_id, version, due_at, ownership).await;
                written(tx, set).await
            }

            async fn break_glass_version(
                &self,
                cluster_id: &ClusterId,
            ) -> Result<Option<u64>, StoreError> {
                let mut tx = reading(self).await?;
                let version = break_glass::version(&mut tx, cluster_id).await;
                read(tx, version).await
            }

            async fn is_current_break_glass(
                &self,
                subject: Subject,
                token: CallToken,
            ) -> Result<bool, StoreError> {
                let mut tx = reading(self).await?;
                let current = break_glass::is_current(&mut tx, subject, token).await;
                read(tx, current).await
            }

            async fn credential(
                &self,
                cluster_id: &ClusterId,
                credential_id: CredentialId,
            ) -> Result<Option<Credential>, StoreError> {
                let mut tx = reading(self).await?;
                let found = break_glass::credential(&mut tx, cluster_id, credential_id).await;
                read(tx, found).await
            }

            async fn list_credentials(
                &self,
                query: &CredentialQuery,
            ) -> Result<CredentialList, StoreError> {
                let mut tx = reading(self).await?;
                let list = break_glass::list(&mut tx, query).await;
                read(tx, list).await
            }

            async fn revocation(
                &self,
                cluster_id: &ClusterId,
                revocation_id: RevocationId,
            ) -> Result<Option<Revocation>, StoreError> {
                let mut tx = reading(self).await?;
                let found = break_glass::revocation(&mut tx, cluster_id, revocation_id).await;
                read(tx, found).await
            }

            async fn list_revocations(
                &self,
                cluster_id: &ClusterId,
                cursor: Option<&Cursor>,
                limit: u32,
            ) -> Result<Page<Revocation>, StoreError> {
                let start = revocation_start(cursor)?;
                let mut tx = reading(self).await?;
                let found = break_glass::revocations(&mut tx, cluster_id, start, limit).await;
                let (items, total) = read(tx, found).await?;
                Ok(revocation_page(items, limit, total))
            }

            async fn certificates(
                &self,
                owner: Uuid,
            ) -> Result<BTreeMap<CertificateKind, String>, StoreError> {
                let mut tx = reading(self).await?;
                let found = break_glass::certificates(&mut tx, owner).await;
                read(tx, found).await
            }

            async fn sealed_key(
                &self,
                owner: Uuid,
                purpose: KeyPurpose,
            ) -> Result<Option<SealedSecret>, StoreError> {
                let mut tx = reading(self).await?;
                let found = break_glass::key(&mut tx, owner, purpose).await;
                read(tx, found).await
            }

            async fn credential_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
                let mut tx = reading(self).await?;
                let counts = break_glass::counts(&mut tx, sql::CREDENTIAL_COUNTS).await;
                read(tx, counts).await
            }

            async fn stuck_break_glass(&self, before: Timestamp) -> Result<u64, StoreError> {
                let mut tx = reading(self).await?;
                let count = break_glass::stuck(&mut tx, before).await;
                read(tx, count).await
            }

            async fn break_glass_key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
                let mut tx = reading(self).await?;
                let counts = break_glass::counts(&mut tx, sql::KEY_CENSUS).await;
                read(tx, counts).await
            }

            async fn break_glass_sealed_otherwise(
                &self,
                key_id: &str,
                after: Option<(Uuid, KeyPurpose)>,
                limit: u32,
            ) -> Result<Vec<OwnedKey>, StoreError> {
                let mut tx = reading(self).await?;
                let keys = break_glass::sealed_otherwise(&mut tx, key_id, after, limit).await;
                read(tx, keys).await
            }

            async fn break_glass_reseal(
                &self,
                old: &OwnedKey,
                new: &SealedSecret,
            ) -> Result<bool, StoreError> {
                let mut tx = writing(self).await?;
                let done = break_glass::reseal(&mut tx, old, new).await;
                written(tx, done).await
            }

            async fn purge_break_glass(&self, before: BreakGlassPurge) -> Result<u64, StoreError> {
                let mut tx = writing(self).await?;
                let purged = break_glass::purge(&mut tx, before).await;
                written(tx, purged).await
            }
        }
    };
}
pub(in crate::store) use break_glass_store;
