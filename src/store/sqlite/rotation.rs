//! The rows of `rotations`.

use sqlx::{FromRow, SqliteConnection};

use super::super::columns::PhaseColumns;
use super::super::{RotationBrief, RotationRow, StoreError};
use super::decode::{generation, maybe_word, micros, time, uuid, word};
use super::error::map;
use crate::ids::{ClusterId, RotationId};
use crate::state::pull_secret::{OnDeadline, RetireReason, Rotation, RotationStatus};
use crate::time::Timestamp;

macro_rules! rotation_columns {
    () => {
        "cluster_id, rotation_id, reason, force_immediate, slot, from_generation, to_generation, \
         phase, deadline, on_deadline, drifted, rollback_at, decided_at, decided_why, ends_as, \
         old_credentials_revoked, error_code, error_message, error_registry_id, created_at, \
         started_at, promoted_at, completed_at"
    };
}
pub(super) use rotation_columns;

#[derive(FromRow)]
pub(super) struct StoredRotation {
    cluster_id: String,
    rotation_id: Vec<u8>,
    reason: String,
    force_immediate: bool,
    slot: Option<i64>,
    from_generation: i64,
    to_generation: i64,
    phase: String,
    deadline: Option<i64>,
    on_deadline: Option<String>,
    drifted: bool,
    rollback_at: Option<i64>,
    decided_at: Option<i64>,
    decided_why: Option<String>,
    ends_as: Option<String>,
    old_credentials_revoked: Option<bool>,
    error_code: Option<String>,
    error_message: Option<String>,
    error_registry_id: Option<String>,
    created_at: i64,
    started_at: Option<i64>,
    promoted_at: Option<i64>,
    completed_at: Option<i64>,
}

impl TryFrom<StoredRotation> for RotationRow {
    type Error = StoreError;
    fn try_from(row: StoredRotation) -> Result<Self, StoreError> {
        let phase = PhaseColumns {
            phase: row.phase,
            deadline: time(row.deadline),
            on_deadline: maybe_word(row.on_deadline.as_deref(), "a deadline's policy")?,
            drifted: row.drifted,
            rollback_at: time(row.rollback_at),
            decided_at: time(row.decided_at),
            decided_why: maybe_word(row.decided_why.as_deref(), "a decision")?,
            ends_as: row.ends_as,
            old_credentials_revoked: row.old_credentials_revoked,
            error_code: row.error_code,
            error_message: row.error_message,
            error_registry_id: maybe_word(row.error_registry_id.as_deref(), "a registry id")?,
        };
        let rotation = Rotation {
            id: RotationId(uuid(&row.rotation_id)?),
            reason: word(&row.reason, "a rotation's reason")?,
            force_immediate: row.force_immediate,
            slot: time(row.slot),
            from: generation(row.from_generation)?,
            to: generation(row.to_generation)?,
            phase: phase.rebuild()?,
            created_at: Timestamp::from_micros(row.created_at),
            started_at: time(row.started_at),
            promoted_at: time(row.promoted_at),
            completed_at: time(row.completed_at),
        };
        Ok(Self { cluster_id: word(&row.cluster_id, "a cluster id")?, rotation })
    }
}

/// Index: `rotations_running`.
pub(super) const SELECT_RUNNING: &str = concat!(
    "SELECT ",
    rotation_columns!(),
    " FROM rotations WHERE cluster_id = ?1 AND running = 1"
);

pub(super) async fn running(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Option<Rotation>, StoreError> {
    let row: Option<StoredRotation> = sqlx::query_as(SELECT_RUNNING)
        .bind(cluster_id.as_str())
        .fetch_optional(db)
        .await
        .map_err(map)?;
    row.map(|row| RotationRow::try_from(row).map(|row| row.rotation)).transpose()
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
        .bind(&id.0.as_bytes()[..])
        .bind(cluster_id.as_str())
        .fetch_optional(db)
        .await
        .map_err(map)?;
    row.map(|row| RotationRow::try_from(row).map(|row| row.rotation)).transpose()
}

/// Index: the primary key. Whose rotation it is, and what was asked for, never changes.
const UPSERT: &str = concat!(
    "INSERT INTO rotations (status, running, ",
    rotation_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25) \
     ON CONFLICT (rotation_id) DO UPDATE SET status = excluded.status, \
     running = excluded.running, phase = excluded.phase, deadline = excluded.deadline, \
     on_deadline = excluded.on_deadline, drifted = excluded.drifted, \
     rollback_at = excluded.rollback_at, decided_at = excluded.decided_at, \
     decided_why = excluded.decided_why, ends_as = excluded.ends_as, \
     old_credentials_revoked = excluded.old_credentials_revoked, \
     error_code = excluded.error_code, error_message = excluded.error_message, \
     error_registry_id = excluded.error_registry_id, slot = excluded.slot, \
     from_generation = excluded.from_generation, to_generation = excluded.to_generation, \
     started_at = excluded.started_at, promoted_at = excluded.promoted_at, \
     completed_at = excluded.completed_at"
);

pub(super) async fn write(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    rotation: &Rotation,
) -> Result<(), StoreError> {
    let status = rotation.status();
    let columns = PhaseColumns::of(&rotation.phase);
    let query = sqlx::query(UPSERT)
        .bind(<&'static str>::from(status))
        .bind(is_running(status))
        .bind(cluster_id.as_str())
        .bind(&rotation.id.0.as_bytes()[..])
        .bind(<&'static str>::from(rotation.reason))
        .bind(rotation.force_immediate)
        .bind(micros(rotation.slot))
        .bind(rotation.from.0)
        .bind(rotation.to.0)
        .bind(columns.phase)
        .bind(micros(columns.deadline))
        .bind(columns.on_deadline.map(<&'static str as From<OnDeadline>>::from))
        .bind(columns.drifted)
        .bind(micros(columns.rollback_at))
        .bind(micros(columns.decided_at))
        .bind(columns.decided_why.map(<&'static str as From<RetireReason>>::from))
        .bind(columns.ends_as)
        .bind(columns.old_credentials_revoked)
        .bind(columns.error_code)
        .bind(columns.error_message)
        .bind(columns.error_registry_id.map(String::from))
        .bind(rotation.created_at.as_micros())
        .bind(micros(rotation.started_at))
        .bind(micros(rotation.promoted_at))
        .bind(micros(rotation.completed_at));
    query.execute(db).await.map_err(map).map(drop)
}

const fn is_running(status: RotationStatus) -> bool {
    match status {
        RotationStatus::Pending | RotationStatus::InProgress => true,
        RotationStatus::Completed
        | RotationStatus::Failed
        | RotationStatus::Cancelled
        | RotationStatus::RolledBack => false,
    }
}

/// The columns of a [`RotationBrief`], for statements that join the running rotation as `r`.
macro_rules! brief_columns {
    () => {
        "r.rotation_id AS rotation_id, r.status AS rotation_status, r.phase AS rotation_phase, \
         r.deadline AS rotation_deadline"
    };
}
pub(super) use brief_columns;

#[derive(FromRow)]
pub(super) struct BriefRow {
    rotation_id: Option<Vec<u8>>,
    rotation_status: Option<String>,
    rotation_phase: Option<String>,
    rotation_deadline: Option<i64>,
}

impl BriefRow {
    pub(super) fn brief(self) -> Result<Option<RotationBrief>, StoreError> {
        let (Some(id), Some(status), Some(phase)) =
            (self.rotation_id, self.rotation_status, self.rotation_phase)
        else {
            return Ok(None);
        };
        Ok(Some(RotationBrief {
            rotation_id: RotationId(uuid(&id)?),
            status: word(&status, "a rotation's status")?,
            phase,
            deadline: time(self.rotation_deadline),
        }))
    }
}
