//! What is due. A tick costs what is due, never what exists, and takes no lock when nothing is.

use sqlx::query::QueryAs;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool};

use super::super::rows::decode::{count, signed};
use super::super::rows::replicas::ClaimRow;
use super::super::{Claimed, OwnedBy, StoreError};
use super::error::map;
use super::write::Write;
use crate::ids::{AccountId, CallToken, ClusterId, ReplicaId};
use crate::time::Timestamp;

macro_rules! claimable {
    ($table:literal, $versions:literal, $rest:literal) => {
        concat!(
            "SELECT p.cluster_id AS cluster_id, c.version AS version, p.owner AS owner, p.epoch AS epoch \
             FROM ",
            $table,
            " p JOIN ",
            $versions,
            " c ON c.cluster_id = p.cluster_id WHERE ",
            $rest
        )
    };
}

macro_rules! due {
    ($table:literal, $versions:literal) => {
        claimable!(
            $table,
            $versions,
            "p.due_at IS NOT NULL AND p.due_at <= ?3 AND (p.owner IS NULL OR p.owner = ?1 \
             OR NOT EXISTS (SELECT 1 FROM replicas r WHERE r.replica_id = p.owner)) \
             ORDER BY p.due_at, p.cluster_id LIMIT ?2"
        )
    };
}

macro_rules! orphans {
    ($table:literal, $versions:literal) => {
        claimable!(
            $table,
            $versions,
            "p.owner IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.replica_id = p.owner) \
             ORDER BY p.owner, p.cluster_id LIMIT ?1"
        )
    };
}

/// What is claimed: of one table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claims {
    due: &'static str,
    orphans: &'static str,
    take: &'static str,
}

pub(super) const PULL_SECRETS: Claims =
    Claims { due: SELECT_DUE, orphans: SELECT_ORPHANS, take: TAKE };
pub(super) const BREAK_GLASS: Claims = Claims {
    due: SELECT_BREAK_GLASS_DUE,
    orphans: SELECT_BREAK_GLASS_ORPHANS,
    take: TAKE_BREAK_GLASS,
};

/// Index: `pull_secrets_due`, the primary keys.
pub(super) const SELECT_DUE: &str = due!("pull_secrets", "clusters");
/// Index: `break_glass_due`, the primary key.
pub(super) const SELECT_BREAK_GLASS_DUE: &str = due!("break_glass", "break_glass");

/// Index: `pull_secrets_owned`, the primary keys.
pub(super) const SELECT_ORPHANS: &str = orphans!("pull_secrets", "clusters");
/// Index: `break_glass_owned`, the primary key.
pub(super) const SELECT_BREAK_GLASS_ORPHANS: &str = orphans!("break_glass", "break_glass");

type Select<'q> = QueryAs<'q, Sqlite, ClaimRow, SqliteArguments>;

/// Index: the primary key.
const TAKE: &str =
    "UPDATE pull_secrets SET due_at = ?2, owner = ?3, epoch = ?4 WHERE cluster_id = ?1";
/// Index: the primary key.
const TAKE_BREAK_GLASS: &str =
    "UPDATE break_glass SET due_at = ?2, owner = ?3, epoch = ?4 WHERE cluster_id = ?1";

pub(super) async fn due(
    (reader, writer): (&SqlitePool, &SqlitePool),
    claims: Claims,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let select = |limit: u32| sqlx::query_as(claims.due).bind(taker.0).bind(limit).bind(now);
    let first: Option<ClaimRow> = select(1).fetch_optional(reader).await.map_err(map)?;
    if first.is_none() {
        return Ok(Vec::new());
    }
    take_all(writer, select(limit), claims.take, push_until, taker).await
}

pub(super) async fn orphans(
    (reader, writer): (&SqlitePool, &SqlitePool),
    claims: Claims,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let select = |limit: u32| sqlx::query_as(claims.orphans).bind(limit);
    let first: Option<ClaimRow> = select(1).fetch_optional(reader).await.map_err(map)?;
    if first.is_none() {
        return Ok(Vec::new());
    }
    take_all(writer, select(limit), claims.take, push_until, taker).await
}

async fn take_all(
    writer: &SqlitePool,
    select: Select<'_>,
    statement: &'static str,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let mut tx = Write::begin(writer).await?;
    let taken = take(&mut tx, select, statement, push_until, taker).await;
    tx.end(taken).await
}

async fn take(
    db: &mut SqliteConnection,
    select: Select<'_>,
    statement: &'static str,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    let rows = select.fetch_all(&mut *db).await.map_err(map)?;
    let mut taken = Vec::with_capacity(rows.len());
    for row in rows {
        let claimed = row.taken_by(taker)?;
        let take = sqlx::query(statement).bind(claimed.cluster_id.as_str()).bind(push_until);
        let take = take.bind(taker.0).bind(signed(claimed.ownership.epoch));
        take.execute(&mut *db).await.map_err(map)?;
        taken.push(claimed);
    }
    Ok(taken)
}

/// Index: `pull_secrets_due`, `break_glass_due`.
pub(super) const COUNT_DUE: &str = "SELECT \
     (SELECT count(*) FROM pull_secrets WHERE due_at IS NOT NULL AND due_at <= ?1) + \
     (SELECT count(*) FROM break_glass WHERE due_at IS NOT NULL AND due_at <= ?1)";

pub(super) async fn due_count(reader: &SqlitePool, now: Timestamp) -> Result<u64, StoreError> {
    let query = sqlx::query_as(COUNT_DUE).bind(now);
    let (number,): (i64,) = query.fetch_one(reader).await.map_err(map)?;
    count(number)
}

/// Index: both primary keys.
const RESCHEDULE: &str = "UPDATE pull_secrets SET due_at = ?3, owner = ?4 WHERE cluster_id = ?1 \
     AND epoch = ?5 AND EXISTS (SELECT 1 FROM clusters c WHERE c.cluster_id = ?1 AND c.version = ?2)";

pub(super) async fn reschedule(
    writer: &SqlitePool,
    cluster_id: &ClusterId,
    version: u64,
    due_at: Option<Timestamp>,
    ownership: OwnedBy,
) -> Result<bool, StoreError> {
    let query = sqlx::query(RESCHEDULE).bind(cluster_id.as_str()).bind(signed(version));
    let query = query.bind(due_at).bind(ownership.owner.map(|owner| owner.0));
    let done = query.bind(signed(ownership.epoch)).execute(writer).await.map_err(map)?;
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
