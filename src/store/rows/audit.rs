//! A row of the audit: its columns, what they mean, and in which order they are bound.

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{AuditCheckpoint, AuditEvent, AuditRow, StoreError};
use super::decode::{count, generation, maybe_word};
use crate::ids::RotationId;
use crate::time::Timestamp;

/// Everything but the place in the table, which the database gives.
macro_rules! audit_columns {
    () => {
        "stream, sequence, previous_hash, hash, at, actor, action, cluster_id, rotation_id, \
         account, registry_id, generation, detail, reason, request_id"
    };
}
pub(in crate::store) use audit_columns;

/// Binds [`audit_columns`]; the detail as JSON text.
macro_rules! bind_audit {
    ($query:expr, $row:expr, $link:expr) => {
        $query
            .bind(&$row.stream)
            .bind(signed($link.sequence))
            .bind($link.previous_hash.as_deref())
            .bind($link.hash.as_deref())
            .bind($row.at)
            .bind(&$row.actor)
            .bind(&$row.action)
            .bind($row.cluster_id.as_ref().map(|id| id.as_str()))
            .bind($row.rotation_id.as_ref().map(|id| id.0))
            .bind($row.account.as_deref())
            .bind($row.registry_id.as_ref().map(|id| id.as_str()))
            .bind($row.generation.map(|generation| i64::from(generation.0)))
            .bind($row.detail.to_string())
            .bind($row.reason.as_deref())
            .bind($row.request_id.as_deref())
    };
}
pub(in crate::store) use bind_audit;

#[derive(FromRow)]
pub(in crate::store) struct EventRow {
    event_id: i64,
    stream: String,
    sequence: i64,
    previous_hash: Option<Vec<u8>>,
    hash: Option<Vec<u8>>,
    at: Timestamp,
    actor: String,
    action: String,
    cluster_id: Option<String>,
    rotation_id: Option<Uuid>,
    account: Option<String>,
    registry_id: Option<String>,
    generation: Option<i64>,
    detail: Json<serde_json::Value>,
    reason: Option<String>,
    request_id: Option<String>,
}

impl TryFrom<EventRow> for AuditEvent {
    type Error = StoreError;
    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        Ok(Self {
            event_id: row.event_id,
            sequence: count(row.sequence)?,
            previous_hash: row.previous_hash,
            hash: row.hash,
            row: AuditRow {
                stream: row.stream,
                at: row.at,
                actor: row.actor,
                action: row.action,
                cluster_id: maybe_word(row.cluster_id.as_deref(), "a cluster id")?,
                rotation_id: row.rotation_id.map(RotationId),
                account: row.account,
                registry_id: maybe_word(row.registry_id.as_deref(), "a registry id")?,
                generation: row.generation.map(generation).transpose()?,
                detail: row.detail.0,
                reason: row.reason,
                request_id: row.request_id,
            },
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct CheckpointRow {
    stream: String,
    pruned: bool,
    sequence: i64,
    hash: Option<Vec<u8>>,
    at: Timestamp,
    seal: Option<Vec<u8>>,
}

impl TryFrom<CheckpointRow> for AuditCheckpoint {
    type Error = StoreError;
    fn try_from(row: CheckpointRow) -> Result<Self, StoreError> {
        let CheckpointRow { stream, pruned, sequence, hash, at, seal } = row;
        Ok(Self { stream, pruned, sequence: count(sequence)?, hash, at, seal })
    }
}
