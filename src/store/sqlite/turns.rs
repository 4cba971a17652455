//! Whose turn it is to rotate. The single writer sees to it that one begins at a time.

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::super::rows::decode::count;
use super::super::turns::leaves_line;
use super::super::{Commit, StoreError, Turn, TurnRank, Turns};
use super::SqliteStore;
use super::error::map;
use super::write::Write;
use crate::ids::ClusterId;
use crate::time::Timestamp;

/// Index: `rotations_phase`, nothing else; then `accounts_deleting` and `rotations_running`.
pub(super) const AT_WORK: &str = "SELECT \
     (SELECT count(*) FROM rotations WHERE running = 1 \
      AND phase IN ('creating_credentials', 'verifying_credentials')) + \
     (SELECT count(DISTINCT a.cluster_id) FROM accounts a \
      JOIN rotations r ON r.cluster_id = a.cluster_id AND r.running = 1 \
      WHERE a.phase = 'deleting' AND a.next_attempt_at <= ?1 \
      AND r.phase NOT IN ('creating_credentials', 'verifying_credentials'))";

/// Index: `rotation_turns_order`; at most as many rows as may be at work.
pub(super) const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM rotation_turns \
     WHERE turn_rank <= ?1 AND cluster_id <> ?2 LIMIT ?3) AS ahead";

/// Index: the primary key.
const SELECT_CALLED: &str = "SELECT EXISTS (SELECT 1 FROM rotation_turns \
     WHERE cluster_id = ?1 AND called_until IS NOT NULL)";

/// Index: the primary key.
const WAIT: &str = "INSERT INTO rotation_turns (cluster_id, turn_rank, since) VALUES (?1, ?2, ?3) \
     ON CONFLICT (cluster_id) DO UPDATE SET called_until = NULL";

/// Index: the primary key.
const LEAVE: &str = "DELETE FROM rotation_turns WHERE cluster_id = ?1";

const ANYBODY: &str = "SELECT EXISTS (SELECT 1 FROM rotation_turns)";

/// Index: `rotation_turns_called`.
pub(super) const SEND_BACK: &str = "UPDATE rotation_turns SET called_until = NULL, since = ?1 \
     WHERE called_until IS NOT NULL AND called_until <= ?1";

/// Index: `rotation_turns_called`.
pub(super) const COUNT_CALLED: &str =
    "SELECT count(*) FROM rotation_turns WHERE called_until IS NOT NULL";

/// Index: `rotation_turns_order`; those who were called already are few.
pub(super) const SELECT_NEXT: &str = "SELECT cluster_id FROM rotation_turns \
     WHERE turn_rank >= 0 AND called_until IS NULL ORDER BY turn_rank, since, cluster_id LIMIT ?1";

/// Index: the primary key.
const CALL: &str = "UPDATE rotation_turns SET called_until = ?2 WHERE cluster_id = ?1";

/// Index: the primary key.
const MAKE_DUE: &str = "UPDATE pull_secrets SET due_at = min(ifnull(due_at, ?2), ?2) \
     WHERE cluster_id = ?1";

#[async_trait]
impl Turns for SqliteStore {
    async fn has_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        max: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut db = self.reader.acquire().await.map_err(map)?;
        has_turn(&mut db, cluster_id, rank, max, now).await
    }

    async fn wait_for_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = wait(&mut tx, cluster_id, rank, now).await;
        tx.end(done).await
    }

    async fn call_turns(
        &self,
        max: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<u64, StoreError> {
        // Mostly nobody waits, or there is no room: nothing is written then, and no lock taken.
        if !anybody(&self.reader).await? || room(&self.reader, max, now).await? == 0 {
            return Ok(0);
        }
        let mut tx = Write::begin(&self.writer).await?;
        let called = call(&mut tx, max, now, until).await;
        tx.end(called).await
    }
}

/// Says `NoTurn` where the rotation may not begin, and keeps the line.
pub(super) async fn write(
    db: &mut SqliteConnection,
    commit: &Commit<'_>,
) -> Result<(), StoreError> {
    let cluster_id = commit.cluster_id;
    match commit.turn {
        Some(Turn::Take { rank, max }) => {
            let turn = has_turn(db, cluster_id, rank, max, commit.at).await?;
            turn.then_some(()).ok_or(StoreError::NoTurn)?;
        }
        Some(Turn::Wait { rank }) => wait(db, cluster_id, rank, commit.at).await?,
        None => {}
    }
    if leaves_line(commit) {
        let query = sqlx::query(LEAVE).bind(cluster_id.as_str());
        query.execute(db).await.map_err(map)?;
    }
    Ok(())
}

async fn has_turn(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    rank: TurnRank,
    max: u32,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let query = sqlx::query_as(AT_WORK).bind(now);
    let (at_work,): (i64,) = query.fetch_one(&mut *db).await.map_err(map)?;
    let query = sqlx::query_as(SELECT_CALLED).bind(cluster_id.as_str());
    let (called,): (bool,) = query.fetch_one(&mut *db).await.map_err(map)?;
    if called {
        return Ok(at_work < i64::from(max));
    }
    let query = sqlx::query_as(AHEAD).bind(rank.number()).bind(cluster_id.as_str()).bind(max);
    let (ahead,): (i64,) = query.fetch_one(&mut *db).await.map_err(map)?;
    Ok(at_work + ahead < i64::from(max))
}

async fn wait(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    rank: TurnRank,
    now: Timestamp,
) -> Result<(), StoreError> {
    let query = sqlx::query(WAIT).bind(cluster_id.as_str()).bind(rank.number()).bind(now);
    query.execute(db).await.map_err(map).map(drop)
}

async fn anybody(reader: &SqlitePool) -> Result<bool, StoreError> {
    let (anybody,): (bool,) = sqlx::query_as(ANYBODY).fetch_one(reader).await.map_err(map)?;
    Ok(anybody)
}

/// The places that nobody has, whoever was called and has not come yet aside.
async fn room(reader: &SqlitePool, max: u32, now: Timestamp) -> Result<i64, StoreError> {
    let query = sqlx::query_as(AT_WORK).bind(now);
    let (at_work,): (i64,) = query.fetch_one(reader).await.map_err(map)?;
    Ok((i64::from(max) - at_work).max(0))
}

async fn call(
    db: &mut SqliteConnection,
    max: u32,
    now: Timestamp,
    until: Timestamp,
) -> Result<u64, StoreError> {
    sqlx::query(SEND_BACK).bind(now).execute(&mut *db).await.map_err(map)?;
    let query = sqlx::query_as(AT_WORK).bind(now);
    let (at_work,): (i64,) = query.fetch_one(&mut *db).await.map_err(map)?;
    let (called,): (i64,) = sqlx::query_as(COUNT_CALLED).fetch_one(&mut *db).await.map_err(map)?;
    let room = (i64::from(max) - at_work - called).max(0);
    let query = sqlx::query_as(SELECT_NEXT).bind(room);
    let next: Vec<(String,)> = query.fetch_all(&mut *db).await.map_err(map)?;
    for (cluster_id,) in &next {
        let query = sqlx::query(CALL).bind(cluster_id).bind(until);
        query.execute(&mut *db).await.map_err(map)?;
        let query = sqlx::query(MAKE_DUE).bind(cluster_id).bind(now);
        query.execute(&mut *db).await.map_err(map)?;
    }
    count(i64::try_from(next.len()).unwrap_or(i64::MAX))
}
