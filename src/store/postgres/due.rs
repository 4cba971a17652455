//! What is due. A tick costs what is due, never what exists.

use sqlx::postgres::PgPool;

use super::super::StoreError;
use super::super::rows::decode::{count, signed, word};
use super::error::map;
use super::transaction::{all, end, execute, one, query, query_as, write};
use crate::ids::{AccountId, CallToken, ClusterId};
use crate::time::Timestamp;

/// Index: `pull_secrets_due`, then the primary key. Rows that others are taking, or committing, are passed
/// over and not waited for. Moving the due time is what takes them, so a taker that dies gives them back.
pub(super) const TAKE: &str = "WITH due AS (SELECT cluster_id, due_at FROM pull_secrets \
     WHERE due_at IS NOT NULL AND due_at <= $1 ORDER BY due_at, cluster_id LIMIT $2 \
     FOR NO KEY UPDATE SKIP LOCKED), \
     taken AS (UPDATE pull_secrets p SET due_at = $3 FROM due WHERE p.cluster_id = due.cluster_id \
     RETURNING p.cluster_id, due.due_at AS was_due_at) \
     SELECT cluster_id FROM taken ORDER BY was_due_at, cluster_id";

pub(super) async fn due(
    pool: &PgPool,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let mut tx = write(pool).await?;
    let query = query_as(TAKE).bind(now).bind(i64::from(limit)).bind(push_until);
    let rows: Result<Vec<(String,)>, _> = query.fetch_all(&mut *tx).await.map_err(map);
    let rows = end(tx, rows).await?;
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}

/// Index: `pull_secrets_due`.
pub(super) const COUNT_DUE: &str =
    "SELECT count(*) FROM pull_secrets WHERE due_at IS NOT NULL AND due_at <= $1";

pub(super) async fn due_count(pool: &PgPool, now: Timestamp) -> Result<u64, StoreError> {
    let (number,): (i64,) = one(pool, query_as(COUNT_DUE).bind(now)).await?;
    count(number)
}

/// Index: both primary keys. The cluster's row is locked first, as a commit does: else a due time that was
/// decided on an old version could be written over the one of a commit that is under way.
const RESCHEDULE: &str = "WITH held AS (SELECT cluster_id FROM clusters \
     WHERE cluster_id = $1 AND version = $2 FOR NO KEY UPDATE) \
     UPDATE pull_secrets p SET due_at = $3 FROM held WHERE p.cluster_id = held.cluster_id";

pub(super) async fn reschedule(
    pool: &PgPool,
    cluster_id: &ClusterId,
    version: u64,
    due_at: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let query = query(RESCHEDULE).bind(cluster_id.as_str()).bind(signed(version)).bind(due_at);
    Ok(execute(pool, query).await? == 1)
}

/// Index: the unique one of `accounts.account_id`.
const IS_CURRENT: &str =
    "SELECT EXISTS (SELECT 1 FROM accounts WHERE account_id = $1 AND call_token = $2)";

pub(super) async fn is_current(
    pool: &PgPool,
    account_id: AccountId,
    token: CallToken,
) -> Result<bool, StoreError> {
    let query = query_as(IS_CURRENT).bind(account_id.0).bind(token.0);
    let (current,): (bool,) = one(pool, query).await?;
    Ok(current)
}

/// Index: `accounts_open_calls`.
pub(super) const SELECT_OPEN_CALLS: &str = "SELECT DISTINCT cluster_id FROM accounts \
     WHERE call_token IS NOT NULL ORDER BY cluster_id";

pub(super) async fn open_calls(pool: &PgPool) -> Result<Vec<ClusterId>, StoreError> {
    let rows: Vec<(String,)> = all(pool, query_as(SELECT_OPEN_CALLS)).await?;
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}
