//! Takes what is due and what the dead have left behind, wakes it, lets history pass.
//!
//! Timers are rows: a look costs what is due, never what exists. Whoever takes a row owns it, and its due time
//! moves into the future, so what was woken comes back by itself should its actor fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;

use super::audit::Caller;
use super::break_glass::house;
use super::campaigns;
use super::deps::Deps;
use super::kind::Kind;
use super::shard::Dispatch;
use super::system::{Actors, Shards};
use super::upkeep;
use crate::failpoints::Point;
use crate::store::{Claimed, StoreError};
use crate::time::Timestamp;

/// History, gauges and key files are looked at so often.
const HOUSEKEEPING: Duration = Duration::from_secs(15);

/// Wall and monotonic clock may drift apart by so much between two looks.
const CLOCKS_DRIFT: Duration = Duration::from_secs(5 * 60);

/// What was taken is woken in so many parts, over most of a tick.
const PARTS: usize = 16;
/// See [`PARTS`].
const PAUSES: u32 = 16;
/// No part is smaller.
const SMALL: usize = 4;

/// The actor.
pub struct Scheduler {
    deps: Arc<Deps>,
    actors: Actors,
    looking: bool,
    driving: bool,
    /// Something happened during a look: look once more.
    again: bool,
    /// Somebody may have left work behind.
    orphans: bool,
    /// Taken, and not woken yet.
    left_over: Taken,
    /// When the next part of it is.
    waking: Option<SpawnHandle>,
    kept_house: Option<Instant>,
    anchored: Option<Instant>,
    /// Both clocks at the last look.
    looked: Option<(Instant, Timestamp)>,
}

impl Scheduler {
    /// A scheduler that has not looked yet.
    #[must_use]
    pub fn new(deps: Arc<Deps>, actors: Actors) -> Self {
        Self {
            deps,
            actors,
            looking: false,
            driving: false,
            again: false,
            orphans: true,
            left_over: Taken::default(),
            waking: None,
            kept_house: None,
            anchored: None,
            looked: None,
        }
    }

    /// Wakes what was taken, a part of it at a time: each has a commit, and whoever waits for an answer would
    /// have to stand behind all of them.
    fn wake(&mut self, taken: Taken, context: &mut Context<Self>) {
        self.left_over.pull_secrets.extend(taken.pull_secrets);
        self.left_over.break_glass.extend(taken.break_glass);
        let part = self.left_over.len().div_ceil(PARTS).max(SMALL);
        self.wake_part(part, context);
    }

    fn wake_part(&mut self, part: usize, context: &mut Context<Self>) {
        let waiting = &mut self.left_over;
        offer(&self.actors.pull_secrets, &mut waiting.pull_secrets, part);
        if let Some(break_glass) = &self.actors.break_glass {
            offer(break_glass, &mut waiting.break_glass, part);
        }
        if let Some(next) = self.waking.take() {
            context.cancel_future(next);
        }
        if !self.left_over.is_empty() {
            // Done before the next look.
            let pause = self.deps.tuning.tick * 3 / 4 / PAUSES;
            let next = context.run_later(pause, move |actor, context| {
                actor.waking = None;
                actor.wake_part(part, context);
            });
            self.waking = Some(next);
        }
    }

    fn house_is_due(&self) -> bool {
        self.kept_house.is_none_or(|at| at.elapsed() >= HOUSEKEEPING)
    }

    /// Whether the wall clock has lost time against the one that only goes forward. The first look is one
    /// after who knows what.
    fn clock_went_back(&mut self, now: Timestamp) -> bool {
        let before = self.looked.replace((Instant::now(), now));
        before.is_none_or(|(at, then)| now.plus(CLOCKS_DRIFT) < then.plus(at.elapsed()))
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

/// Do not wait for the next tick.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LookNow {
    /// Somebody may have left work behind.
    pub orphans: bool,
}

impl Handler<LookNow> for Scheduler {
    type Result = ();

    fn handle(&mut self, message: LookNow, context: &mut Context<Self>) {
        self.orphans |= message.orphans;
        if self.looking {
            self.again = true;
        } else {
            context.notify(Look);
        }
    }
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
        let back = self.clock_went_back(deps.clock.now());
        let (house, anchor) = (self.house_is_due(), self.anchor_is_due());
        let orphans = house || std::mem::take(&mut self.orphans);
        // What was taken is woken first; no more is taken meanwhile.
        let crowded = !self.left_over.is_empty();
        let actors = self.actors.clone();
        let running = self.deps.activity.begin();
        let work = async move {
            let _running = running;
            if back && let Err(error) = wake_busy(&deps).await {
                tracing::warn!(%error, "what the clock has put off was not woken");
            }
            let taken =
                if crowded { Ok(Taken::default()) } else { take(&deps, &actors, orphans).await };
            if house && let Err(error) = keep_house(&deps, &actors).await {
                tracing::warn!(%error, "housekeeping failed");
            }
            if anchor && let Err(error) = upkeep::anchor_audit(&deps).await {
                tracing::warn!(%error, "the audit was not anchored");
            }
            taken
        };
        Box::pin(work.into_actor(self).map(move |taken, actor, context| {
            actor.looking = false;
            if house {
                actor.kept_house = Some(Instant::now());
            }
            if anchor {
                actor.anchored = Some(Instant::now());
            }
            match taken {
                Ok(taken) => {
                    actor.orphans |= taken.more_orphans || (orphans && crowded);
                    actor.wake(taken, context);
                }
                Err(error) => {
                    tracing::warn!(%error, "nothing could be taken");
                    actor.orphans |= orphans;
                    actor.wake(Taken::default(), context);
                }
            }
            if std::mem::take(&mut actor.again) {
                context.notify(Look);
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
        if self.driving || self.deps.activity.is_stopping() || !self.deps.replica.is_live() {
            return Box::pin(actix::fut::ready(()));
        }
        self.driving = true;
        let (deps, shards) = (self.deps.clone(), self.actors.pull_secrets.clone());
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

async fn wake_busy(deps: &Deps) -> Result<(), StoreError> {
    let woken = deps.store.wake_busy(deps.clock.now()).await?;
    tracing::info!(woken, "what is at work was woken");
    Ok(())
}

#[derive(Default)]
struct Taken {
    pull_secrets: VecDeque<Claimed>,
    break_glass: VecDeque<Claimed>,
    more_orphans: bool,
}

impl Taken {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.pull_secrets.len() + self.break_glass.len()
    }
}

async fn take(deps: &Deps, actors: &Actors, orphans: bool) -> Result<Taken, StoreError> {
    // Whoever is not sure to live takes nothing, and is told to look when it is.
    if !deps.replica.is_live() {
        return Ok(Taken { more_orphans: orphans, ..Taken::default() });
    }
    let (pull_secrets, mut more_orphans) = take_of(&**actors.pull_secrets.tools(), orphans).await?;
    let mut break_glass = Vec::new();
    if let Some(shards) = &actors.break_glass {
        let (taken, more) = take_of(&**shards.tools(), orphans).await?;
        break_glass = taken;
        more_orphans |= more;
    }
    let (pull_secrets, break_glass) = (pull_secrets.into(), break_glass.into());
    Ok(Taken { pull_secrets, break_glass, more_orphans })
}

async fn take_of<K: Kind>(tools: &K, orphans: bool) -> Result<(Vec<Claimed>, bool), StoreError> {
    let (deps, id) = (tools.deps(), tools.deps().replica.id);
    let now = deps.clock.now();
    let until = now.plus(deps.tuning.lease);
    let mut claimed = tools.due(now, until, id).await?;
    let mut more_orphans = false;
    if orphans {
        let found = tools.orphans(until, id).await?;
        more_orphans = found.len() >= usize::try_from(deps.tuning.batch).unwrap_or(usize::MAX);
        claimed.extend(found);
    }
    claimed.iter().for_each(|claimed| taken_over(deps, claimed));
    Ok((claimed, more_orphans))
}

/// Wakes so many. What a full shard does not take stays for later.
fn offer<K: Kind>(shards: &Shards<K>, waiting: &mut VecDeque<Claimed>, part: usize) {
    for _ in 0..part {
        let Some(claimed) = waiting.pop_front() else { return };
        let message = Dispatch::claimed(claimed.clone());
        if shards.of(&claimed.cluster_id).try_send(message).is_err() {
            waiting.push_back(claimed);
        }
    }
}

/// Says so when it was another replica's.
fn taken_over(deps: &Deps, claimed: &Claimed) {
    let Some(from) = claimed.from else { return };
    deps.metrics.takeovers.inc();
    tracing::info!(
        event_name = "taken_over",
        cluster_id = %claimed.cluster_id,
        %from,
        to = %deps.replica.id,
        epoch = claimed.ownership.epoch,
        "taken over"
    );
}

async fn keep_house(deps: &Deps, actors: &Actors) -> Result<(), StoreError> {
    if let Err(error) = deps.keyring.reload() {
        tracing::warn!(%error, "the keys could not be read again");
    }
    let now = deps.clock.now();
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    deps.metrics.due_items.set(number(deps.store.due_count(now).await?));
    deps.metrics.owned_credentials.set(number(deps.store.owned_count(deps.replica.id).await?));
    gauge(&deps.metrics.pull_secrets, &deps.store.state_counts().await?);
    gauge(&deps.metrics.rotations, &deps.store.phase_counts().await?);
    let trouble = deps.store.trouble_counts(now, deps.stuck_after()).await?;
    deps.metrics.need_attention(&[
        ("pull_secret", &trouble.attention),
        ("break_glass", &trouble.break_glass),
    ]);
    deps.metrics.burnt_accounts.set(number(trouble.burnt));
    if let Some(break_glass) = &actors.break_glass {
        house::keep(break_glass.tools()).await?;
    }
    // History passes by the wall clock alone.
    if deps.time_is_trusted() { upkeep::let_pass(deps).await } else { Ok(()) }
}

/// A state that nothing is in any more has to go back to zero.
pub(super) fn gauge(gauge: &prometheus::IntGaugeVec, counts: &BTreeMap<String, u64>) {
    gauge.reset();
    for (word, count) in counts {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        gauge.with_label_values(&[word.as_str()]).set(count);
    }
}

/// Before anything is woken: takes what the dead have left behind. Nobody will answer the calls that they left
/// open.
///
/// # Errors
/// [`StoreError`] when it cannot be listed.
pub async fn take_over<K: Kind>(shards: &Shards<K>) -> Result<usize, StoreError> {
    let (tools, mut count) = (shards.tools(), 0);
    let deps = tools.deps();
    loop {
        let until = deps.clock.now().plus(deps.tuning.lease);
        let orphans = tools.orphans(until, deps.replica.id).await?;
        if orphans.is_empty() {
            return Ok(count);
        }
        count += orphans.len();
        for claimed in orphans {
            taken_over(deps, &claimed);
            let id = &claimed.cluster_id;
            let done = shards.execute(id, K::take_over(), Caller::service("takeover")).await;
            if let Err(error) = done {
                tracing::error!(cluster_id = %id, %error, "open calls stay open");
            }
            let _ = deps.at(Point::TakenOver, None).await;
            // It may have been taken without a call being open.
            let _ = shards.of(id).try_send(Dispatch::claimed(claimed.clone()));
        }
    }
}
