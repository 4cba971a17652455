//! Whose turn it is to rotate. A lock that ends with its transaction lets one begin at a time.

use async_trait::async_trait;
use sqlx::postgres::PgConnection;

use super::super::rows::decode::count;
use super::super::turns::leaves_line;
use super::super::{Commit, StoreError, Turn, TurnRank, Turns};
use super::PgStore;
use super::error::map;
use super::transaction::{end, query, query_as, read, write as begin};
use crate::ids::ClusterId;
use crate::time::Timestamp;

/// Index: `rotations_phase`, nothing else; then `accounts_deleting` and `rotations_running`.
pub(super) const AT_WORK: &str = "SELECT \
     (SELECT count(*) FROM rotations WHERE running \
      AND phase IN ('creating_credentials', 'verifying_credentials')) + \
     (SELECT count(DISTINCT a.cluster_id) FROM accounts a \
      JOIN rotations r ON r.cluster_id = a.cluster_id AND r.running \
      WHERE a.phase = 'deleting' AND a.next_attempt_at <= $1 \
      AND r.phase NOT IN ('creating_credentials', 'verifying_credentials'))";

/// Index: `rotation_turns_order`; at most as many rows as may be at work.
pub(super) const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM rotation_turns \
     WHERE turn_rank <= $1 AND cluster_id <> $2 LIMIT $3) AS ahead";

/// Index: the primary key.
const SELECT_CALLED: &str = "SELECT EXISTS (SELECT 1 FROM rotation_turns \
     WHERE cluster_id = $1 AND called_until IS NOT NULL)";

/// Index: the primary key.
const WAIT: &str = "INSERT INTO rotation_turns (cluster_id, turn_rank, since) VALUES ($1, $2, $3) \
     ON CONFLICT (cluster_id) DO UPDATE SET called_until = NULL";

/// Index: the primary key.
const LEAVE: &str = "DELETE FROM rotation_turns WHERE cluster_id = $1";

const ANYBODY: &str = "SELECT EXISTS (SELECT 1 FROM rotation_turns)";

/// Index: `rotation_turns_called`.
pub(super) const SEND_BACK: &str = "UPDATE rotation_turns SET called_until = NULL, since = $1 \
     WHERE called_until IS NOT NULL AND called_until <= $1";

/// Index: `rotation_turns_called`.
pub(super) const COUNT_CALLED: &str =
    "SELECT count(*) FROM rotation_turns WHERE called_until IS NOT NULL";

/// Held by whoever begins, to the end of its transaction. Taken after the cluster's own row and before anything
/// that another beginner could want.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(7206170281463155201)";

/// Index: `rotation_turns_order`, then primary keys. Rows that are being committed are passed over: a caller
/// never waits for them, so it cannot be waited for in a circle.
pub(super) const CALL: &str = "WITH next AS (SELECT cluster_id FROM rotation_turns \
     WHERE called_until IS NULL ORDER BY turn_rank, since, cluster_id LIMIT $1 \
     FOR NO KEY UPDATE SKIP LOCKED), \
     free AS (SELECT p.cluster_id FROM pull_secrets p JOIN next USING (cluster_id) \
     FOR NO KEY UPDATE OF p SKIP LOCKED), \
     called AS (UPDATE rotation_turns t SET called_until = $3 FROM free \
     WHERE t.cluster_id = free.cluster_id RETURNING t.cluster_id) \
     UPDATE pull_secrets p SET due_at = least(p.due_at, $2) FROM called \
     WHERE p.cluster_id = called.cluster_id";

#[async_trait]
impl Turns for PgStore {
    async fn has_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        max: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut tx = read(&self.pool).await?;
        let turn = has_turn(&mut tx, cluster_id, rank, max, now).await;
        end(tx, turn).await
    }

    async fn wait_for_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tx = begin(&self.pool).await?;
        let done = wait(&mut tx, cluster_id, rank, now).await;
        end(tx, done).await
    }

    async fn call_turns(
        &self,
        max: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut tx = begin(&self.pool).await?;
        let called = call(&mut tx, max, now, until).await;
        end(tx, called).await
    }
}

/// Says `NoTurn` where the rotation may not begin, and keeps the line.
pub(super) async fn write(db: &mut PgConnection, commit: &Commit<'_>) -> Result<(), StoreError> {
    let cluster_id = commit.cluster_id;
    match commit.turn {
        Some(Turn::Take { rank, max }) => {
            query(ONE_AT_A_TIME).execute(&mut *db).await.map_err(map)?;
            if !has_turn(db, cluster_id, rank, max, commit.at).await? {
                return Err(StoreError::NoTurn);
            }
        }
        Some(Turn::Wait { rank }) => wait(db, cluster_id, rank, commit.at).await?,
        None => {}
    }
    if leaves_line(commit) {
        query(LEAVE).bind(cluster_id.as_str()).execute(db).await.map_err(map)?;
    }
    Ok(())
}

async fn has_turn(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
    rank: TurnRank,
    max: u32,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let at_work = at_work(db, now).await?;
    let query = query_as(SELECT_CALLED).bind(cluster_id.as_str());
    let (called,): (bool,) = query.fetch_one(&mut *db).await.map_err(map)?;
    if called {
        return Ok(at_work < i64::from(max));
    }
    let query = query_as(AHEAD).bind(rank.number()).bind(cluster_id.as_str());
    let (ahead,): (i64,) = query.bind(i64::from(max)).fetch_one(&mut *db).await.map_err(map)?;
    Ok(at_work + ahead < i64::from(max))
}

async fn at_work(db: &mut PgConnection, now: Timestamp) -> Result<i64, StoreError> {
    let (number,): (i64,) = query_as(AT_WORK).bind(now).fetch_one(db).await.map_err(map)?;
    Ok(number)
}

async fn wait(
    db: &mut PgConnection,
    cluster_id: &ClusterId,
    rank: TurnRank,
    now: Timestamp,
) -> Result<(), StoreError> {
    let query = query(WAIT).bind(cluster_id.as_str()).bind(rank.number()).bind(now);
    query.execute(db).await.map_err(map).map(drop)
}

async fn call(
    db: &mut PgConnection,
    max: u32,
    now: Timestamp,
    until: Timestamp,
) -> Result<u64, StoreError> {
    let (anybody,): (bool,) = query_as(ANYBODY).fetch_one(&mut *db).await.map_err(map)?;
    if !anybody {
        return Ok(0);
    }
    query(SEND_BACK).bind(now).execute(&mut *db).await.map_err(map)?;
    let (called,): (i64,) = query_as(COUNT_CALLED).fetch_one(&mut *db).await.map_err(map)?;
    let room = (i64::from(max) - at_work(db, now).await? - called).max(0);
    let query = query(CALL).bind(room).bind(now).bind(until);
    let done = query.execute(db).await.map_err(map)?;
    count(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}
