//! Lists of rotations, newest first, each filter from the index that serves it.

use sqlx::sqlite::{SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::super::rows::decode::count;
use super::super::rows::rotation::{StoredRotation, rotation_columns};
use super::super::rows::rotations::{Part, bind_filter, newest_first, parts};
use super::super::views::rotation_start;
use super::super::{Cursor, Page, RotationFilter, RotationRow, StoreError};
use super::error::map;

macro_rules! rows {
    ($from:expr) => {
        concat!(
            "SELECT ",
            rotation_columns!(),
            $from,
            " AND (created_at, rotation_id) < (?5, ?6) \
             ORDER BY created_at DESC, rotation_id DESC LIMIT ?7"
        )
    };
}

macro_rules! number {
    ($from:expr) => {
        concat!("SELECT count(*)", $from)
    };
}

/// What the API calls history that is not shown any more, and `since`.
macro_rules! shown {
    () => {
        "created_at >= ?3 AND (completed_at IS NULL OR completed_at >= ?4)"
    };
}

// ?1 is the cluster, ?2 the status or, in `overdue`, the time.
macro_rules! of_cluster {
    () => {
        concat!(
            " FROM rotations WHERE cluster_id = ?1 AND (?2 IS NULL OR status = ?2) AND ",
            shown!()
        )
    };
}
macro_rules! of_status {
    () => {
        concat!(" FROM rotations WHERE ?1 IS NULL AND status = ?2 AND ", shown!())
    };
}
macro_rules! of_fleet {
    () => {
        concat!(" FROM rotations WHERE ?1 IS NULL AND ?2 IS NULL AND ", shown!())
    };
}
macro_rules! overdue {
    () => {
        concat!(
            " FROM rotations INDEXED BY rotations_deadline \
             WHERE phase IN ('dual_credential_period', 'rolling_back') AND deadline <= ?2 \
             AND (?1 IS NULL OR cluster_id = ?1) AND ",
            shown!()
        )
    };
}

/// Index: `rotations_by_cluster`.
pub(super) const CLUSTER_ROWS: &str = rows!(of_cluster!());
const CLUSTER_COUNT: &str = number!(of_cluster!());
/// Index: `rotations_by_status`.
pub(super) const STATUS_ROWS: &str = rows!(of_status!());
const STATUS_COUNT: &str = number!(of_status!());
/// Index: `rotations_by_time`.
pub(super) const FLEET_ROWS: &str = rows!(of_fleet!());
const FLEET_COUNT: &str = number!(of_fleet!());
/// Index: `rotations_deadline`; what is overdue is sorted.
pub(super) const OVERDUE_ROWS: &str = rows!(overdue!());
const OVERDUE_COUNT: &str = number!(overdue!());

pub(super) async fn list(
    reader: &SqlitePool,
    filter: &RotationFilter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page<RotationRow>, StoreError> {
    let (at, id) = rotation_start(cursor)?;
    let mut tx = reader.begin().await.map_err(map)?;
    let (mut items, mut total): (Vec<RotationRow>, u64) = (Vec::new(), 0);
    for part in parts(filter) {
        total += number(&mut tx, filter, part).await?;
        items.extend(rows(&mut tx, filter, part, (at, id), limit).await?);
    }
    tx.commit().await.map_err(map)?;
    Ok(newest_first(items, limit, total))
}

async fn rows(
    db: &mut SqliteConnection,
    filter: &RotationFilter,
    part: Part,
    (at, id): (i64, Uuid),
    limit: u32,
) -> Result<Vec<RotationRow>, StoreError> {
    let sql = match part {
        Part::Fleet => FLEET_ROWS,
        Part::OfStatus(_) => STATUS_ROWS,
        Part::OfCluster(_) => CLUSTER_ROWS,
        Part::Overdue => OVERDUE_ROWS,
    };
    let query = bind_filter!(sqlx::query_as(sql), filter, part);
    let query = query.bind(at).bind(id).bind(i64::from(limit) + 1);
    let rows: Vec<StoredRotation> = query.fetch_all(db).await.map_err(map)?;
    rows.into_iter().map(RotationRow::try_from).collect()
}

async fn number(
    db: &mut SqliteConnection,
    filter: &RotationFilter,
    part: Part,
) -> Result<u64, StoreError> {
    let sql = match part {
        Part::Fleet => FLEET_COUNT,
        Part::OfStatus(_) => STATUS_COUNT,
        Part::OfCluster(_) => CLUSTER_COUNT,
        Part::Overdue => OVERDUE_COUNT,
    };
    let query = bind_filter!(sqlx::query_as(sql), filter, part);
    let (number,): (i64,) = query.fetch_one(db).await.map_err(map)?;
    count(number)
}
