//! Requests that may be repeated.

use sqlx::postgres::{PgConnection, PgPool};
use uuid::Uuid;

use super::super::idempotency::StoredRequest;
use super::super::rows::idempotency::KeyRow;
use super::super::{
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, StoreError,
};
use super::error::map;
use super::transaction::{end, execute, query, query_as, write};

/// Index: the primary key. Makes the row or locks the one that is there, and answers what stands in it then.
const LOCK: &str = "INSERT INTO idempotency_keys \
     (key_hash, caller_hash, body_hash, holder, lease_until, created_at) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (key_hash, caller_hash) DO UPDATE \
     SET created_at = idempotency_keys.created_at \
     RETURNING body_hash, holder, lease_until, created_at, status, location, resource_id";

/// Index: the primary key.
const TAKE: &str = "UPDATE idempotency_keys SET body_hash = $3, holder = $4, \
     lease_until = $5, created_at = $6, status = NULL, location = NULL, resource_id = NULL \
     WHERE key_hash = $1 AND caller_hash = $2";

pub(super) async fn begin(
    pool: &PgPool,
    start: &IdempotencyStart,
) -> Result<IdempotencyState, StoreError> {
    let mut tx = write(pool).await?;
    let state = begin_in(&mut tx, start).await;
    end(tx, state).await
}

async fn begin_in(
    db: &mut PgConnection,
    start: &IdempotencyStart,
) -> Result<IdempotencyState, StoreError> {
    let lock = query_as(LOCK)
        .bind(&start.key.key_hash)
        .bind(&start.key.caller_hash)
        .bind(&start.body_hash)
        .bind(start.holder)
        .bind(start.lease_until)
        .bind(start.now);
    let row: KeyRow = lock.fetch_one(&mut *db).await.map_err(map)?;
    // A row that was just made is this attempt's own and says so.
    let state = StoredRequest::try_from(row)?.meets(start);
    if state == IdempotencyState::Begun {
        let take = query(TAKE).bind(&start.key.key_hash).bind(&start.key.caller_hash);
        let take = take.bind(&start.body_hash).bind(start.holder);
        let take = take.bind(start.lease_until).bind(start.now);
        take.execute(&mut *db).await.map_err(map)?;
    }
    Ok(state)
}

/// Index: the primary key.
const ANSWER: &str = "UPDATE idempotency_keys SET status = $4, location = $5, resource_id = $6 \
     WHERE key_hash = $1 AND caller_hash = $2 AND holder = $3 AND status IS NULL";

pub(super) async fn answer(
    db: &mut PgConnection,
    answer: &IdempotencyAnswer,
) -> Result<(), StoreError> {
    let query = query(ANSWER)
        .bind(&answer.key.key_hash)
        .bind(&answer.key.caller_hash)
        .bind(answer.holder)
        .bind(i64::from(answer.status))
        .bind(answer.location.as_deref())
        .bind(answer.resource_id.as_deref());
    let done = query.execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(StoreError::LeaseLost) }
}

/// The same without a commit that it belongs to.
pub(super) async fn answer_alone(
    pool: &PgPool,
    given: &IdempotencyAnswer,
) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let done = answer(&mut tx, given).await;
    end(tx, done).await
}

/// Index: the primary key.
const RELEASE: &str = "DELETE FROM idempotency_keys \
     WHERE key_hash = $1 AND caller_hash = $2 AND holder = $3 AND status IS NULL";

pub(super) async fn release(
    pool: &PgPool,
    key: &IdempotencyKey,
    holder: Uuid,
) -> Result<(), StoreError> {
    let query = query(RELEASE).bind(&key.key_hash).bind(&key.caller_hash).bind(holder);
    execute(pool, query).await.map(drop)
}

/// Index: the primary key.
const CORRECT: &str = "UPDATE idempotency_keys SET status = $4 \
     WHERE key_hash = $1 AND caller_hash = $2 AND holder = $3 AND status IS NOT NULL";

/// Index: the primary key.
const FORGET: &str = "DELETE FROM idempotency_keys \
     WHERE key_hash = $1 AND caller_hash = $2 AND holder = $3";

pub(super) async fn correct(
    pool: &PgPool,
    key: &IdempotencyKey,
    holder: Uuid,
    status: Option<u16>,
) -> Result<(), StoreError> {
    let query = query(if status.is_some() { CORRECT } else { FORGET })
        .bind(&key.key_hash)
        .bind(&key.caller_hash)
        .bind(holder);
    let query = match status {
        Some(status) => query.bind(i64::from(status)),
        None => query,
    };
    execute(pool, query).await.map(drop)
}
