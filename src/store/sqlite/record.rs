//! The rows of `clusters`, `pull_secrets` and `consumers`, and the working set that they make together.

use sqlx::{FromRow, SqliteConnection};

use super::super::columns::StateColumns;
use super::super::{Loaded, StoreError};
use super::decode::{count, generation, maybe_word, micros, signed, small, time, word};
use super::error::map;
use super::{account, rotation};
use crate::ids::{ClusterId, Generation, RegistryId};
use crate::state::pull_secret::{
    Consumer, EvidenceSource, PullSecret, Quarantine, Refusal, Served, Slot,
};
use crate::time::Timestamp;

/// The columns of a [`HeadRow`], for statements that read `clusters` as `c` and `pull_secrets` as `p`.
macro_rules! head_columns {
    () => {
        "p.cluster_id AS cluster_id, c.version AS version, c.last_generation AS last_generation, \
         p.state AS state, p.state_since AS state_since, \
         p.served_generation AS served_generation, p.served_since AS served_since, \
         p.issuing_generation AS issuing_generation, \
         p.refusal_registry_id AS refusal_registry_id, p.refusal_message AS refusal_message, \
         p.registries AS registries, p.created_at AS created_at, \
         p.last_rotated_at AS last_rotated_at, p.next_rotation_at AS next_rotation_at, \
         p.slot_at AS slot_at, p.slot_failures AS slot_failures, \
         p.quarantine_since AS quarantine_since, p.quarantine_retry_at AS quarantine_retry_at"
    };
}
pub(super) use head_columns;

#[derive(FromRow)]
pub(super) struct HeadRow {
    cluster_id: String,
    version: i64,
    last_generation: i64,
    state: String,
    state_since: i64,
    served_generation: Option<i64>,
    served_since: Option<i64>,
    issuing_generation: Option<i64>,
    refusal_registry_id: Option<String>,
    refusal_message: Option<String>,
    registries: String,
    created_at: i64,
    last_rotated_at: Option<i64>,
    next_rotation_at: Option<i64>,
    slot_at: Option<i64>,
    slot_failures: Option<i64>,
    quarantine_since: Option<i64>,
    quarantine_retry_at: Option<i64>,
}

/// A record without what hangs on it.
pub(super) struct Head {
    pub cluster_id: ClusterId,
    pub version: u64,
    pub last_generation: Generation,
    pub state: StateColumns,
    pub state_since: Timestamp,
    pub registries: Vec<RegistryId>,
    pub created_at: Timestamp,
    pub last_rotated_at: Option<Timestamp>,
    pub next_rotation_at: Option<Timestamp>,
    pub slot: Option<Slot>,
    pub quarantine: Option<Quarantine>,
}

pub(super) fn served(
    number: Option<i64>,
    since: Option<i64>,
) -> Result<Option<Served>, StoreError> {
    let (Some(number), Some(since)) = (number, since) else { return Ok(None) };
    Ok(Some(Served { generation: generation(number)?, since: Timestamp::from_micros(since) }))
}

impl TryFrom<HeadRow> for Head {
    type Error = StoreError;
    fn try_from(row: HeadRow) -> Result<Self, StoreError> {
        let registry = maybe_word(row.refusal_registry_id.as_deref(), "a registry id")?;
        let refusal = registry
            .zip(row.refusal_message)
            .map(|(registry_id, message)| Refusal { registry_id, message });
        let slot = |(at, failures)| Ok::<_, StoreError>(Slot { at, failures: small(failures)? });
        let quarantine = time(row.quarantine_since).zip(time(row.quarantine_retry_at));
        Ok(Self {
            cluster_id: word(&row.cluster_id, "a cluster id")?,
            version: count(row.version)?,
            last_generation: generation(row.last_generation)?,
            state: StateColumns {
                state: word(&row.state, "a state")?,
                served: served(row.served_generation, row.served_since)?,
                issuing_generation: row.issuing_generation.map(generation).transpose()?,
                refusal,
            },
            state_since: Timestamp::from_micros(row.state_since),
            registries: serde_json::from_str(&row.registries)
                .map_err(|_| StoreError::corrupt("a list of registries"))?,
            created_at: Timestamp::from_micros(row.created_at),
            last_rotated_at: time(row.last_rotated_at),
            next_rotation_at: time(row.next_rotation_at),
            slot: time(row.slot_at).zip(row.slot_failures).map(slot).transpose()?,
            quarantine: quarantine.map(|(since, retry_at)| Quarantine { since, retry_at }),
        })
    }
}

/// Index: both primary keys.
const SELECT_HEAD: &str = concat!(
    "SELECT ",
    head_columns!(),
    " FROM pull_secrets p JOIN clusters c ON c.cluster_id = p.cluster_id WHERE p.cluster_id = ?1"
);

pub(super) async fn head(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Option<Head>, StoreError> {
    let query = sqlx::query_as(SELECT_HEAD).bind(cluster_id.as_str());
    let row: Option<HeadRow> = query.fetch_optional(db).await.map_err(map)?;
    row.map(Head::try_from).transpose()
}

/// Index: the primary key.
const SELECT_CLUSTER: &str = "SELECT version, last_generation FROM clusters WHERE cluster_id = ?1";

/// The working set. The caller holds a transaction, so that the parts are of one instant.
pub(super) async fn load(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Loaded, StoreError> {
    let Some(head) = head(db, cluster_id).await? else {
        let query = sqlx::query_as(SELECT_CLUSTER).bind(cluster_id.as_str());
        let row: Option<(i64, i64)> = query.fetch_optional(db).await.map_err(map)?;
        let Some((version, last)) = row else { return Ok(Loaded::default()) };
        let last_generation = generation(last)?;
        return Ok(Loaded { record: None, version: count(version)?, last_generation });
    };
    let running = rotation::running(db, cluster_id).await?;
    let record = PullSecret {
        cluster_id: head.cluster_id,
        state: head.state.rebuild(running)?,
        state_since: head.state_since,
        registries: head.registries,
        last_generation: head.last_generation,
        accounts: account::live(db, cluster_id).await?,
        consumers: consumers(db, cluster_id).await?,
        ended: Vec::new(),
        created_at: head.created_at,
        last_rotated_at: head.last_rotated_at,
        next_rotation_at: head.next_rotation_at,
        slot: head.slot,
        quarantine: head.quarantine,
    };
    let (version, last_generation) = (head.version, head.last_generation);
    Ok(Loaded { record: Some(record), version, last_generation })
}

/// Index: the primary key. The first commit of a cluster makes its row; a second "first" one changes nothing.
const INSERT_CLUSTER: &str = "INSERT INTO clusters \
     (cluster_id, version, last_generation, created_at, updated_at) \
     VALUES (?1, 1, ?2, ?3, ?3) ON CONFLICT (cluster_id) DO NOTHING";

/// Index: the primary key. The guard of every other commit.
const UPDATE_CLUSTER: &str = "UPDATE clusters SET version = version + 1, \
     last_generation = max(last_generation, ?3), updated_at = ?4 \
     WHERE cluster_id = ?1 AND version = ?2";

/// Takes the next version, or says `Conflict`.
pub(super) async fn guard(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    expected: u64,
    last_generation: Generation,
    at: Timestamp,
) -> Result<u64, StoreError> {
    let query = if expected == 0 {
        sqlx::query(INSERT_CLUSTER).bind(cluster_id.as_str()).bind(last_generation.0)
    } else {
        let update = sqlx::query(UPDATE_CLUSTER).bind(cluster_id.as_str());
        update.bind(signed(expected)).bind(last_generation.0)
    };
    let done = query.bind(at.as_micros()).execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 { Ok(expected + 1) } else { Err(StoreError::Conflict) }
}

/// Index: the primary key.
const UPSERT_RECORD: &str = "INSERT INTO pull_secrets (cluster_id, state, state_since, \
     served_generation, served_since, issuing_generation, refusal_registry_id, refusal_message, \
     registries, created_at, last_rotated_at, next_rotation_at, slot_at, slot_failures, \
     quarantine_since, quarantine_retry_at, due_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
     ON CONFLICT (cluster_id) DO UPDATE SET state = excluded.state, \
     state_since = excluded.state_since, served_generation = excluded.served_generation, \
     served_since = excluded.served_since, issuing_generation = excluded.issuing_generation, \
     refusal_registry_id = excluded.refusal_registry_id, \
     refusal_message = excluded.refusal_message, registries = excluded.registries, \
     created_at = excluded.created_at, last_rotated_at = excluded.last_rotated_at, \
     next_rotation_at = excluded.next_rotation_at, slot_at = excluded.slot_at, \
     slot_failures = excluded.slot_failures, quarantine_since = excluded.quarantine_since, \
     quarantine_retry_at = excluded.quarantine_retry_at, due_at = excluded.due_at";

pub(super) async fn write(
    db: &mut SqliteConnection,
    record: &PullSecret,
    due_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let columns = StateColumns::of(&record.state);
    let registries = serde_json::to_string(&record.registries)
        .map_err(|_| StoreError::corrupt("a list of registries"))?;
    let refusal = columns.refusal.as_ref();
    let query = sqlx::query(UPSERT_RECORD)
        .bind(record.cluster_id.as_str())
        .bind(<&'static str>::from(columns.state))
        .bind(record.state_since.as_micros())
        .bind(columns.served.map(|served| served.generation.0))
        .bind(columns.served.map(|served| served.since.as_micros()))
        .bind(columns.issuing_generation.map(|generation| generation.0))
        .bind(refusal.map(|refusal| refusal.registry_id.as_str()))
        .bind(refusal.map(|refusal| refusal.message.as_str()))
        .bind(registries)
        .bind(record.created_at.as_micros())
        .bind(micros(record.last_rotated_at))
        .bind(micros(record.next_rotation_at))
        .bind(record.slot.map(|slot| slot.at.as_micros()))
        .bind(record.slot.map(|slot| slot.failures))
        .bind(record.quarantine.map(|quarantine| quarantine.since.as_micros()))
        .bind(record.quarantine.map(|quarantine| quarantine.retry_at.as_micros()))
        .bind(micros(due_at));
    query.execute(db).await.map_err(map).map(drop)
}

/// Takes its consumers along. Index: the primary key.
pub(super) async fn remove(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM pull_secrets WHERE cluster_id = ?1");
    query.bind(cluster_id.as_str()).execute(db).await.map_err(map).map(drop)
}

/// Index: the unique one of `consumers`; at most 64 rows are sorted.
const SELECT_CONSUMERS: &str = "SELECT source, name, generation, observed_at FROM consumers \
     WHERE cluster_id = ?1 ORDER BY position";

pub(super) async fn consumers(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Vec<Consumer>, StoreError> {
    let query = sqlx::query_as(SELECT_CONSUMERS).bind(cluster_id.as_str());
    let rows: Vec<(String, String, i64, i64)> = query.fetch_all(db).await.map_err(map)?;
    let consumer = |(source, name, number, at): (String, _, _, _)| {
        Ok(Consumer {
            source: word(&source, "a source of evidence")?,
            name,
            generation: generation(number)?,
            observed_at: Timestamp::from_micros(at),
        })
    };
    rows.into_iter().map(consumer).collect()
}

/// Index: the unique one of `consumers`.
const UPSERT_CONSUMER: &str = "INSERT INTO consumers \
     (cluster_id, source, name, generation, observed_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (cluster_id, source, name) DO UPDATE \
     SET generation = excluded.generation, observed_at = excluded.observed_at";

pub(super) async fn write_consumer(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    consumer: &Consumer,
) -> Result<(), StoreError> {
    let query = sqlx::query(UPSERT_CONSUMER)
        .bind(cluster_id.as_str())
        .bind(<&'static str>::from(consumer.source))
        .bind(&consumer.name)
        .bind(consumer.generation.0)
        .bind(consumer.observed_at.as_micros());
    query.execute(db).await.map_err(map).map(drop)
}

/// Index: the unique one of `consumers`.
const DELETE_CONSUMER: &str =
    "DELETE FROM consumers WHERE cluster_id = ?1 AND source = ?2 AND name = ?3";

pub(super) async fn forget_consumer(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    source: EvidenceSource,
    name: &str,
) -> Result<(), StoreError> {
    let query = sqlx::query(DELETE_CONSUMER).bind(cluster_id.as_str());
    let query = query.bind(<&'static str>::from(source)).bind(name);
    query.execute(db).await.map_err(map).map(drop)
}
