//! An audit event as clients see it. It never holds a secret, because no audit row does.

use serde::Serialize;
use serde_json::Value;

use super::Pagination;
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::store::AuditEvent;
use crate::time::Timestamp;

/// One thing that somebody did or that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AuditEventResource {
    pub event_id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub cluster_id: Option<ClusterId>,
    pub rotation_id: Option<RotationId>,
    pub account: Option<String>,
    pub registry_id: Option<RegistryId>,
    pub generation: Option<Generation>,
    pub detail: Value,
    pub reason: Option<String>,
    pub request_id: Option<String>,
    pub stream: String,
    pub sequence: u64,
    /// The keyed hash, hexadecimal: what checkpoints name.
    pub hash: Option<String>,
}

impl From<AuditEvent> for AuditEventResource {
    fn from(event: AuditEvent) -> Self {
        let AuditEvent { event_id, sequence, previous_hash: _, hash, row } = event;
        Self {
            event_id,
            at: row.at,
            actor: row.actor,
            action: row.action,
            cluster_id: row.cluster_id,
            rotation_id: row.rotation_id,
            account: row.account,
            registry_id: row.registry_id,
            generation: row.generation,
            detail: row.detail,
            reason: row.reason,
            request_id: row.request_id,
            stream: row.stream,
            sequence,
            hash: hash.map(|hash| data_encoding::HEXLOWER.encode(&hash)),
        }
    }
}

/// `GET /v1/audit-events`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AuditEventList {
    pub audit_events: Vec<AuditEventResource>,
    pub pagination: Pagination,
}
