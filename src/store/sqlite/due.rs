//! What is due. A tick costs what is due, never what exists, and takes no lock when nothing is.

use sqlx::query::QueryAs;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool};

use super::super::StoreError;
use super::super::rows::decode::{count, signed, word};
use super::error::map;
use super::write::Write;
use crate::ids::{AccountId, CallToken, ClusterId};
use crate::time::Timestamp;

/// Index: `pull_secrets_due`.
pub(super) const SELECT_DUE: &str = "SELECT cluster_id FROM pull_secrets \
     WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at, cluster_id LIMIT ?2";

type Select = QueryAs<'static, Sqlite, (String,), SqliteArguments>;

fn select(now: Timestamp, limit: u32) -> Select {
    sqlx::query_as(SELECT_DUE).bind(now).bind(limit)
}

/// Index: the primary key.
const PUSH: &str = "UPDATE pull_secrets SET due_at = ?2 WHERE cluster_id = ?1";

pub(super) async fn due(
    reader: &SqlitePool,
    writer: &SqlitePool,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let select = |limit: u32| sqlx::query_as::<_, (String,)>(SELECT_DUE).bind(now).bind(limit);
    if select(1).fetch_optional(reader).await.map_err(map)?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = Write::begin(writer).await?;
    let taken = take(&mut tx, now, limit, push_until).await;
    tx.end(taken).await
}

async fn take(
    db: &mut SqliteConnection,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let rows = select(now, limit).fetch_all(&mut *db).await.map_err(map)?;
    for (cluster_id,) in &rows {
        let push = sqlx::query(PUSH).bind(cluster_id).bind(push_until);
        push.execute(&mut *db).await.map_err(map)?;
    }
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}

/// Index: `pull_secrets_due`.
pub(super) const COUNT_DUE: &str =
    "SELECT count(*) FROM pull_secrets WHERE due_at IS NOT NULL AND due_at <= ?1";

pub(super) async fn due_count(reader: &SqlitePool, now: Timestamp) -> Result<u64, StoreError> {
    let query = sqlx::query_as(COUNT_DUE).bind(now);
    let (number,): (i64,) = query.fetch_one(reader).await.map_err(map)?;
    count(number)
}

/// Index: both primary keys.
const RESCHEDULE: &str = "UPDATE pull_secrets SET due_at = ?3 WHERE cluster_id = ?1 \
     AND EXISTS (SELECT 1 FROM clusters c WHERE c.cluster_id = ?1 AND c.version = ?2)";

pub(super) async fn reschedule(
    writer: &SqlitePool,
    cluster_id: &ClusterId,
    version: u64,
    due_at: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let query = sqlx::query(RESCHEDULE).bind(cluster_id.as_str()).bind(signed(version));
    let done = query.bind(due_at).execute(writer).await.map_err(map)?;
    Ok(done.rows_affected() == 1)
}

/// Index: the unique one of `accounts.account_id`.
const IS_CURRENT: &str =
    "SELECT EXISTS (SELECT 1 FROM accounts WHERE account_id = ?1 AND call_token = ?2)";

pub(super) async fn is_current(
    reader: &SqlitePool,
    account_id: AccountId,
    token: CallToken,
) -> Result<bool, StoreError> {
    let query = sqlx::query_as(IS_CURRENT);
    let query = query.bind(account_id.0).bind(token.0);
    let (current,): (bool,) = query.fetch_one(reader).await.map_err(map)?;
    Ok(current)
}

/// Index: `accounts_open_calls`.
pub(super) const SELECT_OPEN_CALLS: &str = "SELECT DISTINCT cluster_id FROM accounts \
     WHERE call_token IS NOT NULL ORDER BY cluster_id";

pub(super) async fn open_calls(reader: &SqlitePool) -> Result<Vec<ClusterId>, StoreError> {
    let rows: Vec<(String,)> =
        sqlx::query_as(SELECT_OPEN_CALLS).fetch_all(reader).await.map_err(map)?;
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}
