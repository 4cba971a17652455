//! A store that tells the metrics how long each operation took. Changes nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::ids::{AccountId, CallToken, CampaignId, ClusterId, RotationId};
use crate::state::campaign::{Load, MemberStatus};
use crate::state::pull_secret::StateName;
use crate::store::{
    AttentionFilter, AttentionItem, AuditCheckpoint, AuditEvent, AuditFilter, AuditRow,
    AuditStream, Campaign, CampaignChange, CampaignMember, Campaigns, Commit, Cursor, Described,
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, Loaded, MemberResult,
    NewCampaign, Page, Presented, PullSecretFilter, PullSecretRow, PurgeBefore, Purged, Reseal,
    RotationDetail, RotationFilter, RotationRow, RunningMember, SealedSecret, ServedView, Store,
    StoreError, TroubleCounts, TurnRank, Turns,
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

/// Every operation goes through under its own name, which is also the label `op`.
macro_rules! measured {
    ($trait:ident { $($more:tt)* } $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl $trait for Measured {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                let began = Instant::now();
                let answer = self.store.$name($($arg),*).await;
                self.metrics.db(stringify!($name), began.elapsed());
                answer
            })*

            $($more)*
        }
    };
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
        rotations: &[RotationId],
        now: Timestamp
    ) -> Vec<(ClusterId, RotationId)>;
    settle_members(id: CampaignId, results: &[MemberResult], now: Timestamp) -> u64;
    campaign_load(id: CampaignId, now: Timestamp) -> Load;
}

measured! {
    Store {
        async fn close(&self) {
            self.store.close().await;
        }
    }
    migrate() -> ();
    schema_version() -> i64;
    check_schema() -> ();
    ping() -> ();
    claim_installation(id: &str, now: Timestamp) -> ();
    hold_alone() -> ();
    load(cluster_id: &ClusterId) -> Loaded;
    commit(commit: Commit<'_>) -> u64;
    due(now: Timestamp, limit: u32, push_until: Timestamp) -> Vec<ClusterId>;
    due_count(now: Timestamp) -> u64;
    reschedule(cluster_id: &ClusterId, version: u64, due_at: Option<Timestamp>) -> bool;
    is_current(account_id: AccountId, token: CallToken) -> bool;
    clusters_with_open_calls() -> Vec<ClusterId>;
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
    trouble_counts(now: Timestamp, stuck_after: Duration) -> TroubleCounts;
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
    purge(before: PurgeBefore) -> Purged;
}
