//! A row of `rotations`: its columns, what they mean, and in which order they are bound.

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::columns::PhaseColumns;
use super::super::{RotationBrief, RotationRow, StoreError};
use super::decode::{generation, maybe_word, word};
use crate::ids::RotationId;
use crate::state::pull_secret::{Rotation, RotationStatus, Scope};
use crate::time::Timestamp;

macro_rules! rotation_columns {
    () => {
        "cluster_id, rotation_id, reason, force_immediate, slot, from_generation, to_generation, \
         phase, deadline, on_deadline, drifted, rollback_at, decided_at, decided_why, ends_as, \
         old_credentials_revoked, error_code, error_message, error_registry_id, created_at, \
         started_at, promoted_at, completed_at, scope"
    };
}
pub(in crate::store) use rotation_columns;

/// What a later write changes: whose rotation it is, and what was asked for, never does; nor does anything of
/// one that has ended.
macro_rules! rotation_changes {
    () => {
        "ON CONFLICT (rotation_id) DO UPDATE SET status = excluded.status, \
         running = excluded.running, phase = excluded.phase, deadline = excluded.deadline, \
         on_deadline = excluded.on_deadline, drifted = excluded.drifted, \
         rollback_at = excluded.rollback_at, decided_at = excluded.decided_at, \
         decided_why = excluded.decided_why, ends_as = excluded.ends_as, \
         old_credentials_revoked = excluded.old_credentials_revoked, \
         error_code = excluded.error_code, error_message = excluded.error_message, \
         error_registry_id = excluded.error_registry_id, slot = excluded.slot, \
         from_generation = excluded.from_generation, to_generation = excluded.to_generation, \
         started_at = excluded.started_at, promoted_at = excluded.promoted_at, \
         completed_at = excluded.completed_at, scope = excluded.scope \
         WHERE rotations.completed_at IS NULL"
    };
}
pub(in crate::store) use rotation_changes;

/// Binds `status, running` and then [`rotation_columns`].
macro_rules! bind_rotation {
    ($query:expr, $cluster_id:expr, $change:expr) => {{
        let rotation = $change.rotation;
        let status = rotation.status();
        let scope = serde_json::to_string(&rotation.scope)
            .map_err(|_| StoreError::corrupt("the scope of a rotation"))?;
        let columns = $crate::store::columns::PhaseColumns::of(&rotation.phase);
        $query
            .bind(<&'static str>::from(status))
            .bind(!$change.waits && $crate::store::rows::rotation::is_running(status))
            .bind($cluster_id.as_str())
            .bind(rotation.id.0)
            .bind(<&'static str>::from(rotation.reason))
            .bind(rotation.force_immediate)
            .bind(rotation.slot)
            .bind(i64::from(rotation.from.0))
            .bind(i64::from(rotation.to.0))
            .bind(columns.phase)
            .bind(columns.deadline)
            .bind(columns.on_deadline.map(<&'static str>::from))
            .bind(columns.drifted)
            .bind(columns.rollback_at)
            .bind(columns.decided_at)
            .bind(columns.decided_why.map(<&'static str>::from))
            .bind(columns.ends_as)
            .bind(columns.old_credentials_revoked)
            .bind(columns.error_code)
            .bind(columns.error_message)
            .bind(columns.error_registry_id.map(String::from))
            .bind(rotation.created_at)
            .bind(rotation.started_at)
            .bind(rotation.promoted_at)
            .bind(rotation.completed_at)
            .bind(scope)
    }};
}
pub(in crate::store) use bind_rotation;

#[derive(FromRow)]
pub(in crate::store) struct StoredRotation {
    cluster_id: String,
    rotation_id: Uuid,
    reason: String,
    force_immediate: bool,
    slot: Option<Timestamp>,
    from_generation: i64,
    to_generation: i64,
    phase: String,
    deadline: Option<Timestamp>,
    on_deadline: Option<String>,
    drifted: bool,
    rollback_at: Option<Timestamp>,
    decided_at: Option<Timestamp>,
    decided_why: Option<String>,
    ends_as: Option<String>,
    old_credentials_revoked: Option<bool>,
    error_code: Option<String>,
    error_message: Option<String>,
    error_registry_id: Option<String>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    promoted_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    scope: Json<Scope>,
}

impl TryFrom<StoredRotation> for RotationRow {
    type Error = StoreError;
    fn try_from(row: StoredRotation) -> Result<Self, StoreError> {
        let phase = PhaseColumns {
            phase: row.phase,
            deadline: row.deadline,
            on_deadline: maybe_word(row.on_deadline.as_deref(), "a deadline's policy")?,
            drifted: row.drifted,
            rollback_at: row.rollback_at,
            decided_at: row.decided_at,
            decided_why: maybe_word(row.decided_why.as_deref(), "a decision")?,
            ends_as: row.ends_as,
            old_credentials_revoked: row.old_credentials_revoked,
            error_code: row.error_code,
            error_message: row.error_message,
            error_registry_id: maybe_word(row.error_registry_id.as_deref(), "a registry id")?,
        };
        let rotation = Rotation {
            id: RotationId(row.rotation_id),
            scope: row.scope.0,
            reason: word(&row.reason, "a rotation's reason")?,
            force_immediate: row.force_immediate,
            slot: row.slot,
            from: generation(row.from_generation)?,
            to: generation(row.to_generation)?,
            phase: phase.rebuild()?,
            created_at: row.created_at,
            started_at: row.started_at,
            promoted_at: row.promoted_at,
            completed_at: row.completed_at,
        };
        Ok(Self { cluster_id: word(&row.cluster_id, "a cluster id")?, rotation })
    }
}

/// A rotation that has not ended.
#[derive(FromRow)]
pub(in crate::store) struct OpenRow {
    #[sqlx(flatten)]
    rotation: StoredRotation,
    running: bool,
}

/// The rotations of a cluster that have not ended.
#[derive(Default)]
pub(in crate::store) struct Open {
    pub running: Option<Rotation>,
    pub waiting: Option<Rotation>,
}

impl Open {
    pub(in crate::store) fn of(rows: Vec<OpenRow>) -> Result<Self, StoreError> {
        let mut open = Self::default();
        for OpenRow { rotation, running } in rows {
            let rotation = RotationRow::try_from(rotation)?.rotation;
            let place = if running { &mut open.running } else { &mut open.waiting };
            if place.replace(rotation).is_some() {
                return Err(StoreError::corrupt("two rotations in one place"));
            }
        }
        Ok(open)
    }
}

pub(in crate::store) const fn is_running(status: RotationStatus) -> bool {
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
pub(in crate::store) use brief_columns;

#[derive(FromRow)]
pub(in crate::store) struct BriefRow {
    rotation_id: Option<Uuid>,
    rotation_status: Option<String>,
    rotation_phase: Option<String>,
    rotation_deadline: Option<Timestamp>,
}

impl BriefRow {
    pub(in crate::store) fn brief(self) -> Result<Option<RotationBrief>, StoreError> {
        let (Some(id), Some(status), Some(phase)) =
            (self.rotation_id, self.rotation_status, self.rotation_phase)
        else {
            return Ok(None);
        };
        Ok(Some(RotationBrief {
            rotation_id: RotationId(id),
            status: word(&status, "a rotation's status")?,
            phase,
            deadline: self.rotation_deadline,
        }))
    }
}
