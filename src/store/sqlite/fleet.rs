//! The fleet's records: a list by cluster id, and counts for metrics.

use std::collections::BTreeMap;

use sqlx::sqlite::SqlitePool;

use super::super::cursor::Key;
use super::super::rows::decode::count;
use super::super::rows::record::{ListRow, head_columns};
use super::super::rows::rotation::brief_columns;
use super::super::views::pull_secret_start;
use super::super::{Cursor, Page, PullSecretFilter, PullSecretRow, StoreError};
use super::error::map;

// ?1 is the state, ?2 the registry, ?3 the time.
macro_rules! rows {
    ($where:expr) => {
        concat!(
            "SELECT ",
            head_columns!(),
            ", ",
            brief_columns!(),
            " FROM pull_secrets p CROSS JOIN clusters c ON c.cluster_id = p.cluster_id \
             LEFT JOIN rotations r ON r.cluster_id = p.cluster_id AND r.running = 1 WHERE ",
            $where,
            " AND p.cluster_id > ?4 ORDER BY p.cluster_id LIMIT ?5"
        )
    };
}
macro_rules! number {
    ($where:expr) => {
        concat!("SELECT count(*) FROM pull_secrets p WHERE ", $where)
    };
}
/// A set has a handful of members; no index could tell more than reading it does.
macro_rules! of_registry {
    () => {
        "(?2 IS NULL OR EXISTS (SELECT 1 FROM json_each(p.registries) WHERE value = ?2))"
    };
}
macro_rules! every {
    () => {
        concat!("?1 IS NULL AND ?3 IS NOT NULL AND ", of_registry!())
    };
}
macro_rules! of_state {
    () => {
        concat!("p.state = ?1 AND ?3 IS NOT NULL AND ", of_registry!())
    };
}
macro_rules! overdue {
    () => {
        concat!(
            "p.cluster_id IN (SELECT d.cluster_id FROM rotations d \
             INDEXED BY rotations_deadline \
             WHERE d.phase IN ('dual_credential_period', 'rolling_back') AND d.deadline <= ?3) \
             AND (?1 IS NULL OR p.state = ?1) AND ",
            of_registry!()
        )
    };
}

/// Index: the primary keys, `rotations_running`.
pub(super) const ROWS: &str = rows!(every!());
const COUNT: &str = number!(every!());
/// Index: `pull_secrets_by_state`.
pub(super) const STATE_ROWS: &str = rows!(of_state!());
const STATE_COUNT: &str = number!(of_state!());
/// Index: `rotations_deadline`, then the primary keys.
pub(super) const OVERDUE_ROWS: &str = rows!(overdue!());
const OVERDUE_COUNT: &str = number!(overdue!());

pub(super) async fn list(
    reader: &SqlitePool,
    filter: &PullSecretFilter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page<PullSecretRow>, StoreError> {
    let start = pull_secret_start(cursor)?;
    let (rows, number) = match (filter.overdue, filter.state) {
        (true, _) => (OVERDUE_ROWS, OVERDUE_COUNT),
        (false, Some(_)) => (STATE_ROWS, STATE_COUNT),
        (false, None) => (ROWS, COUNT),
    };
    let state = filter.state.map(<&'static str>::from);
    let registry = filter.registry_id.as_ref().map(|id| id.as_str());
    let now = filter.now;
    let mut tx = reader.begin().await.map_err(map)?;
    let query = sqlx::query_as(number).bind(state).bind(registry).bind(now);
    let (total,): (i64,) = query.fetch_one(&mut *tx).await.map_err(map)?;
    let query = sqlx::query_as(rows).bind(state).bind(registry).bind(now);
    let query = query.bind(start).bind(i64::from(limit) + 1);
    let rows: Vec<ListRow> = query.fetch_all(&mut *tx).await.map_err(map)?;
    tx.commit().await.map_err(map)?;
    let items = rows.into_iter().map(PullSecretRow::try_from).collect::<Result<_, _>>()?;
    let key = |row: &PullSecretRow| Key::PullSecret { id: row.cluster_id.clone() };
    Ok(Page::cut(items, limit, Some(count(total)?), key))
}

/// Index: `pull_secrets_by_state`, nothing else.
pub(super) const STATES: &str = "SELECT state, count(*) FROM pull_secrets GROUP BY state";

/// Index: `rotations_phase`, nothing else.
pub(super) const PHASES: &str =
    "SELECT phase, count(*) FROM rotations WHERE running = 1 GROUP BY phase";

pub(super) async fn counts(
    reader: &SqlitePool,
    sql: &'static str,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows: Vec<(String, i64)> = sqlx::query_as(sql).fetch_all(reader).await.map_err(map)?;
    rows.into_iter().map(|(word, number)| Ok((word, count(number)?))).collect()
}
