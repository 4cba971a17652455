//! What is due. A tick costs what is due, never what exists.

use sqlx::postgres::PgPool;

use super::super::rows::decode::{count, signed};
use super::super::rows::replicas::ClaimRow;
use super::super::{Claimed, OwnedBy, StoreError};
use super::error::map;
use super::transaction::{Select, end, execute, one, query, query_as, write};
use crate::ids::{AccountId, CallToken, ClusterId, ReplicaId};
use crate::time::Timestamp;

// $1 is the taker, $2 the new due time, $3 the limit. Rows that others are taking, or committing, are passed over
// and not waited for. An owner without a row is dead: whoever owns something made its row before.
macro_rules! take {
    ($table:literal, $versions:literal, $which:expr, $order:literal, $shown:literal) => {
        concat!(
            "WITH found AS (SELECT p.cluster_id, p.due_at, p.owner, p.epoch FROM ",
            $table,
            " p WHERE ",
            $which,
            " ORDER BY ",
            $order,
            " LIMIT $3 FOR NO KEY UPDATE OF p SKIP LOCKED), \
             taken AS (UPDATE ",
            $table,
            " p SET due_at = $2, owner = $1, \
             epoch = p.epoch + (p.owner IS DISTINCT FROM $1)::int FROM found \
             WHERE p.cluster_id = found.cluster_id \
             RETURNING p.cluster_id, found.due_at, found.owner, found.epoch) \
             SELECT taken.cluster_id AS cluster_id, c.version AS version, taken.owner AS owner, \
             taken.epoch AS epoch FROM taken JOIN ",
            $versions,
            " c ON c.cluster_id = taken.cluster_id ORDER BY ",
            $shown
        )
    };
}

macro_rules! due {
    ($table:literal, $versions:literal) => {
        take!(
            $table,
            $versions,
            "p.due_at IS NOT NULL AND p.due_at <= $4 AND (p.owner IS NULL OR p.owner = $1 \
             OR NOT EXISTS (SELECT 1 FROM replicas r WHERE r.replica_id = p.owner))",
            "p.due_at, p.cluster_id",
            "taken.due_at, taken.cluster_id"
        )
    };
}

macro_rules! orphans {
    ($table:literal, $versions:literal) => {
        take!(
            $table,
            $versions,
            "p.owner IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.replica_id = p.owner)",
            "p.owner, p.cluster_id",
            "taken.owner, taken.cluster_id"
        )
    };
}

/// Index: `pull_secrets_due`, then the primary keys.
pub(super) const TAKE: &str = due!("pull_secrets", "clusters");
/// Index: `break_glass_due`, then the primary key. A claim leaves the version as it is.
pub(super) const TAKE_BREAK_GLASS: &str = due!("break_glass", "break_glass");

/// Index: `pull_secrets_owned`, then the primary keys. Owned is what has work.
pub(super) const TAKE_ORPHANS: &str = orphans!("pull_secrets", "clusters");
/// Index: `break_glass_owned`, then the primary key.
pub(super) const TAKE_BREAK_GLASS_ORPHANS: &str = orphans!("break_glass", "break_glass");

pub(super) async fn due(
    pool: &PgPool,
    statement: &'static str,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let query = query_as(statement).bind(taker.0).bind(push_until).bind(i64::from(limit)).bind(now);
    take(pool, query, taker).await
}

pub(super) async fn orphans(
    pool: &PgPool,
    statement: &'static str,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let query = query_as(statement).bind(taker.0).bind(push_until).bind(i64::from(limit));
    take(pool, query, taker).await
}

async fn take(
    pool: &PgPool,
    query: Select<'_, ClaimRow>,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let mut tx = write(pool).await?;
    let rows = query.fetch_all(&mut *tx).await.map_err(map);
    let rows = end(tx, rows).await?;
    rows.into_iter().map(|row| row.taken_by(taker)).collect()
}

/// Index: `pull_secrets_due`, `break_glass_due`.
pub(super) const COUNT_DUE: &str = "SELECT \
     (SELECT count(*) FROM pull_secrets WHERE due_at IS NOT NULL AND due_at <= $1) + \
     (SELECT count(*) FROM break_glass WHERE due_at IS NOT NULL AND due_at <= $1)";

pub(super) async fn due_count(pool: &PgPool, now: Timestamp) -> Result<u64, StoreError> {
    let (number,): (i64,) = one(pool, query_as(COUNT_DUE).bind(now)).await?;
    count(number)
}

/// Index: both primary keys. The cluster's row is locked first, as a commit does: else a due time that was
/// decided on an old version could be written over the one of a commit that is under way.
const RESCHEDULE: &str = "WITH held AS (SELECT cluster_id FROM clusters \
     WHERE cluster_id = $1 AND version = $2 FOR NO KEY UPDATE) \
     UPDATE pull_secrets p SET due_at = $3, owner = $4 FROM held \
     WHERE p.cluster_id = held.cluster_id AND p.epoch = $5";

pub(super) async fn reschedule(
    pool: &PgPool,
    cluster_id: &ClusterId,
    version: u64,
    due_at: Option<Timestamp>,
    ownership: OwnedBy,
) -> Result<bool, StoreError> {
    let query = query(RESCHEDULE).bind(cluster_id.as_str()).bind(signed(version)).bind(due_at);
    let query = query.bind(ownership.owner.map(|owner| owner.0)).bind(signed(ownership.epoch));
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
