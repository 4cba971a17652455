//! One comparison: take the registry, list, read the rows, compare, store what follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::super::audit::Caller;
use super::super::deps::Deps;
use super::super::restored;
use super::super::system::Shards;
use super::gather::{GatherError, Gathered, gather, longest};
use super::{deletions, told};
use crate::ids::{Generation, RegistryId};
use crate::state::pull_secret::Command;
use crate::state::sweep::{Comparison, Missing, Unknown};
use crate::store::{StoreError, SweepCommit, UnknownAccount};
use crate::time::Timestamp;

/// A registry that could not be listed is tried again after this, or after an interval that is shorter.
const TRY_AGAIN: Duration = Duration::from_secs(15 * 60);
/// So many missing accounts are told to their clusters per sweep; the others at the next one.
const MOST_MISSING: usize = 1000;

/// What a sweep found, and what follows from it.
#[derive(Debug)]
pub struct Report {
    /// When the listing was asked for.
    pub started_at: Timestamp,
    /// What differs.
    pub found: Comparison,
    /// The markers of what is unknown, as the registry tells them.
    pub markers: BTreeMap<String, String>,
    /// What is remembered of what is unknown; a dry run remembers nothing new.
    pub known: BTreeMap<String, UnknownAccount>,
    /// The names whose deletion was decided.
    pub decided: Vec<String>,
    /// Whether something says that the database was restored.
    pub restored: bool,
}

/// Why a registry was not compared.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// It is being compared, here or by another replica.
    #[error("the registry's accounts are being compared already")]
    Running,
    /// There is no such registry.
    #[error("the registry is not configured")]
    Unknown,
    /// It could not be listed.
    #[error("the registry's accounts cannot be listed: {0}")]
    Registry(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What kind of sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its time has come.
    Due,
    /// Somebody asks for one: finds, remembers and deletes.
    Asked,
    /// Somebody asks what there is: changes nothing.
    Dry,
}

/// Begins one whose time has come and waits for nothing.
pub(super) fn start_due(deps: &Arc<Deps>, shards: &Shards, registry_id: RegistryId) {
    let (deps, shards) = (deps.clone(), shards.clone());
    actix_rt::spawn(async move {
        let caller = Caller::service("sweeper");
        // What went wrong is told where it happens; a lost race is no trouble.
        let _ = sweep(&deps, &shards, &registry_id, Kind::Due, &caller).await;
    });
}

/// Compares one registry's accounts with ours. Not to be dropped halfway: its lease would last on.
///
/// # Errors
/// [`SweepError`]; nothing was stored then but the failure.
pub async fn sweep(
    deps: &Arc<Deps>,
    shards: &Shards,
    registry_id: &RegistryId,
    kind: Kind,
    caller: &Caller,
) -> Result<Report, SweepError> {
    let _running = deps.activity.begin();
    let configured = deps.registries.get(registry_id).ok_or(SweepError::Unknown)?;
    let now = deps.clock.now();
    let (holder, until) = (Uuid::now_v7(), now.plus(longest(configured)));
    let only_due = kind == Kind::Due;
    if !deps.store.begin_sweep(registry_id, holder, now, until, only_due).await? {
        return Err(SweepError::Running);
    }
    let one = Sweep { deps, registry_id, holder, kind, caller };
    match gather(deps, registry_id, configured).await {
        Ok(gathered) if kind == Kind::Dry => one.report_only(gathered).await,
        Ok(gathered) => one.store(shards, gathered).await,
        Err(error) => Err(one.failed(error).await),
    }
}

struct Sweep<'a> {
    deps: &'a Arc<Deps>,
    registry_id: &'a RegistryId,
    holder: Uuid,
    kind: Kind,
    caller: &'a Caller,
}

impl Sweep<'_> {
    async fn failed(&self, error: GatherError) -> SweepError {
        let now = self.deps.clock.now();
        let (message, error) = match error {
            GatherError::Registry(message) => (message.clone(), SweepError::Registry(message)),
            GatherError::Store(error) => (error.to_string(), SweepError::Store(error)),
        };
        let again = now.plus(TRY_AGAIN.min(self.deps.tuning.sweep_interval));
        let failure = (self.kind != Kind::Dry).then_some((again, message.as_str()));
        let store = &self.deps.store;
        if let Err(error) = store.abandon_sweep(self.registry_id, self.holder, now, failure).await {
            tracing::warn!(%error, "a sweep's end could not be stored; its lease runs out");
        }
        told::failed(self.deps, self.registry_id, &message, self.caller);
        error
    }

    async fn report_only(&self, gathered: Gathered) -> Result<Report, SweepError> {
        let (store, now) = (&self.deps.store, gathered.now);
        store.abandon_sweep(self.registry_id, self.holder, now, None).await?;
        let row = told::swept(self.registry_id, &gathered.found, true, self.caller, now);
        store.record_audit(&[row]).await?;
        told::ended(self.deps, self.registry_id, &gathered.found, "dry_run", self.caller);
        let Gathered { started_at, found, markers, known, .. } = gathered;
        let restored = !found.beyond.is_empty() || self.deps.restored.is_latched();
        Ok(Report { started_at, found, markers, known, decided: Vec::new(), restored })
    }

    async fn store(&self, shards: &Shards, gathered: Gathered) -> Result<Report, SweepError> {
        let Gathered { started_at, now, found, markers, mut known } = gathered;
        let (id, caller) = (self.registry_id, self.caller);
        let decisions = found.unknown.iter().filter(|unknown| unknown.delete).map(|unknown| {
            let detail =
                json!({ "first_seen_at": unknown.first_seen_at, "recorded": unknown.recorded });
            let row = told::about(id, unknown, "unknown_deletion_decided", detail, caller, now);
            (unknown.name.to_string(), row)
        });
        let doubt = (!found.beyond.is_empty()).then(|| {
            let reason = format!(
                "registry {id} has accounts of generations that were never given out, of {} clusters",
                found.beyond.len()
            );
            let row = restored::row("restored", caller, json!({ "why": reason }), now);
            (reason, row)
        });
        let commit = SweepCommit {
            registry_id: id,
            holder: self.holder,
            started_at,
            at: now,
            due_at: self.next(started_at, now, &found),
            found: &found,
            audit: vec![told::swept(id, &found, false, caller, now)],
            decisions: decisions.collect(),
            restored: doubt,
        };
        let stored = self.deps.store.end_sweep(&commit).await?;
        restored::refresh(self.deps).await?;
        told::ended(self.deps, id, &found, "completed", caller);
        told::found(id, &found, &stored.decided, now);
        self.tell_missing(shards, &found.missing, started_at).await;
        deletions::go_on(self.deps, id).await?;
        for unknown in found.unknown.iter().filter(|unknown| unknown.first_seen_at == now) {
            known.entry(unknown.name.to_string()).or_insert_with(|| remembered(id, unknown));
        }
        let restored = self.deps.restored.is_latched();
        Ok(Report { started_at, found, markers, known, decided: stored.decided, restored })
    }

    /// An interval later, a little less so that registries drift apart; or as soon as something is old
    /// enough, because a deletion is decided on a fresh listing only.
    fn next(&self, started_at: Timestamp, now: Timestamp, found: &Comparison) -> Timestamp {
        let spread = 1.0 - 0.1 * rand::random::<f64>();
        let usual = started_at.plus(self.deps.tuning.sweep_interval.mul_f64(spread));
        let doubted = self.deps.restored.is_latched() || !self.deps.time_is_trusted();
        if doubted || !found.beyond.is_empty() {
            return usual;
        }
        let waiting = found.unknown.iter().filter(|unknown| !unknown.delete);
        let soonest = waiting.map(|unknown| unknown.deletable_at.max(now)).min();
        soonest.map_or(usual, |soonest| soonest.min(usual))
    }

    /// The clusters find out for themselves what it means: a login tells more than a listing.
    async fn tell_missing(&self, shards: &Shards, missing: &[Missing], listed_at: Timestamp) {
        for missing in missing.iter().take(MOST_MISSING) {
            let (account_id, cluster_id) = (missing.account_id, &missing.cluster_id);
            let command = Command::Missing { account_id, listed_at };
            let told = shards.execute(cluster_id, command, Caller::service("sweeper")).await;
            if let Err(error) = told {
                let registry = self.registry_id.as_str();
                tracing::warn!(registry, %cluster_id, %error, "a cluster was not told");
            }
        }
    }
}

fn remembered(registry_id: &RegistryId, unknown: &Unknown) -> UnknownAccount {
    UnknownAccount {
        registry_id: registry_id.clone(),
        name: unknown.name.to_string(),
        remote_id: unknown.remote_id.clone(),
        cluster_id: unknown.cluster_id.clone(),
        generation: unknown.generation.filter(|it| *it != Generation::NONE),
        first_seen_at: unknown.first_seen_at,
        deletion: None,
    }
}
