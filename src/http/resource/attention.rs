//! What needs a person, as clients see it.

use serde::Serialize;

use crate::ids::{ClusterId, RegistryId, RotationId};
use crate::store::{self, AttentionKind};
use crate::time::Timestamp;

/// One thing that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AttentionItem {
    pub kind: AttentionKind,
    pub cluster_id: Option<ClusterId>,
    pub registry_id: Option<RegistryId>,
    pub rotation_id: Option<RotationId>,
    pub credential_id: Option<String>,
    pub revocation_id: Option<String>,
    pub since: Timestamp,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub next_attempt_at: Option<Timestamp>,
}

impl From<store::AttentionItem> for AttentionItem {
    fn from(item: store::AttentionItem) -> Self {
        Self {
            kind: item.kind,
            cluster_id: item.cluster_id,
            registry_id: item.registry_id,
            rotation_id: item.rotation_id,
            credential_id: item.credential_id.map(|id| id.to_string()),
            revocation_id: item.revocation_id.map(|id| id.to_string()),
            since: item.since,
            attempts: item.attempts,
            last_error: item.last_error,
            next_attempt_at: item.next_attempt_at,
        }
    }
}
