//! The rows of replicas, and what becomes of what they own.
//!
//! A replica is dead when somebody has watched its counter stand still for a lease; that one removes its row, if
//! the counter still stands there. From then on everybody may take what it owned.

use sqlx::postgres::{PgConnection, PgPool};

use super::super::rows::decode::{count, signed};
use super::super::rows::replicas::{ReplicaColumns, key_ids_text};
use super::super::{ReplicaRow, StoreError};
use super::error::map;
use super::transaction::{end, execute, one, query, query_as, write};
use crate::ids::ReplicaId;
use crate::time::Timestamp;

/// Index: the primary key. `seen_at` is for people; nobody decides by it.
const JOIN: &str = "INSERT INTO replicas (replica_id, counter, key_ids, seen_at) \
     VALUES ($1, 1, $2::jsonb, $3) ON CONFLICT (replica_id) DO UPDATE \
     SET counter = replicas.counter + 1, key_ids = excluded.key_ids, seen_at = excluded.seen_at";

pub(super) async fn join(
    pool: &PgPool,
    replica_id: ReplicaId,
    key_ids: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    let query = query(JOIN).bind(replica_id.0).bind(key_ids_text(key_ids)?).bind(now);
    execute(pool, query).await.map(drop)
}

/// Index: the primary key.
const BEAT: &str = "UPDATE replicas SET counter = counter + 1, key_ids = $2::jsonb, seen_at = $3 \
     WHERE replica_id = $1";

/// A handful of rows: no index.
const SELECT_ALL: &str = "SELECT replica_id, counter, key_ids FROM replicas ORDER BY replica_id";

pub(super) async fn beat(
    pool: &PgPool,
    replica_id: ReplicaId,
    key_ids: &[String],
    now: Timestamp,
) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
    let key_ids = key_ids_text(key_ids)?;
    let mut tx = write(pool).await?;
    let rows = beat_in(&mut tx, replica_id, key_ids, now).await;
    end(tx, rows).await
}

async fn beat_in(
    db: &mut PgConnection,
    replica_id: ReplicaId,
    key_ids: String,
    now: Timestamp,
) -> Result<Option<Vec<ReplicaRow>>, StoreError> {
    let raise = query(BEAT).bind(replica_id.0).bind(key_ids).bind(now);
    if raise.execute(&mut *db).await.map_err(map)?.rows_affected() == 0 {
        return Ok(None);
    }
    let rows: Vec<ReplicaColumns> = query_as(SELECT_ALL).fetch_all(db).await.map_err(map)?;
    rows.into_iter().map(ReplicaRow::try_from).collect::<Result<_, _>>().map(Some)
}

/// Index: the primary key.
const BURY: &str = "DELETE FROM replicas WHERE replica_id = $1 AND counter = $2";

pub(super) async fn bury(
    pool: &PgPool,
    replica_id: ReplicaId,
    counter: u64,
) -> Result<bool, StoreError> {
    let query = query(BURY).bind(replica_id.0).bind(signed(counter));
    Ok(execute(pool, query).await? == 1)
}

/// Index: `pull_secrets_owned`, `accounts_open_calls`. What was claimed and not looked at yet is due again.
pub(super) const RELEASE: &str = "UPDATE pull_secrets p SET owner = NULL, due_at = $2 \
     WHERE p.owner = $1 AND NOT EXISTS (SELECT 1 FROM accounts a \
     WHERE a.cluster_id = p.cluster_id AND a.call_token IS NOT NULL)";

/// Index: `break_glass_owned`, the ones of open calls; authorities are few.
pub(super) const RELEASE_BREAK_GLASS: &str = "UPDATE break_glass b SET owner = NULL, due_at = $2 \
     WHERE b.owner = $1 \
     AND NOT EXISTS (SELECT 1 FROM break_glass_credentials c \
     WHERE c.cluster_id = b.cluster_id AND c.call_token IS NOT NULL) \
     AND NOT EXISTS (SELECT 1 FROM break_glass_revocations r \
     WHERE r.cluster_id = b.cluster_id AND r.call_token IS NOT NULL) \
     AND NOT EXISTS (SELECT 1 FROM break_glass_authorities a \
     WHERE a.cluster_id = b.cluster_id AND a.call_token IS NOT NULL)";

pub(super) async fn release(
    pool: &PgPool,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let released = release_in(&mut tx, replica_id, now).await;
    end(tx, released).await
}

async fn release_in(
    db: &mut PgConnection,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    for statement in [RELEASE, RELEASE_BREAK_GLASS] {
        let release = query(statement).bind(replica_id.0).bind(now);
        release.execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

pub(super) async fn leave(
    pool: &PgPool,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let left = leave_in(&mut tx, replica_id, now).await;
    end(tx, left).await
}

/// Index: the primary key.
const FORGET: &str = "DELETE FROM replicas WHERE replica_id = $1";

async fn leave_in(
    db: &mut PgConnection,
    replica_id: ReplicaId,
    now: Timestamp,
) -> Result<(), StoreError> {
    release_in(db, replica_id, now).await?;
    query(FORGET).bind(replica_id.0).execute(db).await.map_err(map).map(drop)
}

/// Index: `pull_secrets_owned`, `break_glass_owned`.
pub(super) const COUNT_OWNED: &str = "SELECT \
     (SELECT count(*) FROM pull_secrets WHERE owner = $1) + \
     (SELECT count(*) FROM break_glass WHERE owner = $1)";

pub(super) async fn owned_count(pool: &PgPool, replica_id: ReplicaId) -> Result<u64, StoreError> {
    let (number,): (i64,) = one(pool, query_as(COUNT_OWNED).bind(replica_id.0)).await?;
    count(number)
}
