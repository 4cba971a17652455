//! The row of the one replica. The lock on the file says that it is the only one and that it lives, so its counter
//! need not be raised, and whoever has a row beside it is dead.

use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::super::rows::decode::{count, signed};
use super::super::rows::replicas::{ReplicaColumns, key_ids_text};
use super::super::{ReplicaRow, StoreError};
use super::error::map;
use super::write::Write;
use crate::ids::ReplicaId;
use crate::time::Timestamp;

/// Index: the primary key.
const JOIN: &str = "INSERT INTO replicas (replica_id, counter, key_ids, seen_at) VALUES (?1, 1, ?2, ?3) \
     ON CONFLICT (replica_id) DO UPDATE \
     SET counter = counter + 1, key_ids = excluded.key_ids, seen_at = excluded.seen_at";

const FORGET_OTHERS: &str = "DELETE FROM replicas WHERE replica_id <> ?1";

pub(super) async fn join(
    writer: &SqlitePool,
    replica_id: ReplicaId,
    key_ids: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    let key_ids = key_ids_text(key_ids)?;
    let mut tx = Write::begin(writer).await?;
    let joined = join_in(&mut tx, replica_id, key_ids, now).await;
    tx.end(joined).await
}

async fn join_in(
    db: &mut SqliteConnection,
    replica_id: ReplicaId,
    key_ids: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    let forget = sqlx::query(FORGET_OTHERS).bind(replica_id.0);
    forget.execute(&mut *db).await.map_err(map)?;
    let join = sqlx::query(JOIN).bind(replica_id.0).bind(key_ids).bind(now);
    join.execute(db).await.map_err(map).map(drop)
}

/// A handful of rows: no index.
const SELECT_ALL: &str = "SELECT replica_id, counter, key_ids FROM replicas ORDER BY replica_id";

pub(super) async fn beat(
    reader: &SqlitePool,
    replica_id: ReplicaId,
) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
    let rows: Vec<ReplicaColumns> =
        sqlx::query_as(SELECT_ALL).fetch_all(reader).await.map_err(map)?;
    let rows = rows.into_iter().map(ReplicaRow::try_from).collect::<Result<Vec<_>, _>>()?;
    Ok(rows.iter().any(|row| row.replica_id == replica_id).then_some(rows))
}

/// Index: the primary key.
const BURY: &str = "DELETE FROM replicas WHERE replica_id = ?1 AND counter = ?2";

pub(super) async fn bury(
    writer: &SqlitePool,
    replica_id: ReplicaId,
    counter: u64,
) -> Result<bool, StoreError> {
    let query = sqlx::query(BURY).bind(replica_id.0).bind(signed(counter));
    Ok(query.execute(writer).await.map_err(map)?.rows_affected() == 1)
}

/// Index: `pull_secrets_owned`, `accounts_open_calls`. What was claimed and not looked at yet is due again.
pub(super) const RELEASE: &str = "UPDATE pull_secrets SET owner = NULL, due_at = ?2 \
     WHERE owner = ?1 AND NOT EXISTS (SELECT 1 FROM accounts a \
     WHERE a.cluster_id = pull_secrets.cluster_id AND a.call_token IS NOT NULL)";

/// Index: `break_glass_owned`, the ones of open calls; authorities are few.
pub(super) const RELEASE_BREAK_GLASS: &str = "UPDATE break_glass SET owner = NULL, due_at = ?2 \
     WHERE owner = ?1 \
     AND NOT EXISTS (SELECT 1 FROM break_glass_credentials c \
     WHERE c.cluster_id = break_glass.cluster_id AND c.call_token IS NOT NULL) \
     AND NOT EXISTS (SELECT 1 FROM break_glass_revocations r \
     WHERE r.cluster_id = break_glass.cluster_id AND r.call_token IS NOT NULL) \
     AND NOT EXISTS (SELECT 1 FROM break_glass_authorities a \
     WHERE a.cluster_id = break_glass.cluster_id AND a.call_token IS NOT NULL)";

pub(super) async fn release(
    writer: &SqlitePool,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = Write::begin(writer).await?;
    let released = release_in(&mut tx, replica_id, now).await;
    tx.end(released).await
}

async fn release_in(
    db: &mut SqliteConnection,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    for statement in [RELEASE, RELEASE_BREAK_GLASS] {
        let release = sqlx::query(statement).bind(replica_id.0).bind(now);
        release.execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

/// Index: the primary key.
const FORGET: &str = "DELETE FROM replicas WHERE replica_id = ?1";

pub(super) async fn leave(
    writer: &SqlitePool,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = Write::begin(writer).await?;
    let left = leave_in(&mut tx, replica_id, now).await;
    tx.end(left).await
}

async fn leave_in(
    db: &mut SqliteConnection,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    release_in(db, replica_id, now).await?;
    sqlx::query(FORGET).bind(replica_id.0).execute(db).await.map_err(map).map(drop)
}

/// Index: `pull_secrets_owned`, `break_glass_owned`.
pub(super) const COUNT_OWNED: &str = "SELECT \
     (SELECT count(*) FROM pull_secrets WHERE owner = ?1) + \
     (SELECT count(*) FROM break_glass WHERE owner = ?1)";

pub(super) async fn owned_count(
    reader: &SqlitePool,
    replica_id: ReplicaId,
) -> Result<u64, StoreError> {
    let query = sqlx::query_as(COUNT_OWNED).bind(replica_id.0);
    let (number,): (i64,) = query.fetch_one(reader).await.map_err(map)?;
    count(number)
}
