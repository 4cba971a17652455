//! Wakes what is due, closes the calls that the process before left open, lets history pass.
//!
//! Timers are rows: a look costs what is due, never what exists. A claim moves the due time into the
//! future, so what was woken comes back by itself should its actor die.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;

use super::audit::Caller;
use super::campaigns;
use super::deps::Deps;
use super::shard::Dispatch;
use super::system::Shards;
use super::upkeep;
use crate::failpoints::Point;
use crate::ids::ClusterId;
use crate::state::pull_secret::Command;
use crate::store::StoreError;

/// History, gauges and key files are looked at so often.
const HOUSEKEEPING: Duration = Duration::from_secs(15);

/// The actor.
pub struct Scheduler {
    deps: Arc<Deps>,
    shards: Shards,
    looking: bool,
    driving: bool,
    /// Woken, but its shard was full.
    left_over: Vec<ClusterId>,
    kept_house: Option<Instant>,
    anchored: Option<Instant>,
}

impl Scheduler {
    /// A scheduler that has not looked yet.
    #[must_use]
    pub const fn new(deps: Arc<Deps>, shards: Shards) -> Self {
        Self {
            deps,
            shards,
            looking: false,
            driving: false,
            left_over: Vec::new(),
            kept_house: None,
            anchored: None,
        }
    }

    fn wake(&mut self, clusters: Vec<ClusterId>) {
        let waiting = std::mem::take(&mut self.left_over);
        for cluster_id in waiting.into_iter().chain(clusters) {
            let message = Dispatch::wake(cluster_id.clone());
            if self.shards.of(&cluster_id).try_send(message).is_err() {
                self.left_over.push(cluster_id);
            }
        }
    }

    fn house_is_due(&self) -> bool {
        self.kept_house.is_none_or(|at| at.elapsed() >= HOUSEKEEPING)
    }

    fn anchor_is_due(&self) -> bool {
        self.anchored.is_none_or(|at| at.elapsed() >= self.deps.tuning.anchor_every)
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.run_interval(self.deps.tuning.tick, |_, context| {
            context.notify(Look);
            context.notify(Drive);
        });
        context.notify(Look);
    }
}

/// Is the scheduler alive?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PingScheduler;

impl Handler<PingScheduler> for Scheduler {
    type Result = ();

    fn handle(&mut self, _message: PingScheduler, _context: &mut Context<Self>) {}
}

#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Look;

impl Handler<Look> for Scheduler {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _message: Look, _context: &mut Context<Self>) -> Self::Result {
        if self.looking || self.deps.activity.is_stopping() {
            return Box::pin(actix::fut::ready(()));
        }
        self.looking = true;
        let deps = self.deps.clone();
        let (house, anchor) = (self.house_is_due(), self.anchor_is_due());
        // What a full shard could not take is offered first; no more is claimed meanwhile.
        let crowded = !self.left_over.is_empty();
        let running = self.deps.activity.begin();
        let work = async move {
            let _running = running;
            let due = if crowded { Ok(Vec::new()) } else { claim(&deps).await };
            if house && let Err(error) = keep_house(&deps).await {
                tracing::warn!(%error, "housekeeping failed");
            }
            if anchor && let Err(error) = upkeep::anchor_audit(&deps).await {
                tracing::warn!(%error, "the audit was not anchored");
            }
            due
        };
        Box::pin(work.into_actor(self).map(move |due, actor, _| {
            actor.looking = false;
            if house {
                actor.kept_house = Some(Instant::now());
            }
            if anchor {
                actor.anchored = Some(Instant::now());
            }
            match due {
                Ok(clusters) => actor.wake(clusters),
                Err(error) => {
                    tracing::warn!(%error, "nothing could be claimed");
                    actor.wake(Vec::new());
                }
            }
        }))
    }
}

/// Campaigns are driven beside the look, which must not wait for them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Drive;

impl Handler<Drive> for Scheduler {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _message: Drive, _context: &mut Context<Self>) -> Self::Result {
        if self.driving || self.deps.activity.is_stopping() {
            return Box::pin(actix::fut::ready(()));
        }
        self.driving = true;
        let (deps, shards) = (self.deps.clone(), self.shards.clone());
        let running = self.deps.activity.begin();
        let work = async move {
            let _running = running;
            if let Err(error) = campaigns::drive(&deps, &shards).await {
                tracing::warn!(%error, "campaigns were not driven");
            }
        };
        Box::pin(work.into_actor(self).map(|(), actor, _| actor.driving = false))
    }
}

async fn claim(deps: &Deps) -> Result<Vec<ClusterId>, StoreError> {
    let now = deps.clock.now();
    // Whose turn it is becomes due, and is claimed like everything else.
    let tuning = &deps.tuning;
    deps.store.call_turns(tuning.max_rotations, now, now.plus(tuning.lease)).await?;
    deps.store.due(now, deps.tuning.batch, now.plus(deps.tuning.lease)).await
}

async fn keep_house(deps: &Deps) -> Result<(), StoreError> {
    if let Err(error) = deps.keyring.reload() {
        tracing::warn!(%error, "the keys could not be read again");
    }
    let now = deps.clock.now();
    deps.metrics.due_items.set(i64::try_from(deps.store.due_count(now).await?).unwrap_or(i64::MAX));
    gauge(&deps.metrics.pull_secrets, &deps.store.state_counts().await?);
    gauge(&deps.metrics.rotations, &deps.store.phase_counts().await?);
    let trouble = deps.store.trouble_counts(now, deps.policy.stuck_after()).await?;
    gauge(&deps.metrics.attention, &trouble.attention);
    deps.metrics.burnt_accounts.set(i64::try_from(trouble.burnt).unwrap_or(i64::MAX));
    upkeep::let_pass(deps).await
}

/// A state that nothing is in any more has to go back to zero.
fn gauge(gauge: &prometheus::IntGaugeVec, counts: &BTreeMap<String, u64>) {
    gauge.reset();
    for (word, count) in counts {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        gauge.with_label_values(&[word.as_str()]).set(count);
    }
}

/// Before anything is woken: nobody will answer the calls that were open when the process before ended.
///
/// # Errors
/// [`StoreError`] when they cannot be listed.
pub async fn take_over(deps: &Arc<Deps>, shards: &Shards) -> Result<usize, StoreError> {
    let clusters = deps.store.clusters_with_open_calls().await?;
    let count = clusters.len();
    for cluster_id in clusters {
        let done =
            shards.execute(&cluster_id, Command::TakeOver, Caller::service("takeover")).await;
        match done {
            Ok(_) => {
                let event_name = "taken_over";
                tracing::info!(%cluster_id, event_name, "open calls were closed as unknown");
            }
            Err(error) => tracing::error!(%cluster_id, %error, "open calls stay open"),
        }
        let _ = deps.at(Point::TakenOver, None).await;
    }
    Ok(count)
}
