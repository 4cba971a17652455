//! The statements of sweeps, and the transactions that are made of several of them.

use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::super::super::rows::decode::{generation, signed};
use super::super::super::rows::sweep::{RestoredRow, sweep_columns, unknown_columns};
use super::super::super::sweep::{range_of, slug_range};
use super::super::super::{
    AuditRow, AuditSeal, DeletionAnswer, DeletionCall, Restored, StoreError, SweepCommit,
    SweepStored, SweepSummary,
};
use super::super::audit;
use super::super::error::map;
use crate::ids::{Generation, RegistryId};
use crate::state::sweep::{Beyond, Whose};
use crate::time::Timestamp;

/// Index: the primary key.
pub(in super::super) const PLAN: &str = "INSERT INTO sweeps (registry_id, due_at) VALUES (?1, ?2) \
     ON CONFLICT (registry_id) DO NOTHING";

/// One row per registry: no index is needed.
pub(in super::super) const SELECT_DUE: &str = "SELECT registry_id FROM sweeps WHERE due_at <= ?1 \
     AND (lease_until IS NULL OR lease_until <= ?1) ORDER BY due_at, registry_id";

/// Index: the primary key.
pub(in super::super) const BEGIN: &str = "INSERT INTO sweeps (registry_id, due_at, holder, lease_until) \
     VALUES (?1, ?3, ?2, ?4) ON CONFLICT (registry_id) DO UPDATE \
     SET holder = excluded.holder, lease_until = excluded.lease_until \
     WHERE (sweeps.lease_until IS NULL OR sweeps.lease_until <= ?3) \
     AND (NOT ?5 OR sweeps.due_at <= ?3)";

/// Index: the primary key.
pub(in super::super) const RELEASE: &str = "UPDATE sweeps SET holder = NULL, lease_until = NULL \
     WHERE registry_id = ?1 AND holder = ?2";

/// Index: the primary key.
pub(in super::super) const FAIL: &str = "UPDATE sweeps SET holder = NULL, lease_until = NULL, due_at = ?3, \
     failed_at = ?4, last_error = ?5 WHERE registry_id = ?1 AND holder = ?2";

/// Index: the primary key.
pub(in super::super) const END: &str = "UPDATE sweeps SET holder = NULL, lease_until = NULL, due_at = ?3, \
     started_at = ?4, finished_at = ?5, listed = ?6, ours = ?7, unknown_accounts = ?8, \
     foreign_accounts = ?9, missing = ?10, failed_at = NULL, last_error = NULL \
     WHERE registry_id = ?1 AND holder = ?2";

pub(in super::super) const SELECT_STATES: &str =
    concat!("SELECT ", sweep_columns!(), " FROM sweeps");

/// Index: the primary key.
pub(in super::super) const FORGET: &str = "DELETE FROM unknown_accounts \
     WHERE registry_id = ?1 AND name = ?2 AND call_token IS NULL";

/// Index: the primary key. What is known keeps the time at which it was first seen.
pub(in super::super) const REMEMBER: &str = "INSERT INTO unknown_accounts \
     (registry_id, name, remote_id, cluster_id, generation, first_seen_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (registry_id, name) DO NOTHING";

/// A row that wants the account, or says that it is somebody else's. At whichever registry: one that got another
/// id, or is configured twice, must not cost an account. Index: `accounts_by_name`.
macro_rules! no_row_wants {
    () => {
        "NOT EXISTS (SELECT 1 FROM accounts a WHERE a.name = unknown_accounts.name \
         AND (a.phase <> 'gone' OR a.gone_how = 'foreign'))"
    };
}
/// Index: `restores_open`.
macro_rules! not_restored {
    () => {
        "NOT EXISTS (SELECT 1 FROM restores WHERE acknowledged_at IS NULL)"
    };
}

/// Index: the primary key.
pub(in super::super) const DECIDE: &str = concat!(
    "UPDATE unknown_accounts SET decided_at = ?3, next_attempt_at = ?3 \
     WHERE registry_id = ?1 AND name = ?2 AND decided_at IS NULL AND ",
    no_row_wants!(),
    " AND ",
    not_restored!()
);

/// Index: the primary key.
pub(in super::super) const RAISE_ONE: &str = "INSERT INTO clusters \
     (cluster_id, version, last_generation, created_at, updated_at) VALUES (?1, 1, ?2, ?3, ?3) \
     ON CONFLICT (cluster_id) DO UPDATE SET last_generation = ?2, version = version + 1, \
     updated_at = ?3 WHERE clusters.last_generation < ?2";

/// Index: the primary key.
pub(in super::super) const RAISE_RANGE: &str = "UPDATE clusters SET last_generation = ?3, version = version + 1, \
     updated_at = ?4 WHERE cluster_id BETWEEN ?1 AND ?2 AND last_generation < ?3";

/// Index: `accounts_by_name`. Rows of other registries only say that an account is wanted.
pub(in super::super) const SELECT_NAMED: &str = "SELECT a.name, a.cluster_id, a.phase, a.gone_at, \
     a.gone_how FROM json_each(?2) n CROSS JOIN accounts a ON a.name = n.value WHERE \
     (a.registry_id = ?1 OR a.phase <> 'gone' OR a.gone_how = 'foreign')";

/// Index: `accounts_serving`.
pub(in super::super) const SELECT_SERVING: &str = "SELECT account_id, cluster_id, name, created_at, verified_at \
     FROM accounts WHERE registry_id = ?1 AND phase = 'serving' AND name > ?2 ORDER BY name LIMIT ?3";

/// Index: the primary key.
pub(in super::super) const SELECT_COUNTERS: &str = "SELECT c.cluster_id, c.last_generation \
     FROM json_each(?1) n CROSS JOIN clusters c ON c.cluster_id = n.value";

/// Index: the primary key.
pub(in super::super) const SELECT_SLUG: &str = "SELECT max(last_generation) FROM clusters \
     WHERE cluster_id BETWEEN ?1 AND ?2";

/// Index: the primary key.
pub(in super::super) const SELECT_UNKNOWN: &str = concat!(
    "SELECT ",
    unknown_columns!(),
    " FROM unknown_accounts WHERE registry_id = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
);

/// Index: `unknown_accounts_due`.
pub(in super::super) const SELECT_DELETIONS: &str = concat!(
    "SELECT ",
    unknown_columns!(),
    " FROM unknown_accounts WHERE registry_id = ?1 AND next_attempt_at IS NOT NULL AND next_attempt_at <= ?2 \
     ORDER BY next_attempt_at, name LIMIT ?3"
);

/// Index: the primary key.
pub(in super::super) const ANNOUNCE: &str = concat!(
    "UPDATE unknown_accounts SET call_token = ?3, call_at = ?4, next_attempt_at = ?5, \
     attempts = attempts + 1 WHERE registry_id = ?1 AND name = ?2 AND decided_at IS NOT NULL \
     AND call_token IS NULL AND next_attempt_at <= ?4 AND ",
    no_row_wants!(),
    " AND ",
    not_restored!()
);

/// Index: the primary key.
pub(in super::super) const PUT_OFF: &str = "UPDATE unknown_accounts SET next_attempt_at = ?3 \
     WHERE registry_id = ?1 AND name = ?2 AND decided_at IS NOT NULL AND call_token IS NULL";

/// Index: the primary key.
pub(in super::super) const IS_CURRENT: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM unknown_accounts WHERE registry_id = ?1 AND name = ?2 \
     AND call_token = ?3 AND ",
    no_row_wants!(),
    " AND ",
    not_restored!(),
    ")"
);

/// Index: the primary key.
pub(in super::super) const GONE: &str =
    "DELETE FROM unknown_accounts WHERE registry_id = ?1 AND name = ?2 AND call_token = ?3";

/// Index: the primary key.
pub(in super::super) const AGAIN: &str = "UPDATE unknown_accounts SET call_token = NULL, call_at = NULL, \
     next_attempt_at = ?4, last_error = ?5 \
     WHERE registry_id = ?1 AND name = ?2 AND call_token = ?3";

pub(in super::super) const SELECT_RESTORED: &str =
    "SELECT restored_at, reason, acknowledged_at, acknowledged_by FROM restores WHERE one = 1";

pub(in super::super) const LATCH: &str = "INSERT INTO restores (one, restored_at, reason) VALUES (1, ?1, ?2) \
     ON CONFLICT (one) DO UPDATE SET restored_at = excluded.restored_at, \
     reason = excluded.reason, acknowledged_at = NULL, acknowledged_by = NULL \
     WHERE restores.acknowledged_at IS NOT NULL";

/// Reads every record: rare, and each of them is doubted.
pub(in super::super) const WAKE_ALL: &str =
    "UPDATE pull_secrets SET due_at = ?1 WHERE due_at IS NULL OR due_at > ?1";
pub(in super::super) const HURRY: &str = "UPDATE sweeps SET due_at = ?1 WHERE due_at > ?1";

pub(in super::super) const ACKNOWLEDGE: &str = "UPDATE restores SET acknowledged_at = ?1, acknowledged_by = ?2 \
     WHERE one = 1 AND acknowledged_at IS NULL";

pub(in super::super) const SELECT_TIMELINE: &str = "SELECT timeline FROM timelines WHERE one = 1";
pub(in super::super) const NOTE_TIMELINE: &str = "INSERT INTO timelines (one, timeline) VALUES (1, ?1) \
     ON CONFLICT (one) DO UPDATE SET timeline = excluded.timeline";

type Seal<'a> = Option<&'a dyn AuditSeal>;

pub(super) async fn end_sweep(
    db: &mut SqliteConnection,
    commit: &SweepCommit<'_>,
    seal: Seal<'_>,
) -> Result<SweepStored, StoreError> {
    write_summary(db, commit).await?;
    let registry_id = commit.registry_id.as_str();
    for name in &commit.found.settled {
        let query = sqlx::query(FORGET).bind(registry_id).bind(name);
        query.execute(&mut *db).await.map_err(map)?;
    }
    for unknown in commit.found.unknown.iter().filter(|new| new.first_seen_at == commit.at) {
        let query = sqlx::query(REMEMBER)
            .bind(registry_id)
            .bind(unknown.name.as_str())
            .bind(unknown.remote_id.as_deref())
            .bind(unknown.cluster_id.as_ref().map(|id| id.as_str()))
            .bind(unknown.generation.map(|generation| i64::from(generation.0)))
            .bind(unknown.first_seen_at);
        query.execute(&mut *db).await.map_err(map)?;
    }
    raise(db, &commit.found.beyond, commit.at).await?;
    let mut stored = SweepStored::default();
    if let Some((reason, row)) = &commit.restored {
        stored.latched = latch(db, commit.at, reason, row, seal).await?;
    }
    let mut rows = commit.audit.clone();
    for (name, row) in &commit.decisions {
        let query = sqlx::query(DECIDE).bind(registry_id).bind(name).bind(commit.at);
        if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 1 {
            stored.decided.push(name.clone());
            rows.push(row.clone());
        }
    }
    audit::append(db, &rows, seal).await?;
    Ok(stored)
}

/// First in its transaction: whoever lost the registry writes nothing.
pub(super) async fn write_summary(
    db: &mut SqliteConnection,
    commit: &SweepCommit<'_>,
) -> Result<(), StoreError> {
    let summary = SweepSummary::of(commit.found, commit.started_at, commit.at);
    let query = sqlx::query(END)
        .bind(commit.registry_id.as_str())
        .bind(commit.holder)
        .bind(commit.due_at)
        .bind(summary.started_at)
        .bind(summary.finished_at)
        .bind(signed(summary.listed))
        .bind(signed(summary.ours))
        .bind(signed(summary.unknown))
        .bind(signed(summary.foreign))
        .bind(signed(summary.missing));
    match query.execute(&mut *db).await.map_err(map)?.rows_affected() {
        1 => Ok(()),
        _ => Err(StoreError::LeaseLost),
    }
}

/// No number that a registry has seen is ever given out again.
pub(super) async fn raise(
    db: &mut SqliteConnection,
    beyond: &[Beyond],
    at: Timestamp,
) -> Result<(), StoreError> {
    for one in beyond {
        let (first, last) = range_of(one);
        let highest = i64::from(one.generation.0);
        let query = match &one.whose {
            Whose::Cluster(_) => sqlx::query(RAISE_ONE).bind(first),
            Whose::Slug(_) => sqlx::query(RAISE_RANGE).bind(first).bind(last),
        };
        query.bind(highest).bind(at).execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

pub(super) async fn latch(
    db: &mut SqliteConnection,
    at: Timestamp,
    reason: &str,
    row: &AuditRow,
    seal: Seal<'_>,
) -> Result<bool, StoreError> {
    let query = sqlx::query(LATCH).bind(at).bind(reason);
    if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 0 {
        return Ok(false);
    }
    for all in [WAKE_ALL, HURRY] {
        sqlx::query(all).bind(at).execute(&mut *db).await.map_err(map)?;
    }
    audit::append(db, std::slice::from_ref(row), seal).await?;
    Ok(true)
}

pub(super) async fn announce(
    db: &mut SqliteConnection,
    call: &DeletionCall,
    row: &AuditRow,
    seal: Seal<'_>,
) -> Result<bool, StoreError> {
    let (registry_id, name) = (call.registry_id.as_str(), call.name.as_str());
    let query = sqlx::query(ANNOUNCE)
        .bind(registry_id)
        .bind(name)
        .bind(call.token.0)
        .bind(call.at)
        .bind(call.lost_at);
    if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 1 {
        audit::append(db, std::slice::from_ref(row), seal).await?;
        return Ok(true);
    }
    let query = sqlx::query(PUT_OFF).bind(registry_id).bind(name).bind(call.lost_at);
    query.execute(&mut *db).await.map_err(map)?;
    Ok(false)
}

pub(super) async fn answer(
    db: &mut SqliteConnection,
    call: &DeletionCall,
    answer: &DeletionAnswer,
    row: &AuditRow,
    seal: Seal<'_>,
) -> Result<bool, StoreError> {
    let (registry_id, name) = (call.registry_id.as_str(), call.name.as_str());
    let query = match answer {
        DeletionAnswer::Gone => sqlx::query(GONE).bind(registry_id).bind(name).bind(call.token.0),
        DeletionAnswer::Again { at, error } => {
            let query = sqlx::query(AGAIN).bind(registry_id).bind(name).bind(call.token.0);
            query.bind(*at).bind(error)
        }
    };
    if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 0 {
        return Ok(false);
    }
    audit::append(db, std::slice::from_ref(row), seal).await?;
    Ok(true)
}

pub(super) async fn acknowledge(
    db: &mut SqliteConnection,
    at: Timestamp,
    by: &str,
    row: &AuditRow,
    seal: Seal<'_>,
) -> Result<Option<Restored>, StoreError> {
    let query = sqlx::query(ACKNOWLEDGE).bind(at).bind(by);
    if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 0 {
        return Ok(None);
    }
    sqlx::query(HURRY).bind(at).execute(&mut *db).await.map_err(map)?;
    audit::append(db, std::slice::from_ref(row), seal).await?;
    let row: RestoredRow = sqlx::query_as(SELECT_RESTORED).fetch_one(db).await.map_err(map)?;
    Ok(Some(row.into()))
}

pub(super) async fn plan(
    db: &mut SqliteConnection,
    plans: &[(RegistryId, Timestamp)],
) -> Result<(), StoreError> {
    for (registry_id, due_at) in plans {
        let query = sqlx::query(PLAN).bind(registry_id.as_str()).bind(*due_at);
        query.execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

pub(super) async fn slugs(
    reader: &SqlitePool,
    slugs: &[String],
) -> Result<Vec<(String, Generation)>, StoreError> {
    let mut tx = reader.begin().await.map_err(map)?;
    let mut counters = Vec::new();
    for slug in slugs {
        let (first, last) = slug_range(slug);
        let query = sqlx::query_as(SELECT_SLUG).bind(first).bind(last);
        let (highest,): (Option<i64>,) = query.fetch_one(&mut *tx).await.map_err(map)?;
        if let Some(highest) = highest {
            counters.push((slug.clone(), generation(highest)?));
        }
    }
    tx.commit().await.map_err(map)?;
    Ok(counters)
}

pub(super) async fn note(
    db: &mut SqliteConnection,
    timeline: &str,
    sweep_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    sqlx::query(NOTE_TIMELINE).bind(timeline).execute(&mut *db).await.map_err(map)?;
    if let Some(at) = sweep_at {
        sqlx::query(HURRY).bind(at).execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}
