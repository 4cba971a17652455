//! Compares what the registries have with what the rows say, and deletes what is ours and nobody wants.
//!
//! | module | subject |
//! |---|---|
//! | here | whose turn it is: stored times, so that a restart or another replica repeats nothing |
//! | [`sweep`](mod@sweep) | one comparison: list, read the rows, compare, store |
//! | `gather` | the listing, and the rows that it is compared with |
//! | `deletions` | the deletions that were decided, until the registry says "gone" |
//! | `told` | what audit, log and metrics are told |
//!
//! Holds no truth: a sweep that dies is begun again when its lease is over, a deletion goes on from its row.

mod deletions;
mod gather;
pub mod sweep;
mod told;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;

use super::deps::Deps;
use super::restored;
use super::system::Shards;
use crate::ids::RegistryId;
use crate::store::StoreError;

pub use sweep::{Report, SweepError, sweep};

/// Gauges and the database's timeline are looked at so often.
const HOUSEKEEPING: Duration = Duration::from_secs(15);

/// Before anything is woken: whether the database was restored, and when which registry is compared.
///
/// # Errors
/// [`StoreError`] when the database does not answer.
pub async fn prepare(deps: &Deps) -> Result<(), StoreError> {
    restored::refresh(deps).await?;
    if let Err(error) = restored::check_timeline(deps).await {
        tracing::warn!(%error, "the database's timeline cannot be read");
    }
    let now = deps.clock.now();
    let interval = deps.tuning.sweep_interval;
    let first = |id: &RegistryId| {
        // Never at once: a fleet that restarts would list every registry at the same moment.
        let part = 0.1 + 0.9 * share(&deps.installation, id);
        (id.clone(), now.plus(interval.mul_f64(part)))
    };
    let plans: Vec<_> = deps.registries.keys().map(first).collect();
    deps.store.plan_sweeps(&plans).await
}

/// A number from 0 to 1 that is the same in every process and differs between registries.
fn share(installation: &str, registry_id: &RegistryId) -> f64 {
    let mut hasher = DefaultHasher::new();
    (installation, registry_id).hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The actor.
pub struct Sweeper {
    deps: Arc<Deps>,
    shards: Shards,
    looking: bool,
    kept_house: Option<Instant>,
}

impl Sweeper {
    /// A sweeper that has not looked yet.
    #[must_use]
    pub const fn new(deps: Arc<Deps>, shards: Shards) -> Self {
        Self { deps, shards, looking: false, kept_house: None }
    }
}

impl Actor for Sweeper {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.run_interval(self.deps.tuning.tick, |_, context| context.notify(Look));
        context.notify(Look);
    }
}

/// Is the sweeper alive?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PingSweeper;

impl Handler<PingSweeper> for Sweeper {
    type Result = ();

    fn handle(&mut self, _message: PingSweeper, _context: &mut Context<Self>) {}
}

#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Look;

impl Handler<Look> for Sweeper {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _message: Look, _context: &mut Context<Self>) -> Self::Result {
        if self.looking || self.deps.activity.is_stopping() {
            return Box::pin(actix::fut::ready(()));
        }
        self.looking = true;
        let house = self.kept_house.is_none_or(|at| at.elapsed() >= HOUSEKEEPING);
        let (deps, shards) = (self.deps.clone(), self.shards.clone());
        let running = self.deps.activity.begin();
        let work = async move {
            let _running = running;
            if let Err(error) = look(&deps, &shards, house).await {
                tracing::warn!(%error, "sweeps wait for the database");
            }
        };
        Box::pin(work.into_actor(self).map(move |(), actor, _| {
            actor.looking = false;
            if house {
                actor.kept_house = Some(Instant::now());
            }
        }))
    }
}

async fn look(deps: &Arc<Deps>, shards: &Shards, house: bool) -> Result<(), StoreError> {
    restored::refresh(deps).await?;
    // Whoever is not sure to live begins nothing.
    if !deps.replica.is_live() {
        return Ok(());
    }
    if house {
        if let Err(error) = restored::check_timeline(deps).await {
            tracing::warn!(%error, "the database's timeline cannot be read");
        }
        told::gauges(deps, &deps.store.sweep_states().await?);
    }
    for registry_id in deps.store.due_sweeps(deps.clock.now()).await? {
        // A registry that is not configured any more stays due; it may come back.
        if deps.registries.contains_key(&registry_id) {
            sweep::start_due(deps, shards, registry_id);
        }
    }
    for registry_id in deps.registries.keys() {
        deletions::go_on(deps, registry_id).await?;
    }
    Ok(())
}
