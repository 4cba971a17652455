//! A row of `idempotency_keys`.

use sqlx::FromRow;
use uuid::Uuid;

use super::super::StoreError;
use super::super::idempotency::StoredRequest;
use crate::time::Timestamp;

#[derive(FromRow)]
pub(in crate::store) struct KeyRow {
    body_hash: Vec<u8>,
    holder: Uuid,
    lease_until: Timestamp,
    created_at: Timestamp,
    status: Option<i64>,
    location: Option<String>,
    resource_id: Option<String>,
}

impl TryFrom<KeyRow> for StoredRequest {
    type Error = StoreError;
    fn try_from(row: KeyRow) -> Result<Self, StoreError> {
        let status = row.status.map(u16::try_from).transpose();
        let status = status.map_err(|_| StoreError::corrupt("a status out of range"))?;
        Ok(Self {
            body_hash: row.body_hash,
            holder: row.holder,
            lease_until: row.lease_until,
            created_at: row.created_at,
            answer: status.map(|status| (status, row.location, row.resource_id)),
        })
    }
}
