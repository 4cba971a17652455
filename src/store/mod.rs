//! Rows and transactions.
//!
//! | file | subject |
//! |---|---|
//! | [`Store`] (here) | everything that the service asks of its database |
//! | `commit` | what one step writes: the difference between two states |
//! | `views` | what is read, one shape per question |
//! | `columns` | states with data of their own, laid out flat |
//! | `sweep` | what sweeps ask, a part of the store of its own |
//! | [`verify`] | whether the audit is as it was written |
//! | `campaigns` | campaigns and their members |
//! | `turns` | whose turn it is to rotate |
//! | `audit`, `idempotency`, `attention`, `cursor`, `error` | their subjects |
//! | [`break_glass`] | the same for break-glass credentials: a trait of its own |
//! | [`search`] | `search` and `order` of lists, from text to a tree |
//! | [`OwnedBy`], [`Claimed`], [`Hint`] (`replicas`) | who works on what |
//! | `rows`, `schema` | what both databases have in common |
//! | [`sqlite`] | the embedded database |
//! | [`postgres`] | PostgreSQL |
//! | [`memory`] | the same promises without a file, for tests of what stands above |
//!
//! The currency is the machine's own types. Knows no keys, registries, actors or HTTP: a secret is opaque
//! bytes here, sealed and opened elsewhere.

mod attention;
mod audit;
pub mod break_glass;
mod campaigns;
mod columns;
mod commit;
mod cursor;
mod error;
mod idempotency;
pub mod memory;
pub mod postgres;
mod replicas;
mod rows;
mod schema;
pub mod search;
pub mod sqlite;
mod sweep;
mod turns;
pub(in crate::store) mod usage;
pub mod verify;
mod views;

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

pub use attention::{AttentionFilter, AttentionItem, AttentionKind, StuckAfter, TroubleCounts};
pub use audit::{
    AuditCheckpoint, AuditEvent, AuditFilter, AuditRow, AuditSeal, AuditStream, StreamHead,
    canonical,
};
pub use campaigns::{
    Campaign, CampaignChange, CampaignMember, Campaigns, MemberResult, NewCampaign, RunningMember,
    Selector,
};
pub use commit::{Commit, OutboxRow, gone_how};
pub use cursor::{Cursor, CursorError, Page};
pub use error::{StoreError, Unavailable};
pub use idempotency::{
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, REMEMBERED,
};
pub use memory::MemoryStore;
pub use postgres::PgStore;
pub use replicas::{Claimed, Hint, Hints, Listening, OwnedBy, ReplicaRow};
pub use sqlite::SqliteStore;
pub use sweep::{
    Deletion, DeletionAnswer, DeletionCall, Restored, SweepCommit, SweepState, SweepStore,
    SweepStored, SweepSummary, UnknownAccount,
};
pub use turns::{Turn, TurnRank, Turns};
pub use usage::{UsageCandidate, UsageScope};
pub use views::{
    Described, Loaded, Presented, PullSecretFilter, PullSecretRow, PurgeBefore, Purged, Reseal,
    RotationBrief, RotationDetail, RotationFilter, RotationRow, SealedSecret, ServedCredential,
    ServedView,
};

use crate::ids::{AccountId, CallToken, ClusterId, RegistryId, ReplicaId, RotationId};
use crate::state::pull_secret::StateName;
use crate::time::Timestamp;

/// Everything that the service asks of its database. Each call is one transaction, or one snapshot.
#[async_trait]
pub trait Store: SweepStore + Turns + Campaigns + Send + Sync + std::fmt::Debug + 'static {
    // The database itself.

    /// Brings the schema to this program's version.
    async fn migrate(&self) -> Result<(), StoreError>;
    /// The version of the schema, 0 for an empty database.
    async fn schema_version(&self) -> Result<i64, StoreError>;
    /// Fails with `NotMigrated` or `SchemaTooNew` unless the schema is this program's.
    async fn check_schema(&self) -> Result<(), StoreError>;
    /// Whether the database answers and takes writes.
    async fn ping(&self) -> Result<(), StoreError>;
    /// Says whose the database is. The first one decides, everybody else has to agree.
    async fn claim_installation(&self, id: &str, now: Timestamp) -> Result<(), StoreError>;
    /// Finishes what is under way and lets go of the database.
    async fn close(&self);

    // Steps of the machine.

    /// A cluster's working set.
    async fn load(&self, cluster_id: &ClusterId) -> Result<Loaded, StoreError>;
    /// Writes one step and answers the new version. `Conflict` means that nothing was written.
    async fn commit(&self, commit: Commit<'_>) -> Result<u64, StoreError>;
    /// Takes work that is due and that no living replica owns, or this one does, the oldest first. The taker
    /// becomes the owner, and the due time moves to `push_until`, when somebody looks at it again, should the
    /// taker have failed.
    async fn due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError>;
    /// Takes work, due or not, whose owner has no row any more.
    async fn orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError>;
    /// How much is due.
    async fn due_count(&self, now: Timestamp) -> Result<u64, StoreError>;
    /// Moves the due time of a record that is still at this version and epoch, and keeps or gives back its
    /// ownership; true when it was.
    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError>;
    /// Makes whatever is at work due at once: after the clock went back its due time may be a year away. How
    /// many.
    async fn wake_busy(&self, now: Timestamp) -> Result<u64, StoreError>;
    /// Whether this call of this account is still the announced one.
    async fn is_current(&self, account_id: AccountId, token: CallToken)
    -> Result<bool, StoreError>;

    // Replicas.

    /// Makes this replica's row. Where a database takes one process only, the rows of others are removed: they
    /// are dead.
    async fn join(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Raises this replica's counter and answers the rows of all; nothing when its own was removed, because
    /// others believe that it is dead.
    async fn beat(
        &self,
        replica_id: ReplicaId,
        key_ids: &[String],
        now: Timestamp,
    ) -> Result<Option<Vec<ReplicaRow>>, StoreError>;
    /// Removes the row of a replica whose counter still has this value; true when it had.
    async fn bury(&self, replica_id: ReplicaId, counter: u64) -> Result<bool, StoreError>;
    /// Gives back what this replica owns and has no open call for; it is due at once.
    async fn release(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError>;
    /// The same, and removes the replica's row. What it still owns is for others to take.
    async fn leave(&self, replica_id: ReplicaId, now: Timestamp) -> Result<(), StoreError>;
    /// How many credentials this replica owns.
    async fn owned_count(&self, replica_id: ReplicaId) -> Result<u64, StoreError>;
    /// Tells the others, where there may be any.
    async fn tell(&self, _hint: &Hint) -> Result<(), StoreError> {
        Ok(())
    }
    /// Begins to listen to the others.
    async fn listen(&self) -> Result<Listening, StoreError> {
        Ok(Listening::Alone)
    }

    // Reads.

    /// Version and state, for an ETag.
    async fn version_of(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<Option<(u64, StateName)>, StoreError>;
    /// What is handed out.
    async fn served(&self, cluster_id: &ClusterId) -> Result<Option<ServedView>, StoreError>;
    /// The working set with the secrets of what is handed out.
    async fn described(&self, cluster_id: &ClusterId) -> Result<Described, StoreError>;
    /// The accounts of this cluster that have this user name and a secret; one, unless two registries
    /// give the same name. `consumer` is whose latest heartbeat to bring along.
    async fn presented(
        &self,
        cluster_id: &ClusterId,
        username: &str,
        consumer: &str,
    ) -> Result<Vec<Presented>, StoreError>;
    /// One account's secret.
    async fn secret(&self, account_id: AccountId) -> Result<Option<SealedSecret>, StoreError>;
    /// One rotation of this cluster.
    async fn rotation(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Result<Option<RotationDetail>, StoreError>;
    /// Rotations, newest first.
    async fn list_rotations(
        &self,
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RotationRow>, StoreError>;
    /// Records by cluster id, without secrets.
    async fn list_pull_secrets(
        &self,
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PullSecretRow>, StoreError>;
    /// What needs a person: by kind, then the oldest first.
    async fn attention(
        &self,
        filter: &AttentionFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AttentionItem>, StoreError>;
    /// How many records are in which state; states without any are left out.
    async fn state_counts(&self) -> Result<BTreeMap<String, u64>, StoreError>;
    /// How many running rotations are in which phase; phases without any are left out.
    async fn phase_counts(&self) -> Result<BTreeMap<String, u64>, StoreError>;
    /// How much needs a person, and how many accounts are burnt. Trouble older than `stuck_after` counts
    /// as stuck.
    async fn trouble_counts(
        &self,
        now: Timestamp,
        stuck_after: StuckAfter,
    ) -> Result<TroubleCounts, StoreError>;

    // Requests that may be repeated.

    /// Begins a request, unless it runs or was answered.
    async fn begin_idempotent(
        &self,
        start: &IdempotencyStart,
    ) -> Result<IdempotencyState, StoreError>;
    /// Stores an answer that goes with no commit. `LeaseLost` when another attempt holds the key.
    async fn answer_idempotent(&self, answer: &IdempotencyAnswer) -> Result<(), StoreError>;
    /// Forgets a request whose answer is not to be repeated, unless another attempt holds the key.
    async fn release_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: uuid::Uuid,
    ) -> Result<(), StoreError>;

    /// Corrects the status of an answer that turned out otherwise after its commit, or forgets the request
    /// where there is no status to repeat. Nothing happens when another attempt holds the key.
    async fn correct_idempotent(
        &self,
        key: &IdempotencyKey,
        holder: uuid::Uuid,
        status: Option<u16>,
    ) -> Result<(), StoreError>;

    // The audit.

    /// Appends rows that go with no commit, all or none.
    async fn record_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError>;
    /// The audit, newest first.
    async fn list_audit(
        &self,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEvent>, StoreError>;
    /// Makes a checkpoint of each stream that moved since its last one, at most so many.
    async fn checkpoint_audit(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditCheckpoint>, StoreError>;
    /// Removes old rows, at most a batch, always the first ones of their streams, and leaves a checkpoint
    /// from which what is left can be verified. Answers how many went.
    async fn prune_audit(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: u32,
    ) -> Result<u64, StoreError>;
    /// The first stream whose name sorts after this one.
    async fn next_audit_stream(&self, after: &str) -> Result<Option<String>, StoreError>;
    /// What is known of a stream besides its rows.
    async fn audit_stream(&self, stream: &str) -> Result<AuditStream, StoreError>;
    /// A stream's rows after this sequence, in order.
    async fn walk_audit(
        &self,
        stream: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError>;

    // Keys.

    /// How many secrets each key seals.
    async fn key_census(&self) -> Result<BTreeMap<String, u64>, StoreError>;
    /// Secrets that another key than this one seals, by account id.
    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, SealedSecret)>, StoreError>;
    /// Replaces secrets that are still as they were read; answers how many were.
    async fn reseal(&self, batch: &[Reseal]) -> Result<u64, StoreError>;

    // The registries' own records of use.

    /// Takes a reading that is due for one registry and puts the next one off by `pause`, so that one process
    /// reads. `None`: not due. Else until when the last reading that succeeded told.
    async fn claim_usage(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration,
    ) -> Result<Option<Option<Timestamp>>, StoreError>;
    /// A reading told everything until then.
    async fn usage_read(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        until: Timestamp,
    ) -> Result<(), StoreError>;
    /// Accounts that are handed out, by id, a page at a time.
    async fn usage_candidates(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<UsageCandidate>, StoreError>;

    // Upkeep.

    /// Lets history pass, one batch.
    async fn purge(&self, before: PurgeBefore) -> Result<Purged, StoreError>;
}
