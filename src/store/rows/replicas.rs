//! Rows of `replicas`, and what is claimed.

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{Claimed, OwnedBy, ReplicaRow, StoreError};
use super::decode::{count, word};
use crate::ids::ReplicaId;

/// Work before it is taken.
#[derive(FromRow)]
pub(in crate::store) struct ClaimRow {
    pub(in crate::store) cluster_id: String,
    version: i64,
    owner: Option<Uuid>,
    epoch: i64,
}

impl ClaimRow {
    /// What the taker gets; its row is written by the backend.
    pub(in crate::store) fn taken_by(self, taker: ReplicaId) -> Result<Claimed, StoreError> {
        let before = OwnedBy { owner: self.owner.map(ReplicaId), epoch: count(self.epoch)? };
        Ok(Claimed {
            cluster_id: word(&self.cluster_id, "a cluster id")?,
            version: count(self.version)?,
            ownership: before.passed_to(Some(taker)),
            from: before.owner.filter(|owner| *owner != taker),
        })
    }
}

/// A row of `replicas`.
#[derive(FromRow)]
pub(in crate::store) struct ReplicaColumns {
    replica_id: Uuid,
    counter: i64,
    key_ids: Json<Vec<String>>,
}

impl TryFrom<ReplicaColumns> for ReplicaRow {
    type Error = StoreError;
    fn try_from(row: ReplicaColumns) -> Result<Self, StoreError> {
        let (replica_id, key_ids) = (ReplicaId(row.replica_id), row.key_ids.0);
        Ok(Self { replica_id, counter: count(row.counter)?, key_ids })
    }
}

/// The ids of keys as JSON text.
pub(in crate::store) fn key_ids_text(key_ids: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(key_ids).map_err(|_| StoreError::corrupt("a list of key ids"))
}
