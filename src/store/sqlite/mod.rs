//! The embedded database: SQLite in one process.
//!
//! All writes go through one connection with `BEGIN IMMEDIATE`, so no write fails because another one came
//! between its read and its write; reads go through a pool of read-only connections and see the last commit.
//! A commit is on the disk when it returns (`synchronous=FULL`): an announced call must not be forgotten.

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
mod idempotency;
mod ledger;
mod open;
mod place;
mod probe;
mod read;
mod record;
mod replicas;
mod rotation;
mod rotations;
mod sweep;
mod time;
mod turns;
mod upkeep;
mod usage;
mod wake;
mod write;

#[cfg(test)]
mod plans;
#[cfg(test)]
mod trouble;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;
use uuid::Uuid;

use super::{
    AttentionFilter, AttentionItem, AuditCheckpoint, AuditEvent, AuditFilter, AuditRow, AuditSeal,
    AuditStream, Claimed, Commit, Cursor, Described, IdempotencyAnswer, IdempotencyKey,
    IdempotencyStart, IdempotencyState, Loaded, OwnedBy, Page, Presented, PullSecretFilter,
    PullSecretRow, PurgeBefore, Purged, ReplicaRow, Reseal, RotationDetail, RotationFilter,
    RotationRow, SealedSecret, ServedView, Store, StoreError, StuckAfter, TroubleCounts,
    UsageCandidate, UsageScope,
};
use crate::ids::{AccountId, CallToken, ClusterId, RegistryId, ReplicaId, RotationId};
use crate::state::pull_secret::StateName;
use crate::time::Timestamp;

/// The store over one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    reader: SqlitePool,
    seal: Option<Arc<dyn AuditSeal>>,
    /// Held until the pools are closed.
    lock: Mutex<Option<File>>,
    places: Vec<place::Place>,
    probe: probe::Probe,
}

impl SqliteStore {
    /// Opens the file for this process alone and makes it, and its directory, where they are missing. The
    /// schema is left as it is: see [`Store::migrate`] and [`Store::check_schema`].
    ///
    /// # Errors
    /// `Locked` when another process has it open, `Url` for a strange address, `Unavailable` for trouble
    /// with the file.
    pub async fn open(url: &str, readers: u32) -> Result<Self, StoreError> {
        let opened = open::open(&open::path_of(url)?, readers).await?;
        Ok(Self::of(opened))
    }

    /// Opens an existing file beside the process that writes it, or without one.
    ///
    /// # Errors
    /// `Url` for a strange address, `Unavailable` for a missing file or trouble with it.
    pub async fn open_read_only(url: &str, readers: u32) -> Result<Self, StoreError> {
        let opened = open::open_read_only(&open::path_of(url)?, readers).await?;
        Ok(Self::of(opened))
    }

    fn of(opened: open::Opened) -> Self {
        let open::Opened { writer, reader, lock, places } = opened;
        let probe = probe::Probe::default();
        Self { writer, reader, seal: None, lock: Mutex::new(lock), places, probe }
    }

    /// From now on the rows of the audit are chained with this key.
    #[must_use]
    pub fn with_audit_seal(mut self, seal: Arc<dyn AuditSeal>) -> Self {
        self.seal = Some(seal);
        self
    }

    /// The one connection that writes, as long as its file is the one at its place.
    fn writer(&self) -> Result<&SqlitePool, StoreError> {
        self.places.iter().try_for_each(place::Place::check)?;
        Ok(&self.writer)
    }

    fn seal(&self) -> Option<&dyn AuditSeal> {
        self.seal.as_deref()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        upkeep::migrate(self.writer()?).await
    }

    async fn schema_version(&self) -> Result<i64, StoreError> {
        upkeep::schema_version(&self.reader).await
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        upkeep::check_schema(&self.reader).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        upkeep::ping(&self.reader).await?;
        self.probe.writes(self.writer()?).await
    }

    async fn claim_installation(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        upkeep::claim_installation(self.writer()?, id, now).await
    }

    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    async fn load(&self, cluster_id: &ClusterId) -> Result<Loaded, StoreError> {
        read::load(&self.reader, cluster_id).await
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<u64, StoreError> {
        commit::commit(self.writer()?, &commit, self.seal()).await
    }

    async fn due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        due::due((&self.reader, self.writer()?), due::PULL_SECRETS, now, limit, push_until, taker)
            .await
    }

    async fn orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        due::orphans((&self.reader, self.writer()?), due::PULL_SECRETS, limit, push_until, taker)
            .await
    }

    async fn due_count(&self, now: Timestamp) -> Result<u64, StoreError> {
        due::due_count(&self.reader, now).await
    }

    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        due::reschedule(self.writer()?, cluster_id, version, due_at, ownership).await
    }

    async fn is_current(
        &self,
        account_id: AccountId,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        due::is_current(&self.reader, account_id, token).await
    }

    async fn join(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        replicas::join(self.writer()?, replica_id, key_ids, now).await
    }

    async fn beat(
        &self,
        replica_id: ReplicaId,
        _key_ids: &[String],
        _now: Timestamp,
    ) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
        replicas::beat(&self.reader, replica_id).await
    }

    async fn bury(&self, replica_id: ReplicaId, counter: u64) -> Result<bool, StoreError> {
        replicas::bury(self.writer()?, replica_id, counter).await
    }

    async fn release(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        replicas::release(self.writer()?, replica_id, now).await
    }

    async fn leave(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        replicas::leave(self.writer()?, replica_id, now).await
    }

    async fn owned_count(&self, replica_id: ReplicaId) -> Result<u64, StoreError> {
        replicas::owned_count(&self.reader, replica_id).await
    }

    async fn version_of(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<Option<(u64, StateName)>, StoreError> {
        read::version_of(&self.reader, cluster_id).await
    }

    async fn served(&self, cluster_id: &ClusterId) -> Result<Option<ServedView>, StoreError> {
        read::served(&self.reader, cluster_id).await
    }

    async fn described(&self, cluster_id: &ClusterId) -> Result<Described, StoreError> {
        read::described(&self.reader, cluster_id).await
    }

    async fn presented(
        &self,
        cluster_id: &ClusterId,
        username: &str,
        consumer: &str,
    ) -> Result<Vec<Presented>, StoreError> {
        read::presented(&self.reader, cluster_id, username, consumer).await
    }

    async fn secret(&self, account_id: AccountId) -> Result<Option<SealedSecret>, StoreError> {
        read::secret(&self.reader, account_id).await
    }

    async fn rotation(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Result<Option<RotationDetail>, StoreError> {
        read::rotation(&self.reader, cluster_id, rotation_id).await
    }

    async fn list_rotations(
        &self,
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RotationRow>, StoreError> {
        rotations::list(&self.reader, filter, cursor, limit).await
    }

    async fn list_pull_secrets(
        &self,
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PullSecretRow>, StoreError> {
        fleet::list(&self.reader, filter, cursor, limit).await
    }

    async fn attention(
        &self,
        filter: &AttentionFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AttentionItem>, StoreError> {
        attention::list(&self.reader, filter, cursor, limit).await
    }

    async fn state_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.reader, fleet::STATES).await
    }

    async fn phase_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.reader, fleet::PHASES).await
    }

    async fn trouble_counts(
        &self,
        now: Timestamp,
        stuck_after: StuckAfter,
    ) -> Result<TroubleCounts, StoreError> {
        attention::counts(&self.reader, now, stuck_after).await
    }

    async fn begin_idempotent(
        &self,
        start: &IdempotencyStart,
    ) -> Result<IdempotencyState, StoreError> {
        idempotency::begin(self.writer()?, start).await
    }

    async fn answer_idempotent(&self, answer: &IdempotencyAnswer) -> Result<(), StoreError> {
        let mut db = self.writer()?.acquire().await.map_err(error::map)?;
        idempotency::answer(&mut db, answer).await
    }

    async fn release_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
    ) -> Result<(), StoreError> {
        idempotency::release(self.writer()?, key, holder).await
    }

    async fn correct_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
        status: Option<u16>,
    ) -> Result<(), StoreError> {
        idempotency::correct(self.writer()?, key, holder, status).await
    }

    async fn record_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError> {
        audit::record(self.writer()?, rows, self.seal()).await
    }

    async fn list_audit(
        &self,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEvent>, StoreError> {
        audit::list(&self.reader, filter, cursor, limit).await
    }

    async fn checkpoint_audit(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditCheckpoint>, StoreError> {
        ledger::checkpoint(self.writer()?, now, limit, self.seal()).await
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: u32,
    ) -> Result<u64, StoreError> {
        ledger::prune(self.writer()?, before, now, batch, self.seal()).await
    }

    async fn next_audit_stream(&self, after: &str) -> Result<Option<String>, StoreError> {
        ledger::next_stream(&self.reader, after).await
    }

    async fn audit_stream(&self, stream: &str) -> Result<AuditStream, StoreError> {
        ledger::stream(&self.reader, stream).await
    }

    async fn walk_audit(
        &self,
        stream: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        ledger::walk(&self.reader, stream, after, limit).await
    }

    async fn key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        fleet::counts(&self.reader, upkeep::CENSUS).await
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, SealedSecret)>, StoreError> {
        upkeep::sealed_otherwise(&self.reader, key_id, after, limit).await
    }

    async fn reseal(&self, batch: &[Reseal]) -> Result<u64, StoreError> {
        upkeep::reseal(self.writer()?, batch).await
    }

    async fn wake_busy(&self, now: Timestamp) -> Result<u64, StoreError> {
        wake::busy(self.writer()?, now).await
    }

    async fn claim_usage(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration,
    ) -> Result<Option<Option<Timestamp>>, StoreError> {
        usage::claim(self.writer()?, registry_id, scope, now, pause).await
    }

    async fn usage_read(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        usage::done(self.writer()?, registry_id, scope, until).await
    }

    async fn usage_candidates(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<UsageCandidate>, StoreError> {
        usage::candidates(&self.reader, registry_id, scope, after, limit).await
    }

    async fn purge(&self, before: PurgeBefore) -> Result<Purged, StoreError> {
        upkeep::purge(self.writer()?, before).await
    }
}
