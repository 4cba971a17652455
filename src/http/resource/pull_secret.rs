//! The pull secret resource, and what a DELETE that is still going on answers.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::words::{AccountWord, FoldedWord};
use crate::http::document::Document;
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, PullSecret, RecordState, Refusal, Rotation, RotationStatus, StateName,
};
use crate::store::PullSecretRow;
use crate::time::Timestamp;

/// A cluster's pull secret. No `Debug`: it may hold the secret.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct PullSecretResource {
    pub cluster_id: ClusterId,
    pub state: &'static str,
    pub generation: Generation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<Document>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Vec<Credential>>,
    pub rotation: Option<RunningRotation>,
    pub status_details: StatusDetails,
    pub status: Status,
    pub created_at: Timestamp,
    pub last_rotated_at: Option<Timestamp>,
    pub next_rotation_at: Option<Timestamp>,
}

/// One account.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Credential {
    pub registry_id: RegistryId,
    /// The registry's host.
    pub registry: String,
    pub username: String,
    pub generation: Generation,
    pub state: AccountWord,
    pub created_at: Option<Timestamp>,
    pub verified_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// The running rotation, in short.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RunningRotation {
    pub rotation_id: RotationId,
    pub status: RotationStatus,
    pub phase: Cow<'static, str>,
}

impl From<&Rotation> for RunningRotation {
    fn from(rotation: &Rotation) -> Self {
        Self {
            rotation_id: rotation.id,
            status: rotation.status(),
            phase: rotation.phase.name().into(),
        }
    }
}

/// The state in words.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct StatusDetails {
    pub message: String,
    pub state: StateDetails,
}

/// The state, and since when.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct StateDetails {
    pub value: &'static str,
    pub last_updated_timestamp: Timestamp,
}

/// For the conditions language of adapters.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Status {
    pub conditions: Vec<Condition>,
}

/// One condition.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Condition {
    pub r#type: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: Generation,
    pub last_transition_time: Timestamp,
}

/// How much of a record is shown.
pub struct Show<'a> {
    /// The secret, for a caller that may see it; left out while nothing is served.
    pub document: Option<Document>,
    /// Whether the accounts are listed.
    pub credentials: bool,
    /// The hosts of the configured registries.
    pub hosts: &'a BTreeMap<RegistryId, String>,
}

/// The resource of a record.
#[must_use]
pub fn pull_secret(record: &PullSecret, show: Show<'_>) -> PullSecretResource {
    let state: &'static str = record.state.name().into();
    let message = message(record);
    let ready = record.served().is_some();
    let (name, since) = (record.state.name(), record.state_since);
    let condition = condition(name, ready, record.generation(), &message, since);
    PullSecretResource {
        cluster_id: record.cluster_id.clone(),
        state,
        generation: record.generation(),
        pull_secret: show.document.filter(|_| ready),
        credentials: show.credentials.then(|| credentials(record, show.hosts)),
        rotation: record.rotation().map(Into::into),
        status_details: StatusDetails {
            message,
            state: StateDetails { value: state, last_updated_timestamp: record.state_since },
        },
        status: Status { conditions: vec![condition] },
        created_at: record.created_at,
        last_rotated_at: record.last_rotated_at,
        next_rotation_at: record.next_rotation_at,
    }
}

/// The resource of a row in a list: without secret and accounts.
#[must_use]
pub fn pull_secret_row(row: &PullSecretRow) -> PullSecretResource {
    let state: &'static str = row.state.into();
    let generation = row.served.map_or(Generation::NONE, |served| served.generation);
    let message = match (&row.quarantine, &row.refusal) {
        (Some(quarantine), _) => quarantined(quarantine.retry_at),
        (None, Some(refusal)) => refused(refusal),
        (None, None) => String::new(),
    };
    PullSecretResource {
        cluster_id: row.cluster_id.clone(),
        state,
        generation,
        pull_secret: None,
        credentials: None,
        rotation: row.rotation.as_ref().map(|rotation| RunningRotation {
            rotation_id: rotation.rotation_id,
            status: rotation.status,
            phase: rotation.phase.clone().into(),
        }),
        status: Status {
            conditions: vec![condition(
                row.state,
                row.served.is_some(),
                generation,
                &message,
                row.state_since,
            )],
        },
        status_details: StatusDetails {
            message,
            state: StateDetails { value: state, last_updated_timestamp: row.state_since },
        },
        created_at: row.created_at,
        last_rotated_at: row.last_rotated_at,
        next_rotation_at: row.next_rotation_at,
    }
}

fn condition(
    state: StateName,
    ready: bool,
    generation: Generation,
    message: &str,
    since: Timestamp,
) -> Condition {
    Condition {
        r#type: "Ready",
        status: if ready { "True" } else { "False" },
        reason: reason(state),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since,
    }
}

/// Newest generation first, registries in order.
fn credentials(record: &PullSecret, hosts: &BTreeMap<RegistryId, String>) -> Vec<Credential> {
    let mut accounts: Vec<&Account> = record.accounts.iter().collect();
    accounts.sort_by(|a, b| {
        let by_generation = b.presented_as().cmp(&a.presented_as());
        by_generation.then_with(|| (&a.registry_id, a.id).cmp(&(&b.registry_id, b.id)))
    });
    let credential = |account: &Account| Credential {
        registry_id: account.registry_id.clone(),
        // A registry that is no longer configured has no host that we know of.
        registry: hosts.get(&account.registry_id).cloned().unwrap_or_default(),
        username: account.username.clone().unwrap_or_else(|| account.name.to_string()),
        // What a partial rotation kept belongs to what is served.
        generation: account.presented_as(),
        state: AccountWord::of(account),
        created_at: account.created_at,
        verified_at: account.verified_at,
        last_used_at: account.last_used_at,
        expires_at: None,
    };
    accounts.into_iter().map(credential).collect()
}

fn message(record: &PullSecret) -> String {
    if let Some(quarantine) = record.quarantine {
        return quarantined(quarantine.retry_at);
    }
    match &record.state {
        RecordState::Denied(refusal) | RecordState::Failed(refusal) => refused(refusal),
        RecordState::Issuing { generation: None } => {
            "waits until accounts of an earlier generation are gone".to_owned()
        }
        RecordState::Issuing { generation: Some(_) }
        | RecordState::Active { .. }
        | RecordState::Rotating { .. }
        | RecordState::Revoking
        | RecordState::Revoked => troubles(record),
    }
}

fn quarantined(retry_at: Timestamp) -> String {
    format!("stands still after repeated faults, next try at {retry_at}")
}

fn refused(refusal: &Refusal) -> String {
    format!("{}: {}", refusal.registry_id, refusal.message)
}

/// What holds the work up, registry by registry.
fn troubles(record: &PullSecret) -> String {
    let trouble = |account: &Account| {
        let error = account.trouble.last_error.as_deref()?;
        Some(format!("{}: {error}", account.registry_id))
    };
    let texts: BTreeSet<String> = record.accounts.iter().filter_map(trouble).collect();
    texts.into_iter().collect::<Vec<_>>().join("; ")
}

const fn reason(state: StateName) -> &'static str {
    match state {
        StateName::Issuing => "Issuing",
        StateName::Active => "Active",
        StateName::Rotating => "Rotating",
        StateName::Revoking => "Revoking",
        StateName::Revoked => "Revoked",
        StateName::Denied => "Denied",
        StateName::Failed => "Failed",
    }
}

/// The `202` of a DELETE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RevocationResource {
    pub cluster_id: ClusterId,
    pub state: &'static str,
    pub registries: BTreeMap<RegistryId, FoldedWord>,
}

/// How far a revocation is: one word per registry, of all generations together.
#[must_use]
pub fn revocation(record: &PullSecret) -> RevocationResource {
    let ours = record.accounts.iter().map(|account| &account.registry_id);
    let ids: BTreeSet<&RegistryId> = record.registries.iter().chain(ours).collect();
    let word = |id: &RegistryId| {
        FoldedWord::of(record.accounts.iter().filter(|account| account.registry_id == *id))
    };
    RevocationResource {
        cluster_id: record.cluster_id.clone(),
        state: record.state.name().into(),
        registries: ids.into_iter().map(|id| (id.clone(), word(id))).collect(),
    }
}
