//! Registries, sweeps and restores, as clients see them.

use serde::Serialize;

use crate::actors::deps::ConfiguredRegistry;
use crate::actors::sweeper::Report;
use crate::ids::{ClusterId, Generation, RegistryId};
use crate::registries::lane::BreakerState;
use crate::store::{Restored, SweepState, SweepSummary};
use crate::time::Timestamp;

/// So many accounts of a kind are listed.
const MOST: usize = 1000;

/// `GET /v1/registries`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RegistryList {
    pub registries: Vec<RegistryResource>,
    /// The last restore of the database that was noticed.
    pub restored: Option<RestoredResource>,
}

/// One configured registry.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RegistryResource {
    pub registry_id: RegistryId,
    pub registry: String,
    pub aliases: Vec<String>,
    pub enabled: bool,
    pub health: &'static str,
    pub breaker: &'static str,
    /// Why work for it waits, and until when for certain.
    pub blocked: Option<Blocked>,
    pub limits: Limits,
    pub in_flight: usize,
    pub last_sweep: Option<SweepResource>,
    pub last_sweep_error: Option<SweepFailure>,
    pub next_sweep_at: Option<Timestamp>,
    pub sweeping: bool,
}

/// Why a registry is not called.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Blocked {
    pub since: Timestamp,
    pub until: Option<Timestamp>,
    pub reason: Option<String>,
}

/// What a registry may be asked for.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Limits {
    pub max_concurrent: usize,
    pub rate: String,
}

/// A comparison in numbers.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct SweepResource {
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub listed: u64,
    pub ours: u64,
    pub unknown: u64,
    pub foreign: u64,
    pub missing: u64,
}

/// A comparison that did not come to its end.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct SweepFailure {
    pub at: Timestamp,
    pub error: String,
}

/// A restore of the database.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RestoredResource {
    pub restored_at: Timestamp,
    pub reason: String,
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
}

impl From<Restored> for RestoredResource {
    fn from(restored: Restored) -> Self {
        Self {
            restored_at: restored.restored_at,
            reason: restored.reason,
            acknowledged_at: restored.acknowledged_at,
            acknowledged_by: restored.acknowledged_by,
        }
    }
}

impl From<SweepSummary> for SweepResource {
    fn from(last: SweepSummary) -> Self {
        Self {
            started_at: last.started_at,
            finished_at: last.finished_at,
            listed: last.listed,
            ours: last.ours,
            unknown: last.unknown,
            foreign: last.foreign,
            missing: last.missing,
        }
    }
}

/// A registry as it is now.
#[must_use]
pub fn registry(
    id: &RegistryId,
    configured: &ConfiguredRegistry,
    enabled: bool,
    sweep: Option<&SweepState>,
    now: Timestamp,
) -> RegistryResource {
    let status = configured.lane.status();
    let (health, breaker) = match status.breaker {
        BreakerState::Closed => ("ok", "closed"),
        BreakerState::Open => ("degraded", "open"),
        BreakerState::HalfOpen => ("degraded", "half_open"),
    };
    let until = status
        .until
        .map(|until| now.plus(until.saturating_duration_since(tokio::time::Instant::now())));
    let waits = status.breaker != BreakerState::Closed || until.is_some_and(|until| until > now);
    let blocked = waits.then(|| Blocked {
        since: now.minus(status.since.elapsed()),
        until,
        reason: status.last_error.map(|trouble| trouble.message),
    });
    let limits = configured.lane.limits();
    let failure = sweep.and_then(|sweep| sweep.failed.clone());
    RegistryResource {
        registry_id: id.clone(),
        registry: configured.host.clone(),
        aliases: configured.aliases.clone(),
        enabled,
        health,
        breaker,
        blocked,
        limits: Limits { max_concurrent: limits.0, rate: String::from(limits.1) },
        in_flight: status.in_flight,
        last_sweep: sweep.and_then(|sweep| sweep.last).map(Into::into),
        last_sweep_error: failure.map(|(at, error)| SweepFailure { at, error }),
        next_sweep_at: sweep.map(|sweep| sweep.due_at),
        sweeping: sweep.and_then(|sweep| sweep.lease_until).is_some_and(|until| until > now),
    }
}

/// The answer to `POST /v1/registries/{registry_id}/sweeps`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct SweepReport {
    pub registry_id: RegistryId,
    pub started_at: Timestamp,
    pub dry_run: bool,
    pub listed: u64,
    pub ours: u64,
    pub unknown: Vec<UnknownResource>,
    pub foreign: u64,
    pub missing: Vec<MissingResource>,
    /// Given up for deletion by this sweep; the deletions go on by themselves.
    pub deleted: Vec<String>,
    pub restored: bool,
    /// There is more than is listed.
    pub truncated: bool,
}

/// An account that is ours and that no row wants.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct UnknownResource {
    pub name: String,
    pub cluster_id: Option<ClusterId>,
    pub generation: Option<Generation>,
    pub marker: Option<String>,
    /// None where a dry run is the first to see it.
    pub first_seen_at: Option<Timestamp>,
    pub deletable_at: Option<Timestamp>,
    pub attempts: u32,
    pub last_error: Option<String>,
}

/// An account that is handed out and that the registry does not have.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct MissingResource {
    pub cluster_id: ClusterId,
    pub name: String,
}

/// What a sweep found.
#[must_use]
pub fn sweep_report(registry_id: RegistryId, report: Report, dry_run: bool) -> SweepReport {
    let Report { started_at, found, markers, known, decided, restored } = report;
    let truncated = [found.unknown.len(), found.missing.len(), decided.len()]
        .into_iter()
        .any(|length| length > MOST);
    let unknown = found.unknown.iter().take(MOST).map(|unknown| {
        let name = unknown.name.to_string();
        let remembered = known.get(&name);
        let deletion = remembered.and_then(|known| known.deletion.as_ref());
        UnknownResource {
            cluster_id: unknown.cluster_id.clone(),
            generation: unknown.generation,
            marker: markers.get(&name).cloned(),
            first_seen_at: remembered.map(|_| unknown.first_seen_at),
            deletable_at: remembered.map(|_| unknown.deletable_at),
            attempts: deletion.map_or(0, |deletion| deletion.attempts),
            last_error: deletion.and_then(|deletion| deletion.last_error.clone()),
            name,
        }
    });
    let unknown = unknown.collect();
    let missing = found.missing.into_iter().take(MOST);
    SweepReport {
        registry_id,
        started_at,
        dry_run,
        listed: found.listed,
        ours: found.ours,
        unknown,
        foreign: found.foreign,
        missing: missing
            .map(|it| MissingResource { cluster_id: it.cluster_id, name: it.name })
            .collect(),
        deleted: decided.into_iter().take(MOST).collect(),
        restored,
        truncated,
    }
}
