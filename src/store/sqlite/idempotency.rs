//! Requests that may be repeated.

use sqlx::sqlite::{SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::super::idempotency::StoredRequest;
use super::super::rows::idempotency::KeyRow;
use super::super::{
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, StoreError,
};
use super::error::map;
use super::write::Write;

/// Index: the primary key.
const SELECT: &str = "SELECT body_hash, holder, lease_until, created_at, status, location, \
     resource_id FROM idempotency_keys WHERE key_hash = ?1 AND caller_hash = ?2";

/// Index: the primary key.
const BEGIN: &str = "INSERT INTO idempotency_keys \
     (key_hash, caller_hash, body_hash, holder, lease_until, created_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (key_hash, caller_hash) DO UPDATE \
     SET body_hash = excluded.body_hash, holder = excluded.holder, \
     lease_until = excluded.lease_until, created_at = excluded.created_at, \
     status = NULL, location = NULL, resource_id = NULL";

pub(super) async fn begin(
    writer: &SqlitePool,
    start: &IdempotencyStart,
) -> Result<IdempotencyState, StoreError> {
    let mut tx = Write::begin(writer).await?;
    let state = begin_in(&mut tx, start).await;
    tx.end(state).await
}

async fn begin_in(
    db: &mut SqliteConnection,
    start: &IdempotencyStart,
) -> Result<IdempotencyState, StoreError> {
    let query = sqlx::query_as(SELECT).bind(&start.key.key_hash).bind(&start.key.caller_hash);
    let row: Option<KeyRow> = query.fetch_optional(&mut *db).await.map_err(map)?;
    let stored = row.map(StoredRequest::try_from).transpose()?;
    let state = stored.map_or(IdempotencyState::Begun, |stored| stored.meets(start));
    if state == IdempotencyState::Begun {
        let query = sqlx::query(BEGIN)
            .bind(&start.key.key_hash)
            .bind(&start.key.caller_hash)
            .bind(&start.body_hash)
            .bind(start.holder)
            .bind(start.lease_until)
            .bind(start.now);
        query.execute(&mut *db).await.map_err(map)?;
    }
    Ok(state)
}

/// Index: the primary key.
const ANSWER: &str = "UPDATE idempotency_keys SET status = ?4, location = ?5, resource_id = ?6 \
     WHERE key_hash = ?1 AND caller_hash = ?2 AND holder = ?3 AND status IS NULL";

pub(super) async fn answer(
    db: &mut SqliteConnection,
    answer: &IdempotencyAnswer,
) -> Result<(), StoreError> {
    let query = sqlx::query(ANSWER)
        .bind(&answer.key.key_hash)
        .bind(&answer.key.caller_hash)
        .bind(answer.holder)
        .bind(i64::from(answer.status))
        .bind(answer.location.as_deref())
        .bind(answer.resource_id.as_deref());
    let done = query.execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(StoreError::LeaseLost) }
}

/// Index: the primary key.
const RELEASE: &str = "DELETE FROM idempotency_keys \
     WHERE key_hash = ?1 AND caller_hash = ?2 AND holder = ?3 AND status IS NULL";

pub(super) async fn release(
    writer: &SqlitePool,
    key: &IdempotencyKey,
    holder: Uuid,
) -> Result<(), StoreError> {
    let query = sqlx::query(RELEASE).bind(&key.key_hash).bind(&key.caller_hash);
    let query = query.bind(holder);
    query.execute(writer).await.map_err(map).map(drop)
}

/// Index: the primary key.
const CORRECT: &str = "UPDATE idempotency_keys SET status = ?4 \
     WHERE key_hash = ?1 AND caller_hash = ?2 AND holder = ?3 AND status IS NOT NULL";

/// Index: the primary key.
const FORGET: &str = "DELETE FROM idempotency_keys \
     WHERE key_hash = ?1 AND caller_hash = ?2 AND holder = ?3";

pub(super) async fn correct(
    writer: &SqlitePool,
    key: &IdempotencyKey,
    holder: Uuid,
    status: Option<u16>,
) -> Result<(), StoreError> {
    let query = sqlx::query(if status.is_some() { CORRECT } else { FORGET })
        .bind(&key.key_hash)
        .bind(&key.caller_hash)
        .bind(holder);
    let query = match status {
        Some(status) => query.bind(i64::from(status)),
        None => query,
    };
    query.execute(writer).await.map_err(map).map(drop)
}
