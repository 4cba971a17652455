//! The listing of a registry, and the rows that it is compared with. Reads only.
//!
//! The order is what makes it safe: the listing is complete before the first row is read.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::super::deps::{ConfiguredRegistry, Deps};
use crate::ids::{ClusterId, Generation, RegistryId};
use crate::registries::{
    CallContext, ListError, ListedAccount, Marker, Trouble, TroubleKind, Unfenced,
};
use crate::state::sweep::{
    Claim, Comparison, Facts, Listed, Named, Rules, Seen, Serving, compare, parts_of,
};
use crate::store::{StoreError, UnknownAccount};
use crate::time::Timestamp;

/// So many rows per question.
const PAGE: usize = 1000;
/// A place in the registry's lane is waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a registry has, compared with what the rows say.
pub(super) struct Gathered {
    /// When the listing was asked for.
    pub(super) started_at: Timestamp,
    /// When the rows had been read.
    pub(super) now: Timestamp,
    /// What differs.
    pub(super) found: Comparison,
    /// The markers of what is unknown, as the registry tells them.
    pub(super) markers: BTreeMap<String, String>,
    /// What is remembered of what is unknown.
    pub(super) known: BTreeMap<String, UnknownAccount>,
}

/// Why there is nothing to compare.
#[derive(Debug)]
pub(super) enum GatherError {
    /// The registry could not be listed, in words that are safe.
    Registry(String),
    Store(StoreError),
}

impl From<StoreError> for GatherError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// How long a registry may be held while it is compared: the waiting, the call, and the reading.
pub(super) fn longest(configured: &ConfiguredRegistry) -> Duration {
    PATIENCE + configured.timeout + Duration::from_secs(60)
}

pub(super) async fn gather(
    deps: &Deps,
    registry_id: &RegistryId,
    configured: &ConfiguredRegistry,
) -> Result<Gathered, GatherError> {
    let prefix = deps.policy.registry(registry_id).prefix;
    let (started_at, accounts) = list(deps, registry_id, configured, &prefix).await?;
    let mut markers = BTreeMap::new();
    let mut listed = Vec::with_capacity(accounts.len());
    for account in accounts {
        let claim = claim(&account, &deps.installation);
        if let Some(marker) = account.marker {
            markers.insert(account.name.clone(), marker);
        }
        listed.push(Listed { name: account.name, remote_id: account.remote_id, claim });
    }
    let rows = Rows::read(deps, registry_id, &listed, &prefix).await?;
    let restored = deps.store.restored().await?;
    let rules = Rules {
        safety_age: deps.tuning.sweep_safety_age,
        settle_time: deps.policy.registry(registry_id).settle_time,
        restored: restored.as_ref().is_some_and(crate::store::Restored::is_latched),
        acknowledged_at: restored.and_then(|restored| restored.acknowledged_at),
        time_is_trusted: deps.time_is_trusted(),
        prefix,
    };
    let now = deps.clock.now();
    let facts = Facts {
        started_at,
        now,
        listed: &listed,
        named: &rows.named,
        serving: &rows.serving,
        seen: &rows.seen,
        generations: &rows.generations,
        slugs: &rows.slugs,
    };
    let found = compare(&facts, &rules);
    let unknown: BTreeSet<&str> = found.unknown.iter().map(|it| it.name.as_str()).collect();
    markers.retain(|name, _| unknown.contains(name.as_str()));
    Ok(Gathered { started_at, now, found, markers, known: rows.known })
}

/// Lists the accounts with this prefix, through the registry's lane.
async fn list(
    deps: &Deps,
    registry_id: &RegistryId,
    configured: &ConfiguredRegistry,
    prefix: &str,
) -> Result<(Timestamp, Vec<ListedAccount>), GatherError> {
    let waited = tokio::time::timeout(PATIENCE, configured.lane.permit()).await;
    let permit = match waited {
        Ok(Ok(permit)) => permit,
        Ok(Err(not_now)) => return Err(GatherError::Registry(not_now.reason)),
        Err(_elapsed) => {
            return Err(GatherError::Registry(
                "the registry has no place for a listing".to_owned(),
            ));
        }
    };
    let began = Instant::now();
    let started_at = deps.clock.now();
    let context = CallContext { deadline: began + configured.timeout, fence: Arc::new(Unfenced) };
    let listing = configured.registry.list(&context, prefix);
    let listing = tokio::time::timeout(configured.timeout, listing);
    let listed = match AssertUnwindSafe(listing).catch_unwind().await {
        Ok(Ok(listed)) => listed,
        Ok(Err(_elapsed)) => Err(ListError(Trouble::timeout())),
        Err(_panic) => {
            deps.metrics.panic("call");
            Err(ListError(Trouble::new(
                TroubleKind::NotCurrent,
                "the listing ended by a fault of this service",
            )))
        }
    };
    permit.report(&listed);
    let outcome = if listed.is_ok() { "listed" } else { "failed" };
    deps.metrics.effect(registry_id.as_str(), "list", outcome, began.elapsed());
    match listed {
        Ok(listed) => Ok((started_at, listed)),
        Err(ListError(trouble)) => Err(GatherError::Registry(trouble.message)),
    }
}

fn claim(account: &ListedAccount, installation: &str) -> Claim {
    match account.marker.as_deref().and_then(Marker::parse) {
        Some(marker) if marker.installation == installation => {
            Claim::Ours { cluster_id: marker.cluster_id, generation: marker.generation }
        }
        Some(_) => Claim::Theirs,
        None => Claim::Unsigned,
    }
}

/// The rows, read after the listing.
struct Rows {
    named: Vec<Named>,
    serving: Vec<Serving>,
    seen: Vec<Seen>,
    known: BTreeMap<String, UnknownAccount>,
    generations: BTreeMap<ClusterId, Generation>,
    slugs: BTreeMap<String, Generation>,
}

impl Rows {
    async fn read(
        deps: &Deps,
        registry_id: &RegistryId,
        listed: &[Listed],
        prefix: &str,
    ) -> Result<Self, StoreError> {
        let mut named = Vec::new();
        for page in listed.chunks(PAGE) {
            let names: Vec<String> = page.iter().map(|listed| listed.name.clone()).collect();
            named.extend(deps.store.named_accounts(registry_id, &names).await?);
        }
        let known = known(deps, registry_id).await?;
        let seen = known.values().map(|unknown| Seen {
            name: unknown.name.clone(),
            first_seen_at: unknown.first_seen_at,
            calling: unknown.deletion.as_ref().is_some_and(|deletion| deletion.call.is_some()),
        });
        Ok(Self {
            serving: serving(deps, registry_id).await?,
            seen: seen.collect(),
            generations: generations(deps, listed).await?,
            slugs: slugs(deps, listed, &named, prefix).await?,
            named,
            known,
        })
    }
}

fn limit() -> u32 {
    u32::try_from(PAGE).unwrap_or(u32::MAX)
}

async fn known(
    deps: &Deps,
    registry_id: &RegistryId,
) -> Result<BTreeMap<String, UnknownAccount>, StoreError> {
    let mut known = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = deps.store.unknown_accounts(registry_id, &after, limit()).await?;
        let Some(last) = page.last() else { return Ok(known) };
        after.clone_from(&last.name);
        known.extend(page.into_iter().map(|unknown| (unknown.name.clone(), unknown)));
    }
}

async fn serving(deps: &Deps, registry_id: &RegistryId) -> Result<Vec<Serving>, StoreError> {
    let mut serving = Vec::new();
    let mut after = String::new();
    loop {
        let page = deps.store.serving_accounts(registry_id, &after, limit()).await?;
        let Some(last) = page.last() else { return Ok(serving) };
        after.clone_from(&last.name);
        serving.extend(page);
    }
}

/// The counters of the clusters that our markers name.
async fn generations(
    deps: &Deps,
    listed: &[Listed],
) -> Result<BTreeMap<ClusterId, Generation>, StoreError> {
    let of = |listed: &Listed| match &listed.claim {
        Claim::Ours { cluster_id, .. } => cluster_id.clone(),
        Claim::Theirs | Claim::Unsigned => None,
    };
    let clusters: BTreeSet<ClusterId> = listed.iter().filter_map(of).collect();
    let clusters: Vec<ClusterId> = clusters.into_iter().collect();
    let mut counters = BTreeMap::new();
    for page in clusters.chunks(PAGE) {
        counters.extend(deps.store.generation_counters(page).await?);
    }
    Ok(counters)
}

/// The counters behind names that carry no marker and stand in no row; elsewhere there are few of them.
async fn slugs(
    deps: &Deps,
    listed: &[Listed],
    named: &[Named],
    prefix: &str,
) -> Result<BTreeMap<String, Generation>, StoreError> {
    let known: BTreeSet<&str> = named.iter().map(|row| row.name.as_str()).collect();
    let unsigned = listed.iter().filter(|it| it.claim == Claim::Unsigned);
    let nameless = unsigned.filter(|listed| !known.contains(listed.name.as_str()));
    let slugs: BTreeSet<String> =
        nameless.filter_map(|listed| Some(parts_of(prefix, &listed.name)?.slug)).collect();
    let slugs: Vec<String> = slugs.into_iter().collect();
    let mut counters = BTreeMap::new();
    for page in slugs.chunks(PAGE) {
        counters.extend(deps.store.slug_counters(page).await?);
    }
    Ok(counters)
}
