//! What audit, log and metrics are told of sweeps. Never a secret: a listing has none.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::audit::Caller;
use super::super::deps::Deps;
use crate::ids::RegistryId;
use crate::state::sweep::{Comparison, Unknown};
use crate::store::{AuditRow, DeletionAnswer, DeletionCall, SweepState, UnknownAccount};
use crate::time::Timestamp;

/// So many accounts of a kind are named in the log per sweep.
const MOST_NAMED: usize = 100;

/// A row in the registry's own stream.
fn bare(
    registry_id: &RegistryId,
    action: &str,
    detail: Value,
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    AuditRow {
        stream: format!("sweep/{registry_id}"),
        at,
        actor: caller.actor.clone(),
        action: action.to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: Some(registry_id.clone()),
        generation: None,
        detail,
        reason: caller.reason.clone(),
        request_id: caller.request_id.clone(),
    }
}

/// A comparison was made.
pub(super) fn swept(
    registry_id: &RegistryId,
    found: &Comparison,
    dry_run: bool,
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    let detail = json!({
        "dry_run": dry_run, "listed": found.listed, "ours": found.ours, "foreign": found.foreign,
        "unknown": found.unknown.len(), "missing": found.missing.len(),
        "beyond": found.beyond.len(),
    });
    bare(registry_id, "swept", detail, caller, at)
}

/// Something about an account that was just found.
pub(super) fn about(
    registry_id: &RegistryId,
    unknown: &Unknown,
    action: &str,
    detail: Value,
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    AuditRow {
        cluster_id: unknown.cluster_id.clone(),
        account: Some(unknown.name.to_string()),
        generation: unknown.generation,
        ..bare(registry_id, action, detail, caller, at)
    }
}

/// Something about an account that is remembered.
pub(super) fn row(
    unknown: &UnknownAccount,
    action: &str,
    detail: Value,
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    AuditRow {
        cluster_id: unknown.cluster_id.clone(),
        account: Some(unknown.name.clone()),
        generation: unknown.generation,
        ..bare(&unknown.registry_id, action, detail, caller, at)
    }
}

/// A registry could not be compared.
pub(super) fn failed(deps: &Deps, registry_id: &RegistryId, error: &str, caller: &Caller) {
    deps.metrics.swept(registry_id.as_str(), "failed");
    tracing::warn!(
        registry = registry_id.as_str(),
        event_name = "sweep_failed",
        error,
        actor = caller.actor.as_str(),
        request_id = caller.request_id.as_deref(),
        "sweep failed"
    );
}

/// A comparison came to its end.
pub(super) fn ended(
    deps: &Deps,
    registry_id: &RegistryId,
    found: &Comparison,
    outcome: &'static str,
    caller: &Caller,
) {
    deps.metrics.swept(registry_id.as_str(), outcome);
    tracing::info!(
        registry = registry_id.as_str(),
        event_name = "swept",
        outcome,
        listed = found.listed,
        ours = found.ours,
        unknown = found.unknown.len(),
        foreign = found.foreign,
        missing = found.missing.len(),
        actor = caller.actor.as_str(),
        request_id = caller.request_id.as_deref(),
        "swept"
    );
}

/// What it found that somebody may have to look at.
pub(super) fn found(
    registry_id: &RegistryId,
    found: &Comparison,
    decided: &[String],
    now: Timestamp,
) {
    let registry = registry_id.as_str();
    for unknown in found.unknown.iter().filter(|it| it.first_seen_at == now).take(MOST_NAMED) {
        tracing::warn!(
            registry,
            event_name = "unknown_account",
            account = unknown.name.as_str(),
            cluster_id = unknown.cluster_id.as_ref().map(tracing::field::display),
            deletable_at = %unknown.deletable_at,
            "an account is ours, and no row wants it"
        );
    }
    for missing in found.missing.iter().take(MOST_NAMED) {
        tracing::warn!(
            registry,
            event_name = "missing_account",
            account = missing.name,
            cluster_id = %missing.cluster_id,
            "an account that is handed out is not there"
        );
    }
    for beyond in found.beyond.iter().take(MOST_NAMED) {
        tracing::error!(
            registry,
            event_name = "generation_beyond",
            whose = ?beyond.whose,
            generation = beyond.generation.0,
            "a generation exists that was never given out"
        );
    }
    for account in decided.iter().take(MOST_NAMED) {
        tracing::warn!(registry, event_name = "unknown_deletion_decided", account, "to be deleted");
    }
}

/// A call that deletes one ended.
pub(super) fn deletion_ended(
    unknown: &UnknownAccount,
    call: &DeletionCall,
    outcome: &str,
    answer: &DeletionAnswer,
    took: Duration,
) {
    let error = match answer {
        DeletionAnswer::Gone => None,
        DeletionAnswer::Again { error, .. } => Some(error.as_str()),
    };
    tracing::info!(
        registry = call.registry_id.as_str(),
        event_name = "call_ended",
        account = call.name,
        cluster_id = unknown.cluster_id.as_ref().map(tracing::field::display),
        call = "revoke",
        call_id = %call.token,
        outcome,
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        error,
        "call ended"
    );
}

/// What the last sweeps found, for the metrics.
pub(super) fn gauges(deps: &Deps, states: &[SweepState]) {
    for state in states.iter().filter(|state| deps.registries.contains_key(&state.registry_id)) {
        let Some(last) = state.last else { continue };
        let registry = state.registry_id.as_str();
        let counts = [
            ("ours", last.ours),
            ("unknown", last.unknown),
            ("foreign", last.foreign),
            ("missing", last.missing),
        ];
        deps.metrics.sweep_found(registry, counts, last.finished_at.as_micros() / 1_000_000);
    }
}
