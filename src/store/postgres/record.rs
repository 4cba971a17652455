//! The rows of `clusters`, `pull_secrets` and `consumers`, and the working set that they make together.

use sqlx::postgres::PgConnection;

use super::super::rows::decode::signed;
use super::super::rows::record::{
    ConsumerRow, Head, HeadRow, bind_record, head_columns, record_changes, record_columns,
    without_record,
};
use super::super::{Commit, Loaded, StoreError};
use super::error::map;
use super::transaction::{query, query_as};
use super::{account, rotation};
use crate::ids::{ClusterId, Generation};
use crate::state::pull_secret::{Consumer, EvidenceSource, PullSecret};
use crate::time::Timestamp;

/// Index: both primary keys.
pub(super) const SELECT_HEAD: &str = concat!(
    "SELECT ",
    head_columns!(),
    " FROM pull_secrets p JOIN clusters c ON c.cluster_id = p.cluster_id WHERE p.cluster_id = $1"
);

pub(super) async fn head(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
) -> Result<Option<Head>, StoreError> {
    let query = query_as(SELECT_HEAD).bind(cluster_id.as_str());
    let row: Option<HeadRow> = query.fetch_optional(db).await.map_err(map)?;
    row.map(Head::try_from).transpose()
}

/// Index: the primary key.
const SELECT_CLUSTER: &str = "SELECT version, last_generation FROM clusters WHERE cluster_id = $1";

/// The working set. The caller holds a snapshot, so that the parts are of one instant.
pub(super) async fn load(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
) -> Result<Loaded, StoreError> {
    let Some(head) = head(db, cluster_id).await? else {
        let query = query_as(SELECT_CLUSTER).bind(cluster_id.as_str());
        let row: Option<(i64, i64)> = query.fetch_optional(db).await.map_err(map)?;
        return without_record(row);
    };
    let open = rotation::open(db, cluster_id).await?;
    let accounts = account::live(db, cluster_id).await?;
    head.loaded(open, accounts, consumers(db, cluster_id).await?)
}

/// Index: the primary key. The first commit of a cluster makes its row; a second "first" one waits for it and
/// then changes nothing.
const INSERT_CLUSTER: &str = "INSERT INTO clusters \
     (cluster_id, version, last_generation, created_at, updated_at) \
     VALUES ($1, 1, $2, $3, $3) ON CONFLICT (cluster_id) DO NOTHING";

/// Index: the primary key. The guard of every other commit. Whoever comes second waits here for the first,
/// looks again, and finds another version.
const UPDATE_CLUSTER: &str = "UPDATE clusters SET version = version + 1, \
     last_generation = greatest(last_generation, $3), updated_at = $4 \
     WHERE cluster_id = $1 AND version = $2";

/// Takes the next version, or says `Conflict`. First in its transaction: everything else of the cluster is
/// locked by nobody but the holder of this row, so that two commits cannot wait for each other.
pub(super) async fn guard(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
    expected: u64,
    last_generation: Generation,
    at: Timestamp,
) -> Result<u64, StoreError> {
    let last_generation = i64::from(last_generation.0);
    let query = if expected == 0 {
        query(INSERT_CLUSTER).bind(cluster_id.as_str()).bind(last_generation)
    } else {
        let update = query(UPDATE_CLUSTER).bind(cluster_id.as_str());
        update.bind(signed(expected)).bind(last_generation)
    };
    let done = query.bind(at).execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 { Ok(expected + 1) } else { Err(StoreError::Conflict) }
}

/// Index: the primary key. The guard of the version came first; this one is for an owner that changed since.
const UPSERT_RECORD: &str = concat!(
    "INSERT INTO pull_secrets (",
    record_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10, $11, $12, $13, $14, $15, $16, $17, \
     $18, $19, $20, $21, $22, $23, $24, $25, $26, $27) ",
    record_changes!(),
    "$28"
);

pub(super) async fn write(
    db: &mut PgConnection,
    record: &PullSecret,
    commit: &Commit<'_>,
) -> Result<(), StoreError> {
    let query = bind_record!(query(UPSERT_RECORD), record, commit);
    let done = query.execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(StoreError::Conflict) }
}

/// Takes its consumers along. Index: the primary key.
pub(super) async fn remove(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
) -> Result<(), StoreError> {
    let query = query("DELETE FROM pull_secrets WHERE cluster_id = $1");
    query.bind(cluster_id.as_str()).execute(db).await.map_err(map).map(drop)
}

/// Index: the unique one of `consumers`; at most 64 rows are sorted.
pub(super) const SELECT_CONSUMERS: &str = "SELECT source, name, generation, observed_at \
     FROM consumers WHERE cluster_id = $1 ORDER BY position";

pub(super) async fn consumers(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
) -> Result<Vec<Consumer>, StoreError> {
    let query = query_as(SELECT_CONSUMERS).bind(cluster_id.as_str());
    let rows: Vec<ConsumerRow> = query.fetch_all(db).await.map_err(map)?;
    rows.into_iter().map(Consumer::try_from).collect()
}

/// Index: the unique one of `consumers`.
const UPSERT_CONSUMER: &str = "INSERT INTO consumers \
     (cluster_id, source, name, generation, observed_at) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (cluster_id, source, name) DO UPDATE \
     SET generation = excluded.generation, observed_at = excluded.observed_at";

pub(super) async fn write_consumer(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
    consumer: &Consumer,
) -> Result<(), StoreError> {
    let query = query(UPSERT_CONSUMER)
        .bind(cluster_id.as_str())
        .bind(<&'static str>::from(consumer.source))
        .bind(&consumer.name)
        .bind(i64::from(consumer.generation.0))
        .bind(consumer.observed_at);
    query.execute(db).await.map_err(map).map(drop)
}

/// Index: the unique one of `consumers`.
const DELETE_CONSUMER: &str =
    "DELETE FROM consumers WHERE cluster_id = $1 AND source = $2 AND name = $3";

pub(super) async fn forget_consumer(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
    source: EvidenceSource,
    name: &str,
) -> Result<(), StoreError> {
    let query = query(DELETE_CONSUMER).bind(cluster_id.as_str());
    let query = query.bind(<&'static str>::from(source)).bind(name);
    query.execute(db).await.map_err(map).map(drop)
}
