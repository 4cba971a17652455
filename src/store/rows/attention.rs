//! A row that needs a person, whatever table it is from.

use sqlx::FromRow;
use uuid::Uuid;

use super::super::{AttentionItem, AttentionKind, StoreError};
use super::decode::{maybe_word, small};
use crate::ids::RotationId;
use crate::time::Timestamp;

#[derive(FromRow)]
pub(in crate::store) struct ItemRow {
    cluster_id: Option<String>,
    registry_id: Option<String>,
    rotation_id: Option<Uuid>,
    since: Timestamp,
    attempts: i64,
    last_error: Option<String>,
    next_attempt_at: Option<Timestamp>,
    id: Option<Uuid>,
}

impl ItemRow {
    pub(in crate::store) fn item(self, kind: AttentionKind) -> Result<AttentionItem, StoreError> {
        let subject = self.id.map(|id| id.to_string());
        let subject = subject.or_else(|| self.cluster_id.clone()).unwrap_or_default();
        Ok(AttentionItem {
            kind,
            cluster_id: maybe_word(self.cluster_id.as_deref(), "a cluster id")?,
            registry_id: maybe_word(self.registry_id.as_deref(), "a registry id")?,
            rotation_id: self.rotation_id.map(RotationId),
            since: self.since,
            attempts: small(self.attempts)?,
            last_error: self.last_error,
            next_attempt_at: self.next_attempt_at,
            subject,
        })
    }
}
