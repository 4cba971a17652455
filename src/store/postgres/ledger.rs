//! The audit's streams as wholes: anchored, pruned, walked in order.

use sqlx::postgres::{PgConnection, PgPool};

use super::super::rows::audit::{CheckpointRow, EventRow, audit_columns};
use super::super::rows::decode::{count, signed};
use super::super::{AuditCheckpoint, AuditEvent, AuditSeal, AuditStream, StoreError, StreamHead};
use super::audit::{head, select_events};
use super::error::map;
use super::transaction::{all, end, one, query, query_as, read, write};
use crate::time::Timestamp;

/// Index: `audit_streams_moved`. Locks the heads in the order of their names, as an append does.
pub(super) const SELECT_MOVED: &str = "SELECT stream, sequence, hash FROM audit_streams \
     WHERE anchored < sequence ORDER BY stream LIMIT $1 FOR UPDATE";

/// Index: the primary key.
const SET_ANCHORED: &str = "UPDATE audit_streams SET anchored = $2 WHERE stream = $1";

/// Index: the primary key.
const UPSERT_CHECKPOINT: &str = "INSERT INTO audit_checkpoints \
     (stream, pruned, sequence, hash, at, seal) VALUES ($1, $2, $3, $4, $5, $6) \
     ON CONFLICT (stream, pruned) DO UPDATE SET sequence = excluded.sequence, \
     hash = excluded.hash, at = excluded.at, seal = excluded.seal";

async fn write_checkpoint(
    db: &mut PgConnection,
    checkpoint: &AuditCheckpoint,
) -> Result<(), StoreError> {
    let query = query(UPSERT_CHECKPOINT)
        .bind(&checkpoint.stream)
        .bind(checkpoint.pruned)
        .bind(signed(checkpoint.sequence))
        .bind(checkpoint.hash.as_deref())
        .bind(checkpoint.at)
        .bind(checkpoint.seal.as_deref());
    query.execute(db).await.map_err(map).map(drop)
}

pub(super) async fn checkpoint(
    pool: &PgPool,
    now: Timestamp,
    limit: u32,
    seal: Option<&dyn AuditSeal>,
) -> Result<Vec<AuditCheckpoint>, StoreError> {
    let mut tx = write(pool).await?;
    let made = checkpoint_in(&mut tx, now, limit, seal).await;
    end(tx, made).await
}

async fn checkpoint_in(
    db: &mut PgConnection,
    now: Timestamp,
    limit: u32,
    seal: Option<&dyn AuditSeal>,
) -> Result<Vec<AuditCheckpoint>, StoreError> {
    let select = query_as(SELECT_MOVED).bind(i64::from(limit));
    let moved: Vec<(String, i64, Option<Vec<u8>>)> =
        select.fetch_all(&mut *db).await.map_err(map)?;
    let mut made = Vec::with_capacity(moved.len());
    for (stream, sequence, hash) in moved {
        let head: StreamHead = (count(sequence)?, hash);
        let checkpoint = AuditCheckpoint::new(&stream, false, head, now, seal);
        write_checkpoint(db, &checkpoint).await?;
        let anchored = query(SET_ANCHORED).bind(&stream).bind(sequence);
        anchored.execute(&mut *db).await.map_err(map)?;
        made.push(checkpoint);
    }
    Ok(made)
}

/// Index: `audit_by_time`.
pub(super) const SELECT_OLD: &str = "SELECT stream, max(sequence) FROM \
     (SELECT stream, sequence FROM audit_events WHERE at < $1 ORDER BY at, event_id LIMIT $2) old \
     GROUP BY stream ORDER BY stream";

/// Index: the primary key.
const LOCK_HEAD: &str = "SELECT 1 FROM audit_streams WHERE stream = $1 FOR UPDATE";

/// Index: that of `UNIQUE (stream, sequence)`. The clock may have gone back: what is young stays, and
/// everything after it.
pub(super) const SELECT_YOUNG: &str = "SELECT min(sequence) FROM audit_events \
     WHERE stream = $1 AND sequence <= $2 AND at >= $3";

/// Index: that of `UNIQUE (stream, sequence)`.
const SELECT_HASH: &str = "SELECT hash FROM audit_events WHERE stream = $1 AND sequence = $2";

/// Index: that of `UNIQUE (stream, sequence)`.
pub(super) const DELETE_ROWS: &str =
    "DELETE FROM audit_events WHERE stream = $1 AND sequence <= $2";

/// Index: the primary key.
const DELETE_ANCHOR: &str = "DELETE FROM audit_checkpoints \
     WHERE stream = $1 AND NOT pruned AND sequence < $2";

pub(super) async fn prune(
    pool: &PgPool,
    before: Timestamp,
    now: Timestamp,
    batch: u32,
    seal: Option<&dyn AuditSeal>,
) -> Result<u64, StoreError> {
    let mut tx = write(pool).await?;
    let pruned = prune_in(&mut tx, before, now, batch, seal).await;
    end(tx, pruned).await
}

async fn prune_in(
    db: &mut PgConnection,
    before: Timestamp,
    now: Timestamp,
    batch: u32,
    seal: Option<&dyn AuditSeal>,
) -> Result<u64, StoreError> {
    let select = query_as(SELECT_OLD).bind(before).bind(i64::from(batch));
    let old: Vec<(String, i64)> = select.fetch_all(&mut *db).await.map_err(map)?;
    let mut pruned = 0;
    for (stream, end) in old {
        // Nobody else prunes it meanwhile, nor moves its anchor.
        query(LOCK_HEAD).bind(&stream).execute(&mut *db).await.map_err(map)?;
        let select = query_as(SELECT_YOUNG).bind(&stream).bind(end).bind(before);
        let (young,): (Option<i64>,) = select.fetch_one(&mut *db).await.map_err(map)?;
        let end = young.map_or(end, |young| young - 1);
        let select = query_as(SELECT_HASH).bind(&stream).bind(end);
        let last: Option<(Option<Vec<u8>>,)> =
            select.fetch_optional(&mut *db).await.map_err(map)?;
        let Some((hash,)) = last else { continue };
        let base = AuditCheckpoint::new(&stream, true, (count(end)?, hash), now, seal);
        write_checkpoint(db, &base).await?;
        let delete = query(DELETE_ROWS).bind(&stream).bind(end);
        pruned += delete.execute(&mut *db).await.map_err(map)?.rows_affected();
        let delete = query(DELETE_ANCHOR).bind(&stream).bind(end);
        delete.execute(&mut *db).await.map_err(map)?;
    }
    Ok(pruned)
}

/// Index: the primary key of the heads, that of `UNIQUE (stream, sequence)` of the rows; one step in each. A
/// stream without a head, or without rows, is found as well.
pub(super) const NEXT_STREAM: &str = "SELECT least(\
     (SELECT min(stream) FROM audit_streams WHERE stream > $1), \
     (SELECT min(stream) FROM audit_events WHERE stream > $1))";

pub(super) async fn next_stream(pool: &PgPool, after: &str) -> Result<Option<String>, StoreError> {
    let query = query_as(NEXT_STREAM).bind(after);
    let (next,): (Option<String>,) = one(pool, query).await?;
    Ok(next)
}

/// Index: the primary key.
const SELECT_CHECKPOINTS: &str =
    "SELECT stream, pruned, sequence, hash, at, seal FROM audit_checkpoints WHERE stream = $1";

pub(super) async fn stream(pool: &PgPool, stream: &str) -> Result<AuditStream, StoreError> {
    let mut tx = read(pool).await?;
    let found = stream_in(&mut tx, stream).await;
    end(tx, found).await
}

async fn stream_in(db: &mut PgConnection, stream: &str) -> Result<AuditStream, StoreError> {
    let query = query_as(SELECT_CHECKPOINTS).bind(stream);
    let rows: Vec<CheckpointRow> = query.fetch_all(&mut *db).await.map_err(map)?;
    let checkpoints = rows.into_iter().map(AuditCheckpoint::try_from).collect::<Result<_, _>>()?;
    Ok(AuditStream::of(head(db, stream).await?, checkpoints))
}

/// Index: that of `UNIQUE (stream, sequence)`.
pub(super) const WALK: &str =
    concat!(select_events!(), "stream = $1 AND sequence > $2 ORDER BY sequence LIMIT $3");

pub(super) async fn walk(
    pool: &PgPool,
    stream: &str,
    after: u64,
    limit: u32,
) -> Result<Vec<AuditEvent>, StoreError> {
    let query = query_as(WALK).bind(stream).bind(signed(after)).bind(i64::from(limit));
    let rows: Vec<EventRow> = all(pool, query).await?;
    rows.into_iter().map(AuditEvent::try_from).collect()
}
