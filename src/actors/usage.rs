//! Reads the registries' own records of use, and tells the machine as evidence.
//!
//! One reading per registry covers every account that is wanted: what a registry keeps is one log or one
//! list. What is due, and until when the last reading told, is stored, so a restart needs nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::audit::Caller;
use super::deps::{ConfiguredRegistry, Deps};
use super::shard::CommandError;
use super::step::StepError;
use super::system::Shards;
use crate::ids::RegistryId;
use crate::registries::{CallContext, ListError, Trouble, Unfenced, Usage};
use crate::state::pull_secret::{AccountPhase, Command, Evidence, EvidenceSource, EvidenceSubject};
use crate::store::{StoreError, UsageCandidate, UsageScope};
use crate::time::Timestamp;

/// Every account is looked at so often, for `last_used_at`.
const EVERY_ACCOUNT: Duration = Duration::from_secs(24 * 3600);
/// What a registry writes down a little late is read by the next reading.
const OVERLAP: Duration = Duration::from_secs(300);
/// The first reading looks back so far at most.
const FIRST: Duration = Duration::from_secs(24 * 3600);
/// A reading may take several requests.
const REQUESTS: u32 = 6;
/// Registries write a use down at most once in this time, and clocks differ.
const MARGIN: Duration = Duration::from_secs(60);
const PAGE: u32 = 1000;

/// Looks for the life of the process whether a reading is due.
pub fn watch(deps: &Arc<Deps>, shards: &Shards) {
    for (id, configured) in &deps.registries {
        if !configured.registry.capabilities().usage_evidence {
            continue;
        }
        let (id, deps, shards) = (id.clone(), Arc::clone(deps), shards.clone());
        actix_rt::spawn(async move {
            loop {
                tokio::time::sleep(deps.tuning.tick).await;
                if deps.activity.is_stopping() {
                    return;
                }
                let _running = deps.activity.begin();
                for scope in [UsageScope::Rotating, UsageScope::All] {
                    if let Err(error) = read(&deps, &shards, &id, scope).await {
                        let registry = id.as_str();
                        tracing::warn!(registry, %scope, %error, "use could not be read");
                    }
                }
            }
        });
    }
}

#[derive(Debug, thiserror::Error)]
enum UsageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("the registry is left alone: {0}")]
    NotNow(String),
    #[error(transparent)]
    Command(#[from] CommandError),
}

fn pause(deps: &Deps, scope: UsageScope) -> Duration {
    match scope {
        UsageScope::Rotating => deps.policy.sighting_interval().max(Duration::from_secs(1)),
        UsageScope::All => EVERY_ACCOUNT,
    }
}

async fn read(
    deps: &Arc<Deps>,
    shards: &Shards,
    id: &RegistryId,
    scope: UsageScope,
) -> Result<(), UsageError> {
    let Some(configured) = deps.registries.get(id) else { return Ok(()) };
    let now = deps.clock.now();
    let claimed = deps.store.claim_usage(id, scope, now, pause(deps, scope)).await?;
    let Some(read_until) = claimed else { return Ok(()) };
    let candidates = candidates(deps, id, scope).await?;
    let Some(since) = since(&candidates, read_until, now) else { return Ok(()) };
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.name.clone()).collect();
    let used = ask(deps, id, configured, &names, since).await?;
    let by_name: HashMap<_, _> = candidates.iter().map(|c| (c.name.as_str(), c)).collect();
    let wait = configured.timeout.saturating_mul(2);
    let mut seen: Vec<_> = used
        .iter()
        .filter_map(|usage| Some((*by_name.get(usage.name.as_str())?, usage.last_used_at)))
        .filter(|(candidate, at)| is_foreign(candidate, *at, wait))
        .collect();
    // A consumer's latest word is what counts, so the earlier use is told first.
    seen.sort_by_key(|(_, at)| *at);
    for (candidate, at) in seen {
        tell(shards, id, candidate, at).await?;
    }
    Ok(deps.store.usage_read(id, scope, now).await?)
}

async fn candidates(
    deps: &Deps,
    id: &RegistryId,
    scope: UsageScope,
) -> Result<Vec<UsageCandidate>, StoreError> {
    let mut all: Vec<UsageCandidate> = Vec::new();
    loop {
        let after = all.last().map(|candidate| candidate.account_id);
        let page = deps.store.usage_candidates(id, scope, after, PAGE).await?;
        let last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        all.extend(page);
        if last {
            return Ok(all);
        }
    }
}

/// From when on the record is asked for: what came before the last switch of every candidate proves nothing.
/// `None` when there is nobody to ask about.
fn since(
    candidates: &[UsageCandidate],
    read_until: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let oldest = candidates.iter().map(|candidate| candidate.served_since).min()?;
    let read_until = read_until.map_or(now.minus(FIRST), |until| until.minus(OVERLAP));
    Some(oldest.max(read_until).min(now))
}

/// Whether somebody else used it. Our own verification of what is served must never prove that the cluster has
/// moved, also one of a process before or of another replica, so what is stored decides. For the old accounts
/// every use counts: taking one of ours for the cluster's only keeps them longer.
fn is_foreign(candidate: &UsageCandidate, used_at: Timestamp, longest_call: Duration) -> bool {
    match candidate.phase {
        AccountPhase::Serving => {
            let verified = candidate.verified_at.filter(|_| !candidate.unsure);
            verified.is_some_and(|at| used_at > at.plus(longest_call).plus(MARGIN))
        }
        AccountPhase::Retiring => true,
        AccountPhase::Planned
        | AccountPhase::Creating
        | AccountPhase::Created
        | AccountPhase::Verified
        | AccountPhase::Deleting
        | AccountPhase::Gone
        | AccountPhase::Burnt
        | AccountPhase::Residue => false,
    }
}

async fn ask(
    deps: &Deps,
    id: &RegistryId,
    configured: &ConfiguredRegistry,
    names: &[crate::ids::AccountName],
    since: Timestamp,
) -> Result<Vec<Usage>, UsageError> {
    let permit = configured.lane.permit().await;
    let permit = permit.map_err(|not_now| UsageError::NotNow(not_now.reason))?;
    let time = configured.timeout.saturating_mul(REQUESTS);
    let began = Instant::now();
    let call = CallContext { deadline: began + time, fence: Arc::new(Unfenced) };
    let asked = configured.registry.usage(&call, names, since);
    let used = match tokio::time::timeout(time, asked).await {
        Ok(used) => used,
        Err(_) => Err(ListError(Trouble::timeout())),
    };
    permit.report(&used);
    let outcome = if used.is_ok() { "listed" } else { "failed" };
    deps.metrics.effect(id.as_str(), "usage", outcome, began.elapsed());
    Ok(used?)
}

async fn tell(
    shards: &Shards,
    id: &RegistryId,
    candidate: &UsageCandidate,
    used_at: Timestamp,
) -> Result<(), UsageError> {
    let evidence = Evidence {
        source: EvidenceSource::Registry,
        consumer: id.to_string(),
        subject: EvidenceSubject::Account(candidate.account_id),
        observed_at: used_at,
    };
    let command = Command::Observe(evidence);
    match shards.execute(&candidate.cluster_id, command, Caller::service("usage")).await {
        // It went between the reading and now, or its credential is busy: the next reading tells it again.
        Ok(_) | Err(CommandError::Step(StepError::Rejected(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
