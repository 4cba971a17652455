//! The rows of `rotations`.

use sqlx::SqliteConnection;

use super::super::commit::RotationChange;
use super::super::rows::rotation::{
    Open, StoredRotation, bind_rotation, rotation_changes, rotation_columns,
};
use super::super::{RotationRow, StoreError};
use super::error::map;
use crate::ids::{ClusterId, RotationId};
use crate::state::pull_secret::Rotation;

/// Index: `rotations_open`. At most the running one and one that waits for it.
pub(super) const SELECT_OPEN: &str = concat!(
    "SELECT running, ",
    rotation_columns!(),
    " FROM rotations WHERE cluster_id = ?1 AND status IN ('pending', 'in_progress')"
);

pub(super) async fn open(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Open, StoreError> {
    let query = sqlx::query_as(SELECT_OPEN).bind(cluster_id.as_str());
    Open::of(query.fetch_all(db).await.map_err(map)?)
}

/// Index: the primary key.
const SELECT_ONE: &str = concat!(
    "SELECT ",
    rotation_columns!(),
    " FROM rotations WHERE rotation_id = ?1 AND cluster_id = ?2"
);

pub(super) async fn one(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    id: RotationId,
) -> Result<Option<Rotation>, StoreError> {
    let row: Option<StoredRotation> = sqlx::query_as(SELECT_ONE)
        .bind(id.0)
        .bind(cluster_id.as_str())
        .fetch_optional(db)
        .await
        .map_err(map)?;
    row.map(|row| RotationRow::try_from(row).map(|row| row.rotation)).transpose()
}

/// Index: the primary key.
const UPSERT: &str = concat!(
    "INSERT INTO rotations (status, running, ",
    rotation_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26) ",
    rotation_changes!()
);

pub(super) async fn write(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    change: &RotationChange<'_>,
) -> Result<(), StoreError> {
    let query = bind_rotation!(sqlx::query(UPSERT), cluster_id, change);
    let done = query.execute(db).await.map_err(map)?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    Err(StoreError::Duplicate { what: "rotations.rotation_id".to_owned() })
}
