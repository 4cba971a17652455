//! The actor of one cluster's pull secret: serialises its commands and makes its calls.
//!
//! It keeps the state in memory while it is busy and holds no truth: whatever it knows can be read again.
//! A commit may block its mailbox (milliseconds); a call to a registry never does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use super::activity::Running;
use super::audit::Caller;
use super::calls::{self, Finished};
use super::deps::Deps;
use super::liveness;
use super::log::{self, Cause};
use super::replica::Flight;
use super::shard::{Died, Dispatch, Idle, Shard};
use super::step::{self, AnnouncedCall, Place, Request, Step, StepError, Working};
use crate::ids::{AccountId, ClusterId};
use crate::registries::lane::Permit;
use crate::state::pull_secret::{Command, Event, Rejection, due_at};
use crate::store::{Claimed, Hint, IdempotencyAnswer, OwnedBy, StoreError};
use crate::time::Timestamp;

/// An outcome that could not be stored is tried again after this.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What watchers see: the state without any secret, and the version it was stored with.
#[derive(Debug, Clone)]
pub struct Snapshot(pub Arc<Working>);

/// Runs a command for somebody who waits for the answer. A dropped `reply` means that the actor died.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Execute {
    /// The command.
    pub command: Command,
    /// Who asks.
    pub caller: Caller,
    /// What a repetition of the request is answered.
    pub answer: Option<IdempotencyAnswer>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Executed, StepError>>,
}

/// A command was carried out.
#[derive(Debug)]
pub struct Executed {
    /// What happened; empty when it was already so.
    pub events: Vec<Event>,
    /// The state now.
    pub snapshot: Snapshot,
    /// Follows what happens next.
    pub watch: watch::Receiver<Snapshot>,
}

/// A call ended. It is under way until its outcome is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Outcome(pub Finished, pub Running, pub Flight);

/// A registry's lane has a place for this credential, or has none after all.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Turn {
    place: Place,
    permit: Option<Permit>,
    cause: Cause,
}

/// What a step may come with, besides its command.
#[derive(Default)]
struct With {
    /// Somebody waits for it.
    attended: bool,
    secret: Option<(AccountId, secrecy::SecretString)>,
    permits: Vec<(Place, Permit)>,
    answer: Option<IdempotencyAnswer>,
}

/// The actor.
pub struct CredentialActor {
    deps: Arc<Deps>,
    cluster_id: ClusterId,
    shard: Addr<Shard>,
    /// Tells this value apart from those before and after it.
    incarnation: u64,
    working: Option<Working>,
    watch: Option<watch::Sender<Snapshot>>,
    running: usize,
    waiting: HashSet<Place>,
    /// Somebody waits here for what another replica does.
    following: bool,
    last_used: Instant,
}

impl CredentialActor {
    /// A fresh actor that knows nothing yet.
    pub fn new(
        deps: Arc<Deps>,
        cluster_id: ClusterId,
        shard: Addr<Shard>,
        incarnation: u64,
    ) -> Self {
        Self {
            deps,
            cluster_id,
            shard,
            incarnation,
            working: None,
            watch: None,
            running: 0,
            waiting: HashSet::new(),
            following: false,
            last_used: Instant::now(),
        }
    }

    /// Runs one step with the mailbox closed, then makes its calls.
    fn step(
        &mut self,
        command: Command,
        caller: Caller,
        with: With,
    ) -> impl ActorFuture<Self, Output = Result<Vec<Event>, StepError>> + use<> {
        self.last_used = Instant::now();
        let deps = self.deps.clone();
        let cluster_id = self.cluster_id.clone();
        let working = self.working.take();
        let work = async move {
            let With { attended, secret, permits, answer } = with;
            let _turn = if attended { None } else { deps.activity.unattended().await };
            let secret = secret.as_ref().map(|(id, secret)| (*id, secret));
            let request = Request { command: &command, secret, caller: &caller, permits, answer };
            let kept = working.clone();
            step::step(&deps, &cluster_id, working, request).await.map_err(|error| (error, kept))
        };
        work.into_actor(self).map(|done, actor, context| match done {
            Ok(step) => Ok(actor.stepped(step, context)),
            Err((error, kept)) => {
                // A refusal changed nothing; after anything else the database knows better.
                if matches!(error, StepError::Rejected(_)) {
                    actor.working = kept;
                }
                Err(error)
            }
        })
    }

    fn stepped(&mut self, step: Step, context: &mut Context<Self>) -> Vec<Event> {
        let Step { working, events, calls, crowded, cause } = step;
        self.publish(&working);
        if !events.is_empty() {
            self.tell_others(working.ownership);
        }
        self.working = Some(working);
        for (call, flight) in calls {
            self.start_call(call, flight);
        }
        for place in crowded {
            self.wait_for_turn(place, cause.clone(), context);
        }
        events
    }

    fn publish(&self, working: &Working) {
        if let Some(watch) = &self.watch {
            watch.send_replace(Snapshot(Arc::new(working.clone())));
        }
    }

    /// The outcome goes through the shard: it must reach whichever actor is alive by then.
    fn start_call(&mut self, call: AnnouncedCall, flight: Flight) {
        self.running += 1;
        let deps = self.deps.clone();
        let cluster_id = self.cluster_id.clone();
        let shard = self.shard.clone();
        let running = self.deps.activity.begin();
        actix_rt::spawn(async move {
            let finished = calls::make(deps, cluster_id.clone(), call).await;
            // At most one per announced call, so the bound of the mailbox is kept by the machine.
            shard.do_send(Dispatch::outcome(cluster_id, finished, running, flight));
        });
    }

    fn wait_for_turn(&mut self, place: Place, cause: Cause, context: &mut Context<Self>) {
        let Some(configured) = self.deps.registries.get(&place.registry_id) else { return };
        if !self.waiting.insert(place.clone()) {
            return;
        }
        let lane = configured.lane_for(place.residue);
        let address = context.address();
        actix_rt::spawn(async move {
            let permit = lane.permit().await.ok();
            address.do_send(Turn { place, permit, cause });
        });
    }

    /// Something changed: its owner may have something to do now, and somebody may wait at another replica.
    fn tell_others(&self, ownership: OwnedBy) {
        let replica = &self.deps.replica;
        let hint = if let Some(to) = replica.other_owner(ownership) {
            Hint::Wake { to, cluster_id: self.cluster_id.clone() }
        } else if replica.is_of_interest(&self.cluster_id) {
            Hint::Changed { cluster_id: self.cluster_id.clone() }
        } else {
            return;
        };
        self.tell(hint);
    }

    fn tell(&self, hint: Hint) {
        let deps = self.deps.clone();
        let running = deps.activity.begin();
        actix_rt::spawn(async move {
            let _running = running;
            liveness::tell(&deps, &hint).await;
        });
    }

    /// Whoever waits here for what another replica does is told by looking at the database, and sooner when
    /// that replica tells.
    fn follow(&mut self, context: &mut Context<Self>) {
        let Some(working) = &self.working else { return };
        let owner = self.deps.replica.other_owner(working.ownership);
        if !self.is_watched() || self.following {
            return;
        }
        if let Some(to) = owner {
            self.tell(Hint::Wake { to, cluster_id: self.cluster_id.clone() });
        }
        self.following = true;
        self.look_later(context);
    }

    fn look_later(&self, context: &mut Context<Self>) {
        context.notify_later(Follow, self.deps.tuning.tick);
    }

    fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.receiver_count() > 0)
    }

    /// Reads the state again where somebody else has written it.
    fn refresh(&self) -> impl ActorFuture<Self, Output = ()> + use<> {
        let deps = self.deps.clone();
        let cluster_id = self.cluster_id.clone();
        let seen = self.working.as_ref().and_then(|it| it.record.as_ref().map(|_| it.version));
        let running = deps.activity.begin();
        let work = async move {
            let _running = running;
            let stored = deps.store.version_of(&cluster_id).await?.map(|(version, _)| version);
            if stored == seen {
                return Ok(None);
            }
            step::load(&deps, &cluster_id).await.map(Some)
        };
        work.into_actor(self).map(|read: Result<_, StoreError>, actor, _| match read {
            Ok(None) => {}
            Ok(Some(working)) => {
                actor.publish(&working);
                actor.working = Some(working);
            }
            Err(error) => {
                tracing::debug!(cluster_id = %actor.cluster_id, %error, "nothing new was read");
            }
        })
    }

    fn subscribe(&mut self) -> Option<watch::Receiver<Snapshot>> {
        let working = self.working.as_ref()?;
        let sender =
            self.watch.get_or_insert_with(|| watch::channel(Snapshot(Arc::new(working.clone()))).0);
        Some(sender.subscribe())
    }

    fn is_busy(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty() || self.is_watched()
    }

    fn look_whether_idle(&self, context: &mut Context<Self>) {
        context.run_later(self.deps.tuning.idle_after, |actor, context| {
            if !actor.is_busy() && actor.last_used.elapsed() >= actor.deps.tuning.idle_after {
                // The shard lets go of the address; the actor ends when its mailbox is empty.
                let cluster_id = actor.cluster_id.clone();
                actor.shard.do_send(Idle { cluster_id, incarnation: actor.incarnation });
            } else {
                actor.look_whether_idle(context);
            }
        });
    }
}

impl Actor for CredentialActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.set_mailbox_capacity(self.deps.tuning.mailbox);
        self.look_whether_idle(context);
    }

    /// Runs while unwinding when the actor panicked: one message and nothing else, a second panic here
    /// would end the process.
    fn stopped(&mut self, _context: &mut Context<Self>) {
        if std::thread::panicking() {
            let cluster_id = self.cluster_id.clone();
            self.shard.do_send(Died { cluster_id, incarnation: self.incarnation });
        }
    }
}

impl Handler<Execute> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Execute, _context: &mut Context<Self>) -> Self::Result {
        let Execute { command, caller, answer, reply } = message;
        let step = self.step(command, caller, With { attended: true, answer, ..With::default() });
        AtomicResponse::new(Box::pin(step.map(|done, actor, context| {
            let executed = done.and_then(|events| {
                let unknown = || StepError::Store(StoreError::Conflict);
                let watch = actor.subscribe().ok_or_else(unknown)?;
                let snapshot = watch.borrow().clone();
                Ok(Executed { events, snapshot, watch })
            });
            // Nobody waits any more: the command was carried out all the same.
            let _ = reply.send(executed);
            actor.follow(context);
        })))
    }
}

/// Time has passed, or work was taken: look at the state and go on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Wake(pub Option<Claimed>);

impl CredentialActor {
    /// What is kept in memory is old unless it is what was taken.
    fn remember_claim(&mut self, claimed: Option<&Claimed>) {
        let kept = self.working.take();
        let Some(claimed) = claimed else { return };
        let same = kept.filter(|it| it.record.is_some() && it.version == claimed.version);
        self.working = same.map(|it| Working { ownership: claimed.ownership, ..it });
    }

    /// Nothing is to be done before `due`: the time is stored, and unless it is near the work is anybody's.
    fn rest(&self, due: Option<Timestamp>, working: &Working) -> OwnedBy {
        let soon = due.is_some_and(|due| due <= self.deps.clock.now().plus(self.deps.tuning.lease));
        let owner = working.ownership.owner.filter(|_| soon);
        OwnedBy { owner, epoch: working.ownership.epoch }
    }
}

impl Handler<Wake> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Wake, _context: &mut Context<Self>) -> Self::Result {
        self.remember_claim(message.0.as_ref());
        let step = self.step(Command::Tick, Caller::service("scheduler"), With::default());
        AtomicResponse::new(Box::pin(step.then(|done, actor, _| {
            let reschedule = matches!(&done, Ok(events) if events.is_empty());
            if let Err(error) = &done {
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "a wake-up failed");
            }
            let deps = actor.deps.clone();
            let cluster_id = actor.cluster_id.clone();
            let mine = |it: &Working| deps.replica.other_owner(it.ownership).is_none();
            let working = actor.working.clone().filter(|it| reschedule && mine(it));
            let due = working.as_ref().and_then(|it| due_at(it.record.as_ref()?, &deps.policy));
            // What is due already waits for a lane, or for a clock; the claim brings it back.
            let waits = due.is_some_and(|due| due <= deps.clock.now());
            let working = working.filter(|_| !waits);
            let rest = working.as_ref().map(|working| actor.rest(due, working));
            let running = deps.activity.begin();
            async move {
                let _running = running;
                let (working, rest) = working.zip(rest)?;
                let set = deps.store.reschedule(&cluster_id, working.version, due, rest).await;
                set.inspect_err(|error| {
                    tracing::debug!(%cluster_id, %error, "a due time was not set");
                })
                .ok()
                .filter(|set| *set)
                .map(|_| rest)
            }
            .into_actor(actor)
            .map(|rest, actor, _| {
                if let (Some(working), Some(rest)) = (&mut actor.working, rest) {
                    working.ownership = rest;
                }
            })
        })))
    }
}

impl Handler<Outcome> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Outcome, _context: &mut Context<Self>) -> Self::Result {
        let Finished { account_id, token, answer, secret, cause } = message.0.clone();
        let command = Command::Answer { account_id, token, answer };
        let secret = secret.map(|secret| (account_id, secret));
        let with = With { secret, ..With::default() };
        let step = self.step(command, Caller::caused("registry", &cause), with);
        AtomicResponse::new(Box::pin(step.map(move |done, actor, _| match done {
            Ok(_) => actor.running = actor.running.saturating_sub(1),
            Err(StepError::Rejected(Rejection::NotCurrent | Rejection::NoRecord)) => {
                actor.running = actor.running.saturating_sub(1);
                log::late_outcome(&actor.cluster_id, &message.0);
            }
            Err(error) => {
                // Kept until it can be stored: an outcome is a fact. It goes by the shard, because this actor may
                // be gone by then.
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "an outcome waits");
                let (shard, cluster_id) = (actor.shard.clone(), actor.cluster_id.clone());
                actor.running = actor.running.saturating_sub(1);
                actix_rt::spawn(async move {
                    tokio::time::sleep(STORE_RETRY).await;
                    let Outcome(finished, running, flight) = message;
                    shard.do_send(Dispatch::outcome(cluster_id, finished, running, flight));
                });
            }
        })))
    }
}

impl Handler<Turn> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Turn, _context: &mut Context<Self>) -> Self::Result {
        self.waiting.remove(&message.place);
        let permits = message.permit.map(|permit| (message.place, permit)).into_iter().collect();
        let caller = Caller::caused("scheduler", &message.cause);
        let step = self.step(Command::Tick, caller, With { permits, ..With::default() });
        AtomicResponse::new(Box::pin(step.map(|done, actor, _| {
            if let Err(error) = done {
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "a turn was not used");
            }
        })))
    }
}

/// Another replica may have changed the state.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Refresh;

impl Handler<Refresh> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _message: Refresh, _context: &mut Context<Self>) -> Self::Result {
        AtomicResponse::new(Box::pin(self.refresh()))
    }
}

/// The same, for as long as somebody waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Follow;

impl Handler<Follow> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _message: Follow, context: &mut Context<Self>) -> Self::Result {
        self.following = self.is_watched();
        if !self.following {
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        let me = Some(self.deps.replica.id);
        let mine = self.working.as_ref().is_some_and(|working| working.ownership.owner == me);
        if mine && self.deps.replica.is_live() {
            self.look_later(context);
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        AtomicResponse::new(Box::pin(self.refresh().map(|(), actor, context| {
            actor.look_later(context);
        })))
    }
}
