//! The same promises without a file, for tests of what stands above the store.
//!
//! Also the model that the conformance suite holds the databases against: it keeps the committed state as a
//! value, so what a database rebuilds from its rows can be compared with what was meant. Not for production:
//! it forgets everything.

mod audit;
mod break_glass;
mod campaigns;
mod commit;
mod idempotency;
mod lists;
mod reads;
mod replicas;
mod sweep;
mod turns;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::idempotency::StoredRequest;
use super::{
    AttentionFilter, AttentionItem, AuditCheckpoint, AuditEvent, AuditFilter, AuditRow, AuditSeal,
    AuditStream, Claimed, Commit, Cursor, Described, IdempotencyAnswer, IdempotencyKey,
    IdempotencyStart, IdempotencyState, Loaded, OutboxRow, OwnedBy, Page, Presented,
    PullSecretFilter, PullSecretRow, PurgeBefore, Purged, ReplicaRow, Reseal, RotationDetail,
    RotationFilter, RotationRow, SealedSecret, ServedView, Store, StoreError, StreamHead,
    StuckAfter, TroubleCounts, UsageCandidate, UsageScope,
};
use crate::ids::{
    AccountId, AccountName, CallToken, CampaignId, ClusterId, Generation, RegistryId, ReplicaId,
    RotationId,
};
use crate::state::pull_secret::{Account, AccountPhase, GoneHow, PullSecret, StateName};
use crate::time::Timestamp;

/// The store without a file.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
    seal: Option<Arc<dyn AuditSeal>>,
}

#[derive(Debug, Default)]
struct Tables {
    installation: Option<String>,
    clusters: BTreeMap<ClusterId, ClusterRow>,
    records: BTreeMap<ClusterId, Record>,
    accounts: BTreeMap<AccountId, AccountRow>,
    names: BTreeSet<(RegistryId, AccountName)>,
    secrets: BTreeMap<AccountId, SealedSecret>,
    rotations: BTreeMap<RotationId, RotationRow>,
    audit: Vec<AuditEvent>,
    last_event: i64,
    heads: BTreeMap<String, StreamHead>,
    anchored: BTreeMap<String, u64>,
    checkpoints: BTreeMap<(String, bool), AuditCheckpoint>,
    outbox: Vec<OutboxRow>,
    requests: BTreeMap<IdempotencyKey, StoredRequest>,
    sweeps: sweep::Sweeps,
    break_glass: break_glass::Tables,
    line: BTreeMap<ClusterId, turns::Waiting>,
    campaigns: BTreeMap<CampaignId, campaigns::CampaignEntry>,
    /// Counter and keys.
    replicas: BTreeMap<ReplicaId, (u64, Vec<String>)>,
    /// When a reading of use is due, and until when the last one told.
    readings: BTreeMap<(RegistryId, UsageScope), (Timestamp, Option<Timestamp>)>,
}

#[derive(Debug, Clone, Copy)]
struct ClusterRow {
    version: u64,
    last_generation: Generation,
}

#[derive(Debug, Clone)]
struct Record {
    /// The committed state, compacted.
    state: PullSecret,
    due_at: Option<Timestamp>,
    ownership: OwnedBy,
}

#[derive(Debug, Clone)]
struct AccountRow {
    position: usize,
    cluster_id: ClusterId,
    account: Account,
    how: Option<GoneHow>,
    drifted_since: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on the rows of the audit are chained with this key.
    #[must_use]
    pub fn with_audit_seal(mut self, seal: Arc<dyn AuditSeal>) -> Self {
        self.seal = Some(seal);
        self
    }

    /// No function panics while it holds the lock halfway through a change, so a poisoned one is sound.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal(&self) -> Option<&dyn AuditSeal> {
        self.seal.as_deref()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn schema_version(&self) -> Result<i64, StoreError> {
        Ok(1)
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim_installation(&self, id: &str, _now: Timestamp) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let stored = tables.installation.get_or_insert_with(|| id.to_owned()).clone();
        if stored == id {
            return Ok(());
        }
        Err(StoreError::InstallationMismatch { stored, configured: id.to_owned() })
    }

    async fn close(&self) {}

    async fn load(&self, cluster_id: &ClusterId) -> Result<Loaded, StoreError> {
        Ok(self.tables().load(cluster_id))
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<u64, StoreError> {
        self.tables().commit(&commit, self.seal())
    }

    async fn due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut tables = self.tables();
        let found = tables.claimable(now, taker);
        Ok(tables.take(found, limit, push_until, taker))
    }

    async fn orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut tables = self.tables();
        let found = tables.orphaned();
        Ok(tables.take(found, limit, push_until, taker))
    }

    async fn due_count(&self, now: Timestamp) -> Result<u64, StoreError> {
        let tables = self.tables();
        Ok(lists::number(tables.due(now).len() + tables.break_glass.due(now).len()))
    }

    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let current = tables.clusters.get(cluster_id).is_some_and(|row| row.version == version);
        let record = tables.records.get_mut(cluster_id).filter(|_| current);
        match record.filter(|record| record.ownership.epoch == ownership.epoch) {
            Some(record) => {
                record.due_at = due_at;
                record.ownership.owner = ownership.owner;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn is_current(
        &self,
        account_id: AccountId,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        let tables = self.tables();
        let call = tables.accounts.get(&account_id).and_then(|row| row.account.call);
        Ok(call.is_some_and(|call| call.token == token))
    }

    async fn join(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        _now: Timestamp,
    ) -> Result<(), StoreError> {
        self.tables().join(replica_id, key_ids);
        Ok(())
    }

    async fn beat(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        _now: Timestamp,
    ) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
        Ok(self.tables().beat(replica_id, key_ids))
    }

    async fn bury(&self, replica_id: ReplicaId, counter: u64) -> Result<bool, StoreError> {
        Ok(self.tables().bury(replica_id, counter))
    }

    async fn release(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        self.tables().give_back(replica_id, now);
        Ok(())
    }

    async fn leave(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.give_back(replica_id, now);
        tables.replicas.remove(&replica_id);
        Ok(())
    }

    async fn owned_count(&self, replica_id: ReplicaId) -> Result<u64, StoreError> {
        let tables = self.tables();
        let mine = |record: &&Record| record.ownership.owner == Some(replica_id);
        let pull_secrets = tables.records.values().filter(mine).count();
        Ok(lists::number(pull_secrets + tables.break_glass.owned(replica_id)))
    }

    async fn version_of(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<Option<(u64, StateName)>, StoreError> {
        let loaded = self.tables().load(cluster_id);
        Ok(loaded.record.map(|record| (loaded.version, record.state.name())))
    }

    async fn served(&self, cluster_id: &ClusterId) -> Result<Option<ServedView>, StoreError> {
        self.tables().served(cluster_id)
    }

    async fn described(&self, cluster_id: &ClusterId) -> Result<Described, StoreError> {
        Ok(self.tables().described(cluster_id))
    }

    async fn presented(
        &self,
        cluster_id: &ClusterId,
        username: &str,
        consumer: &str,
    ) -> Result<Vec<Presented>, StoreError> {
        Ok(self.tables().presented(cluster_id, username, consumer))
    }

    async fn secret(&self, account_id: AccountId) -> Result<Option<SealedSecret>, StoreError> {
        Ok(self.tables().secrets.get(&account_id).cloned())
    }

    async fn rotation(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Result<Option<RotationDetail>, StoreError> {
        Ok(self.tables().rotation(cluster_id, rotation_id))
    }

    async fn list_rotations(
        &self,
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RotationRow>, StoreError> {
        self.tables().list_rotations(filter, cursor, limit)
    }

    async fn list_pull_secrets(
        &self,
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PullSecretRow>, StoreError> {
        self.tables().list_pull_secrets(filter, cursor, limit)
    }

    async fn attention(
        &self,
        filter: &AttentionFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AttentionItem>, StoreError> {
        self.tables().attention(filter, cursor, limit)
    }

    async fn state_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let tables = self.tables();
        let states = tables.records.values().map(|record| record.state.state.name().to_string());
        Ok(lists::tally(states))
    }

    async fn phase_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let tables = self.tables();
        let running = tables.records.values().filter_map(|record| record.state.rotation());
        Ok(lists::tally(running.map(|rotation| rotation.phase.name().to_owned())))
    }

    async fn trouble_counts(
        &self,
        now: Timestamp,
        stuck_after: StuckAfter,
    ) -> Result<TroubleCounts, StoreError> {
        Ok(self.tables().trouble_counts(now, stuck_after))
    }

    async fn begin_idempotent(
        &self,
        start: &IdempotencyStart,
    ) -> Result<IdempotencyState, StoreError> {
        Ok(self.tables().begin(start))
    }

    async fn answer_idempotent(&self, answer: &IdempotencyAnswer) -> Result<(), StoreError> {
        self.tables().answer(answer)
    }

    async fn release_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
    ) -> Result<(), StoreError> {
        self.tables().release(key, holder);
        Ok(())
    }

    async fn correct_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: Uuid,
        status: Option<u16>,
    ) -> Result<(), StoreError> {
        self.tables().correct(key, holder, status);
        Ok(())
    }

    async fn record_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError> {
        self.tables().append_audit(rows, self.seal());
        Ok(())
    }

    async fn list_audit(
        &self,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEvent>, StoreError> {
        self.tables().list_audit(filter, cursor, limit)
    }

    async fn checkpoint_audit(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditCheckpoint>, StoreError> {
        Ok(self.tables().checkpoint_audit(now, limit, self.seal()))
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: u32,
    ) -> Result<u64, StoreError> {
        Ok(self.tables().prune_audit(before, now, batch, self.seal()))
    }

    async fn next_audit_stream(&self, after: &str) -> Result<Option<String>, StoreError> {
        Ok(self.tables().next_audit_stream(after))
    }

    async fn audit_stream(&self, stream: &str) -> Result<AuditStream, StoreError> {
        Ok(self.tables().audit_stream(stream))
    }

    async fn walk_audit(
        &self,
        stream: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        Ok(self.tables().walk_audit(stream, after, limit))
    }

    async fn key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let tables = self.tables();
        Ok(lists::tally(tables.secrets.values().map(|secret| secret.key_id.clone())))
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, SealedSecret)>, StoreError> {
        let tables = self.tables();
        let other = tables.secrets.iter().filter(|(id, secret)| {
            secret.key_id != key_id && after.is_none_or(|after| **id > after)
        });
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(other.take(limit).map(|(id, secret)| (*id, secret.clone())).collect())
    }

    async fn reseal(&self, batch: &[Reseal]) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let mut resealed = 0;
        for one in batch {
            if let Some(secret) =
                tables.secrets.get_mut(&one.account_id).filter(|secret| **secret == one.from)
            {
                *secret = one.to.clone();
                resealed += 1;
            }
        }
        Ok(resealed)
    }

    async fn wake_busy(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let mut woken = tables.break_glass.wake(now);
        for record in tables.records.values_mut().filter(|r| r.due_at.is_some_and(|at| at > now)) {
            let going = |account: &Account| {
                matches!(account.phase, AccountPhase::Deleting | AccountPhase::Burnt)
            };
            let busy = match record.state.state.name() {
                StateName::Issuing | StateName::Rotating | StateName::Revoking => true,
                StateName::Active | StateName::Revoked | StateName::Denied | StateName::Failed => {
                    record.state.accounts.iter().any(going)
                }
            };
            if busy {
                record.due_at = Some(now);
                woken += 1;
            }
        }
        Ok(woken)
    }

    async fn claim_usage(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration,
    ) -> Result<Option<Option<Timestamp>>, StoreError> {
        Ok(self.tables().claim_usage(registry_id, scope, now, pause))
    }

    async fn usage_read(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        if let Some(reading) = self.tables().readings.get_mut(&(registry_id.clone(), scope)) {
            reading.1 = Some(until);
        }
        Ok(())
    }

    async fn usage_candidates(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<UsageCandidate>, StoreError> {
        Ok(self.tables().usage_candidates(registry_id, scope, after, limit))
    }

    async fn purge(&self, before: PurgeBefore) -> Result<Purged, StoreError> {
        Ok(self.tables().purge(before))
    }
}
