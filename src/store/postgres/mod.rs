//! PostgreSQL, for any number of replicas; see `replicas`.
//!
//! Any number of connections write at once, and PgBouncer in transaction mode may stand between: no call needs
//! a session (`open`, `transaction`). What SQLite's single writer gives for free, row locks give here: a commit
//! begins with its cluster's row, an append to the audit with its stream's head, a claim passes over what is
//! locked.

mod account;
mod attention;
mod audit;
mod break_glass;
mod break_glass_store;
mod campaigns;
mod commit;
mod due;
mod error;
mod fleet;
mod hints;
mod idempotency;
mod ledger;
mod open;
mod read;
mod record;
mod replicas;
mod rotation;
mod rotations;
mod sweep;
mod time;
mod transaction;
mod turns;
mod upkeep;
mod usage;
mod wake;

#[cfg(test)]
mod plans;
#[cfg(test)]
#[path = "../../../tests/integration/support/postgres.rs"]
#[allow(dead_code, reason = "shared with the integration tests, which need more of it")]
mod server;
#[cfg(test)]
mod sessions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::PgPool;
use uuid::Uuid;

use super::{
    AttentionFilter, AttentionItem, AuditCheckpoint, AuditEvent, AuditFilter, AuditRow, AuditSeal,
    AuditStream, Claimed, Commit, Cursor, Described, Hint, IdempotencyAnswer, IdempotencyKey,
    IdempotencyStart, IdempotencyState, Listening, Loaded, OwnedBy, Page, Presented,
    PullSecretFilter, PullSecretRow, PurgeBefore, Purged, ReplicaRow, Reseal, RotationDetail,
    RotationFilter, RotationRow, SealedSecret, ServedView, Store, StoreError, StuckAfter,
    TroubleCounts, UsageCandidate, UsageScope,
};
use crate::ids::{AccountId, CallToken, ClusterId, RegistryId, ReplicaId, RotationId};
use crate::state::pull_secret::StateName;
use crate::time::Timestamp;

/// The store over one PostgreSQL database.
#[derive(Debug)]
pub struct PgStore {
    pool: PgPool,
    /// One connection that work cannot use up: whoever cannot say that it lives is taken for dead.
    own: PgPool,
    url: SecretString,
    seal: Option<Arc<dyn AuditSeal>>,
}

impl PgStore {
    /// Connects. The schema is left as it is: see [`Store::migrate`] and [`Store::check_schema`]. TLS is the
    /// address' `sslmode` and `sslrootcert`.
    ///
    /// # Errors
    /// `Url` for a strange address, `Unavailable` when the server does not answer.
    pub async fn open(url: &str, connections: u32) -> Result<Self, StoreError> {
        let pool = open::open(url, connections).await?;
        let own = open::lazily(url, 1)?;
        Ok(Self { pool, own, url: url.into(), seal: None })
    }

    /// From now on the rows of the audit are chained with this key.
    #[must_use]
    pub fn with_audit_seal(mut self, seal: Arc<dyn AuditSeal>) -> Self {
        self.seal = Some(seal);
        self
    }

    fn seal(&self) -> Option<&dyn AuditSeal> {
        self.seal.as_deref()
    }

    /// Whether this program can work with what answers at the address.
    ///
    /// # Errors
    /// `Unworkable` for a standby, or a pooler that knows no transactions.
    pub async fn check_server(&self) -> Result<(), StoreError> {
        open::check_server(&self.pool).await
    }
}

#[async_trait]
impl Store for PgStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        upkeep::migrate(&self.pool).await
    }

    async fn schema_version(&self) -> Result<i64, StoreError> {
        upkeep::schema_version(&self.pool).await
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        upkeep::check_schema(&self.pool).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        upkeep::ping(&self.pool).await
    }

    async fn claim_installation(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        upkeep::claim_installation(&self.pool, id, now).await
    }

    async fn close(&self) {
        self.own.close().await;
        self.pool.close().await;
    }

    async fn load(&self, cluster_id: &ClusterId) -> Result<Loaded, StoreError> {
        read::load(&self.pool, cluster_id).await
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<u64, StoreError> {
        commit::commit(&self.pool, &commit, self.seal()).await
    }

    async fn due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        due::due(&self.pool, due::TAKE, now, limit, push_until, taker).await
    }

    async fn orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        due::orphans(&self.pool, due::TAKE_ORPHANS, limit, push_until, taker).await
    }

    async fn due_count(&self, now: Timestamp) -> Result<u64, StoreError> {
        due::due_count(&self.pool, now).await
    }

    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        due::reschedule(&self.pool, cluster_id, version, due_at, ownership).await
    }

    async fn is_current(
        &self,
        account_id: AccountId,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        due::is_current(&self.pool, account_id, token).await
    }

    async fn join(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        replicas::join(&self.own, replica_id, key_ids, now).await
    }

    async fn beat(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        now: Timestamp,
    ) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
        replicas::beat(&self.own, replica_id, key_ids, now).await
    }

    async fn bury(&self, replica_id: ReplicaId, counter: u64) -> Result<bool, StoreError> {
        replicas::bury(&self.own, replica_id, counter).await
    }

    async fn release(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        replicas::release(&self.own, replica_id, now).await
    }

    async fn leave(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        replicas::leave(&self.own, replica_id, now).await
    }

    async fn owned_count(&self, replica_id: ReplicaId) -> Result<u64, StoreError> {
        replicas::owned_count(&self.pool, replica_id).await
    }

    async fn tell(&self, hint: &Hint) -> Result<(), StoreError> {
        hints::tell(&self.pool, &hint.to_string()).await
    }

    async fn listen(&self) -> Result<Listening, StoreError> {
        hints::listen(open::lazily(self.url.expose_secret(), 1)?, &self.pool).await
    }

    async fn version_of(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<Option<(u64, StateName)>, StoreError> {
        read::version_of(&self.pool, cluster_id).await
    }

    async fn served(&self, cluster_id: &ClusterId) -> Result<Option<ServedView>, StoreError> {
        read::served(&self.pool, cluster_id).await
    }

    async fn described(&self, cluster_id: &ClusterId) -> Result<Described, StoreError> {
        read::described(&self.pool, cluster_id).await
    }

    async fn presented(
        &self,
        cluster_id: &ClusterId,
        username: &str,
        consumer: &str,
    ) -> Result<Vec<Presented>, StoreError> {
        read::presented(&self.pool, cluster_id, username, consumer).await
    }

    async fn secret(&self, account_id: AccountId) -> Result<Option<SealedSecret>, StoreError> {
        read::secret(&self.pool, account_id).await
    }

    async fn rotation(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Result<Option<RotationDetail>, StoreError> {
        read::rotation(&self.pool, cluster_id, rotation_id).await
    }

    async fn list_rotations(
        &self,
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RotationRow>, StoreError> {
        rotations::list(&self.pool, filter, cursor, limit).await
    }

    async fn list_pull_secrets(
        &self,
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PullSecretRow>, StoreError> {
        fleet::list(&self.pool, filter, cursor, limit).await
    }

    async fn attention(
        &self,
        filter: &AttentionFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AttentionItem>, StoreError> {
        attention::list(&self.pool, filter, cursor, limit).await
    }

    async fn state_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.pool, fleet::STATES).await
    }

    async fn phase_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.pool, fleet::PHASES).await
    }

    async fn trouble_counts(
        &self,
        now: Timestamp,
        stuck_after: StuckAfter,
    ) -> Result<TroubleCounts, StoreError> {
        attention::counts(&self.pool, now, stuck_after).await
    }

    async fn begin_idempotent(
        &self,
        start: &IdempotencyStart,
    ) -> Result<IdempotencyState, StoreError> {
        idempotency::begin(&self.pool, start).await
    }

    async fn answer_idempotent(&self, answer: &IdempotencyAnswer) -> Result<(), StoreError> {
        idempotency::answer_alone(&self.pool, answer).await
    }

    async fn release_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
    ) -> Result<(), StoreError> {
        idempotency::release(&self.pool, key, holder).await
    }

    async fn correct_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
        status: Option<u16>,
    ) -> Result<(), StoreError> {
        idempotency::correct(&self.pool, key, holder, status).await
    }

    async fn record_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError> {
        audit::record(&self.pool, rows, self.seal()).await
    }

    async fn list_audit(
        &self,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEvent>, StoreError> {
        audit::list(&self.pool, filter, cursor, limit).await
    }

    async fn checkpoint_audit(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditCheckpoint>, StoreError> {
        ledger::checkpoint(&self.pool, now, limit, self.seal()).await
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: u32,
    ) -> Result<u64, StoreError> {
        ledger::prune(&self.pool, before, now, batch, self.seal()).await
    }

    async fn next_audit_stream(&self, after: &str) -> Result<Option<String>, StoreError> {
        ledger::next_stream(&self.pool, after).await
    }

    async fn audit_stream(&self, stream: &str) -> Result<AuditStream, StoreError> {
        ledger::stream(&self.pool, stream).await
    }

    async fn walk_audit(
        &self,
        stream: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        ledger::walk(&self.pool, stream, after, limit).await
    }

    async fn key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.pool, upkeep::CENSUS).await
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, SealedSecret)>, StoreError> {
        upkeep::sealed_otherwise(&self.pool, key_id, after, limit).await
    }

    async fn reseal(&self, batch: &[Reseal]) -> Result<u64, StoreError> {
        upkeep::reseal(&self.pool, batch).await
    }

    async fn wake_busy(&self, now: Timestamp) -> Result<u64, StoreError> {
        wake::busy(&self.pool, now).await
    }

    async fn claim_usage(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration,
    ) -> Result<Option<Option<Timestamp>>, StoreError> {
        usage::claim(&self.pool, registry_id, scope, now, pause).await
    }

    async fn usage_read(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        usage::done(&self.pool, registry_id, scope, until).await
    }

    async fn usage_candidates(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<UsageCandidate>, StoreError> {
        usage::candidates(&self.pool, registry_id, scope, after, limit).await
    }

    async fn purge(&self, before: PurgeBefore) -> Result<Purged, StoreError> {
        upkeep::purge(&self.pool, before).await
    }
}
