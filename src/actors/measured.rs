//! A store that tells the metrics how long each operation took. Changes nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::ids::{
    AccountId, CallToken, CampaignId, ClusterId, Generation, RegistryId, ReplicaId, RotationId,
};
use crate::state::campaign::{Load, MemberStatus};
use crate::state::pull_secret::StateName;
use crate::state::sweep::{Named, Serving};
use crate::store::{
    AttentionFilter, AttentionItem, AuditCheckpoint, AuditEvent, AuditFilter, AuditRow,
    AuditStream, Campaign, CampaignChange, CampaignMember, Campaigns, Claimed, Commit, Cursor,
    DeletionAnswer, DeletionCall, Described, Hint, IdempotencyAnswer, IdempotencyKey,
    IdempotencyStart, IdempotencyState, Listening, Loaded, MemberResult, NewCampaign, OwnedBy,
    Page, Presented, PullSecretFilter, PullSecretRow, PurgeBefore, Purged, ReplicaRow, Reseal,
    Restored, RotationDetail, RotationFilter, RotationRow, RunningMember, SealedSecret, ServedView,
    Store, StoreError, StuckAfter, SweepCommit, SweepState, SweepStore, SweepStored, TroubleCounts,
    TurnRank, Turns, Unavailable, UnknownAccount, UsageCandidate, UsageScope,
};
use crate::telemetry::Metrics;
use crate::time::Timestamp;

/// A store and a stopwatch.
pub struct Measured {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl Measured {
    /// Measures this store from now on.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

/// Statements end earlier by the server's own limit; this is for a server that cannot be reached any more.
const LONGEST: Duration = Duration::from_secs(30);

fn no_answer() -> StoreError {
    let detail = "the database did not answer in time".to_owned();
    StoreError::Unavailable { reason: Unavailable::Io, detail }
}

/// Every operation goes through under its own name, which is also the label `op`.
macro_rules! measured {
    ($trait:ident { $($more:tt)* } $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl $trait for Measured {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                let began = Instant::now();
                let work = tokio::time::timeout(LONGEST, self.store.$name($($arg),*)).await;
                let answer = work.unwrap_or_else(|_| Err(no_answer()));
                self.metrics.db(stringify!($name), began.elapsed());
                answer
            })*

            $($more)*
        }
    };
}

measured! {
    SweepStore {}
    plan_sweeps(plans: &[(RegistryId, Timestamp)]) -> ();
    due_sweeps(now: Timestamp) -> Vec<RegistryId>;
    begin_sweep(
        registry_id: &RegistryId,
        holder: uuid::Uuid,
        now: Timestamp,
        until: Timestamp,
        only_due: bool
    ) -> bool;
    abandon_sweep(
        registry_id: &RegistryId,
        holder: uuid::Uuid,
        now: Timestamp,
        failure: Option<(Timestamp, &str)>
    ) -> ();
    end_sweep(commit: &SweepCommit<'_>) -> SweepStored;
    sweep_states() -> Vec<SweepState>;
    named_accounts(registry_id: &RegistryId, names: &[String]) -> Vec<Named>;
    serving_accounts(registry_id: &RegistryId, after: &str, limit: u32) -> Vec<Serving>;
    generation_counters(clusters: &[ClusterId]) -> Vec<(ClusterId, Generation)>;
    slug_counters(slugs: &[String]) -> Vec<(String, Generation)>;
    unknown_accounts(registry_id: &RegistryId, after: &str, limit: u32) -> Vec<UnknownAccount>;
    due_deletions(registry_id: &RegistryId, now: Timestamp, limit: u32) -> Vec<UnknownAccount>;
    announce_deletion(call: &DeletionCall, audit: &AuditRow) -> bool;
    is_deletion_current(registry_id: &RegistryId, name: &str, token: CallToken) -> bool;
    answer_deletion(call: &DeletionCall, answer: &DeletionAnswer, audit: &AuditRow) -> bool;
    restored() -> Option<Restored>;
    latch_restored(at: Timestamp, reason: &str, audit: &AuditRow) -> bool;
    acknowledge_restore(at: Timestamp, by: &str, audit: &AuditRow) -> Option<Restored>;
    timeline() -> Option<String>;
    noted_timeline() -> Option<String>;
    note_timeline(timeline: &str, sweep_at: Option<Timestamp>) -> ();
}

measured! {
    Turns {}
    has_turn(cluster_id: &ClusterId, rank: TurnRank, max: u32, now: Timestamp) -> bool;
    wait_for_turn(cluster_id: &ClusterId, rank: TurnRank, now: Timestamp) -> ();
    call_turns(max: u32, now: Timestamp, until: Timestamp) -> u64;
}

measured! {
    Campaigns {}
    create_campaign(new: NewCampaign<'_>) -> ();
    campaign(id: CampaignId) -> Option<Campaign>;
    list_campaigns(cursor: Option<&Cursor>, limit: u32) -> Page<Campaign>;
    list_campaign_members(
        id: CampaignId,
        status: Option<MemberStatus>,
        cursor: Option<&Cursor>,
        limit: u32
    ) -> Page<CampaignMember>;
    change_campaign(change: CampaignChange) -> ();
    claim_campaigns(now: Timestamp, until: Timestamp, limit: u32) -> Vec<Campaign>;
    release_campaign(id: CampaignId, taken_until: Timestamp, now: Timestamp) -> ();
    gather_members(campaign: &Campaign, batch: u32) -> bool;
    running_members(id: CampaignId, limit: u32) -> Vec<RunningMember>;
    begin_members(
        id: CampaignId,
        taken_until: Timestamp,
        rotations: &[RotationId],
        now: Timestamp
    ) -> Vec<(ClusterId, RotationId)>;
    settle_members(id: CampaignId, results: &[MemberResult], now: Timestamp) -> u64;
    campaign_load(id: CampaignId, now: Timestamp) -> Load;
}

measured! {
    Store {
        /// Takes as long as it takes to find out whether anything is heard.
        async fn listen(&self) -> Result<Listening, StoreError> {
            self.store.listen().await
        }

        async fn migrate(&self) -> Result<(), StoreError> {
            self.store.migrate().await
        }

        async fn close(&self) {
            self.store.close().await;
        }
    }
    schema_version() -> i64;
    check_schema() -> ();
    ping() -> ();
    claim_installation(id: &str, now: Timestamp) -> ();
    load(cluster_id: &ClusterId) -> Loaded;
    commit(commit: Commit<'_>) -> u64;
    due(now: Timestamp, limit: u32, push_until: Timestamp, taker: ReplicaId) -> Vec<Claimed>;
    orphans(limit: u32, push_until: Timestamp, taker: ReplicaId) -> Vec<Claimed>;
    due_count(now: Timestamp) -> u64;
    reschedule(
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy
    ) -> bool;
    wake_busy(now: Timestamp) -> u64;
    is_current(account_id: AccountId, token: CallToken) -> bool;
    join(replica_id: ReplicaId, key_ids: &[String], now: Timestamp) -> ();
    beat(replica_id: ReplicaId, key_ids: &[String], now: Timestamp) -> Option<Vec<ReplicaRow>>;
    bury(replica_id: ReplicaId, counter: u64) -> bool;
    release(replica_id: ReplicaId, now: Timestamp) -> ();
    leave(replica_id: ReplicaId, now: Timestamp) -> ();
    owned_count(replica_id: ReplicaId) -> u64;
    tell(hint: &Hint) -> ();
    version_of(cluster_id: &ClusterId) -> Option<(u64, StateName)>;
    served(cluster_id: &ClusterId) -> Option<ServedView>;
    described(cluster_id: &ClusterId) -> Described;
    presented(cluster_id: &ClusterId, username: &str, consumer: &str) -> Vec<Presented>;
    secret(account_id: AccountId) -> Option<SealedSecret>;
    rotation(cluster_id: &ClusterId, rotation_id: RotationId) -> Option<RotationDetail>;
    list_rotations(
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32
    ) -> Page<RotationRow>;
    list_pull_secrets(
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32
    ) -> Page<PullSecretRow>;
    attention(filter: &AttentionFilter, cursor: Option<&Cursor>, limit: u32) -> Page<AttentionItem>;
    state_counts() -> BTreeMap<String, u64>;
    phase_counts() -> BTreeMap<String, u64>;
    trouble_counts(now: Timestamp, stuck_after: StuckAfter) -> TroubleCounts;
    begin_idempotent(start: &IdempotencyStart) -> IdempotencyState;
    answer_idempotent(answer: &IdempotencyAnswer) -> ();
    release_idempotent(key: &IdempotencyKey, holder: uuid::Uuid) -> ();
    correct_idempotent(key: &IdempotencyKey, holder: uuid::Uuid, status: Option<u16>) -> ();
    record_audit(rows: &[AuditRow]) -> ();
    checkpoint_audit(now: Timestamp, limit: u32) -> Vec<AuditCheckpoint>;
    prune_audit(before: Timestamp, now: Timestamp, batch: u32) -> u64;
    next_audit_stream(after: &str) -> Option<String>;
    audit_stream(stream: &str) -> AuditStream;
    walk_audit(stream: &str, after: u64, limit: u32) -> Vec<AuditEvent>;
    list_audit(filter: &AuditFilter, cursor: Option<&Cursor>, limit: u32) -> Page<AuditEvent>;
    key_census() -> BTreeMap<String, u64>;
    sealed_otherwise(
        key_id: &str,
        after: Option<AccountId>,
        limit: u32
    ) -> Vec<(AccountId, SealedSecret)>;
    reseal(batch: &[Reseal]) -> u64;
    claim_usage(
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration
    ) -> Option<Option<Timestamp>>;
    usage_read(registry_id: &RegistryId, scope: UsageScope, until: Timestamp) -> ();
    usage_candidates(
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32
    ) -> Vec<UsageCandidate>;
    purge(before: PurgeBefore) -> Purged;
}
