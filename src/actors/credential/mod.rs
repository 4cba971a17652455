//! The actor of one cluster's credential of one kind: serialises its commands and makes its calls.
//!
//! It keeps the state in memory while it is busy and holds no truth: whatever it knows can be read again.
//! A commit may block its mailbox (milliseconds); a call to the outside never does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use super::activity::Running;
use super::audit::Caller;
use super::deps::Deps;
use super::kind::{Ask, Kind, Step};
use super::liveness;
use super::log::Cause;
use super::replica::Flight;
use super::shard::{Died, Dispatch, Idle, Shard};
use super::step::Working;
use crate::ids::ClusterId;
use crate::state::pull_secret::Event;
use crate::store::{Claimed, Hint, IdempotencyAnswer, OwnedBy, StoreError};
use crate::time::Timestamp;

/// An outcome that could not be stored is tried again after this.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What watchers see: the state without any secret, and the version it was stored with.
#[derive(Debug)]
pub struct Snapshot<W = Working>(pub Arc<W>);

impl<W> Clone for Snapshot<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Runs a command for somebody who waits for the answer. A dropped `reply` means that the actor died.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Execute<K: Kind> {
    /// The command.
    pub command: K::Command,
    /// Who asks.
    pub caller: Caller,
    /// What a repetition of the request is answered.
    pub answer: Option<IdempotencyAnswer>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<ExecutedOf<K>, K::Error>>,
}

/// A command was carried out.
#[derive(Debug)]
pub struct Executed<E = Event, W = Working> {
    /// What happened; empty when it was already so.
    pub events: Vec<E>,
    /// The state now.
    pub snapshot: Snapshot<W>,
    /// Follows what happens next.
    pub watch: watch::Receiver<Snapshot<W>>,
}

/// The same of a kind.
pub type ExecutedOf<K> = Executed<<K as Kind>::Event, <K as Kind>::Working>;

/// A call ended. It is under way until its outcome is stored.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Outcome<K: Kind>(pub K::Finished, pub Running, pub Flight);

/// A place has a turn for this credential, or has none after all.
#[derive(Message)]
#[rtype(result = "()")]
struct Turn<K: Kind> {
    place: K::Place,
    permit: Option<K::Permit>,
    cause: Cause,
}

/// The actor.
pub struct CredentialActor<K: Kind> {
    tools: Arc<K>,
    cluster_id: ClusterId,
    shard: Addr<Shard<K>>,
    /// Tells this value apart from those before and after it.
    incarnation: u64,
    working: Option<K::Working>,
    watch: Option<watch::Sender<Snapshot<K::Working>>>,
    running: usize,
    waiting: HashSet<K::Place>,
    /// Somebody waits here for what another replica does.
    following: bool,
    last_used: Instant,
}

impl<K: Kind> CredentialActor<K> {
    /// A fresh actor that knows nothing yet.
    pub fn new(
        tools: Arc<K>,
        cluster_id: ClusterId,
        shard: Addr<Shard<K>>,
        incarnation: u64,
    ) -> Self {
        Self {
            tools,
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

    fn deps(&self) -> &Deps {
        self.tools.deps()
    }

    /// Runs one step with the mailbox closed, then makes its calls.
    fn step(
        &mut self,
        ask: Ask<K>,
    ) -> impl ActorFuture<Self, Output = Result<Vec<K::Event>, K::Error>> + use<K> {
        self.last_used = Instant::now();
        let tools = self.tools.clone();
        let cluster_id = self.cluster_id.clone();
        let working = self.working.take();
        let work = async move {
            let _turn = if ask.attended { None } else { tools.deps().activity.unattended().await };
            let kept = working.clone();
            K::step(tools.clone(), cluster_id, working, ask).await.map_err(|error| (error, kept))
        };
        work.into_actor(self).map(|done, actor, context| match done {
            Ok(step) => Ok(actor.stepped(step, context)),
            Err((error, kept)) => {
                // A refusal changed nothing; after anything else the database knows better.
                if K::is_refusal(&error) {
                    actor.working = kept;
                }
                Err(error)
            }
        })
    }

    fn stepped(&mut self, step: Step<K>, context: &mut Context<Self>) -> Vec<K::Event> {
        let Step { working, events, calls, crowded, cause } = step;
        self.publish(&working);
        if !events.is_empty() {
            self.tell_others(K::ownership(&working));
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

    fn publish(&self, working: &K::Working) {
        if let Some(watch) = &self.watch {
            watch.send_replace(Snapshot(Arc::new(working.clone())));
        }
    }

    /// The outcome goes through the shard: it must reach whichever actor is alive by then.
    fn start_call(&mut self, call: K::Call, flight: Flight) {
        self.running += 1;
        let tools = self.tools.clone();
        let cluster_id = self.cluster_id.clone();
        let shard = self.shard.clone();
        let running = self.deps().activity.begin();
        actix_rt::spawn(async move {
            let finished = K::make(tools, cluster_id.clone(), call).await;
            // At most one per announced call, so the bound of the mailbox is kept by the machine.
            shard.do_send(Dispatch::outcome(cluster_id, finished, running, flight));
        });
    }

    fn wait_for_turn(&mut self, place: K::Place, cause: Cause, context: &mut Context<Self>) {
        if !self.waiting.insert(place.clone()) {
            return;
        }
        let tools = self.tools.clone();
        let address = context.address();
        actix_rt::spawn(async move {
            let permit = K::turn(tools, place.clone()).await;
            address.do_send(Turn { place, permit, cause });
        });
    }

    /// Something changed: its owner may have something to do now, and somebody may wait at another replica.
    fn tell_others(&self, ownership: OwnedBy) {
        let replica = &self.deps().replica;
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
        let tools = self.tools.clone();
        let running = self.deps().activity.begin();
        actix_rt::spawn(async move {
            let _running = running;
            liveness::tell(tools.deps(), &hint).await;
        });
    }

    /// Whoever waits here for what another replica does is told by looking at the database, and sooner when
    /// that replica tells.
    fn follow(&mut self, context: &mut Context<Self>) {
        let Some(working) = &self.working else { return };
        let owner = self.deps().replica.other_owner(K::ownership(working));
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
        context.notify_later(Follow, self.deps().tuning.tick);
    }

    fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.receiver_count() > 0)
    }

    /// Reads the state again where somebody else has written it.
    fn refresh(&self) -> impl ActorFuture<Self, Output = ()> + use<K> {
        let tools = self.tools.clone();
        let cluster_id = self.cluster_id.clone();
        let seen = self.working.as_ref().and_then(K::version);
        let running = self.deps().activity.begin();
        let work = async move {
            let _running = running;
            if tools.stored_version(&cluster_id).await? == seen {
                return Ok(None);
            }
            tools.load(&cluster_id).await.map(Some)
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

    fn subscribe(&mut self) -> Option<watch::Receiver<Snapshot<K::Working>>> {
        let working = self.working.as_ref()?;
        let sender =
            self.watch.get_or_insert_with(|| watch::channel(Snapshot(Arc::new(working.clone()))).0);
        Some(sender.subscribe())
    }

    fn is_busy(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty() || self.is_watched()
    }

    fn look_whether_idle(&self, context: &mut Context<Self>) {
        context.run_later(self.deps().tuning.idle_after, |actor, context| {
            if !actor.is_busy() && actor.last_used.elapsed() >= actor.deps().tuning.idle_after {
                // The shard lets go of the address; the actor ends when its mailbox is empty.
                let cluster_id = actor.cluster_id.clone();
                actor.shard.do_send(Idle { cluster_id, incarnation: actor.incarnation });
            } else {
                actor.look_whether_idle(context);
            }
        });
    }
}

impl<K: Kind> Actor for CredentialActor<K> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.set_mailbox_capacity(self.deps().tuning.mailbox);
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

impl<K: Kind> Handler<Execute<K>> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Execute<K>, _context: &mut Context<Self>) -> Self::Result {
        let Execute { command, caller, answer, reply } = message;
        let step = self.step(Ask { attended: true, answer, ..Ask::new(command, caller) });
        AtomicResponse::new(Box::pin(step.map(|done, actor, context| {
            let executed = done.and_then(|events| {
                let watch = actor.subscribe().ok_or(StoreError::Conflict)?;
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

impl<K: Kind> CredentialActor<K> {
    /// What is kept in memory is old unless it is what was taken.
    fn remember_claim(&mut self, claimed: Option<&Claimed>) {
        let kept = self.working.take();
        let Some(claimed) = claimed else { return };
        self.working = kept.filter(|it| K::version(it) == Some(claimed.version));
        if let Some(working) = &mut self.working {
            K::pass(working, claimed.ownership);
        }
    }

    /// Nothing is to be done before `due`: the time is stored, and unless it is near the work is anybody's.
    fn rest(&self, due: Option<Timestamp>, working: &K::Working) -> OwnedBy {
        let (deps, ownership) = (self.deps(), K::ownership(working));
        let soon = due.is_some_and(|due| due <= deps.clock.now().plus(deps.tuning.lease));
        OwnedBy { owner: ownership.owner.filter(|_| soon), epoch: ownership.epoch }
    }
}

impl<K: Kind> Handler<Wake> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Wake, _context: &mut Context<Self>) -> Self::Result {
        self.remember_claim(message.0.as_ref());
        let step = self.step(Ask::new(K::tick(), Caller::service("scheduler")));
        AtomicResponse::new(Box::pin(step.then(|done, actor, _| {
            let reschedule = matches!(&done, Ok(events) if events.is_empty());
            if let Err(error) = &done {
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "a wake-up failed");
            }
            let tools = actor.tools.clone();
            let cluster_id = actor.cluster_id.clone();
            let deps = tools.deps();
            let mine = |it: &K::Working| deps.replica.other_owner(K::ownership(it)).is_none();
            let working = actor.working.clone().filter(|it| reschedule && mine(it));
            let due = working.as_ref().and_then(|it| tools.due_at(it));
            // What is due already waits for a turn, or for a clock; the claim brings it back.
            let waits = due.is_some_and(|due| due <= deps.clock.now());
            let working = working.filter(|_| !waits);
            let rest = working.as_ref().map(|working| actor.rest(due, working));
            let version = working.as_ref().and_then(K::version);
            let running = deps.activity.begin();
            async move {
                let _running = running;
                let (version, rest) = version.zip(rest)?;
                let set = tools.reschedule(&cluster_id, version, due, rest).await;
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
                    K::pass(working, rest);
                }
            })
        })))
    }
}

impl<K: Kind> Handler<Outcome<K>> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Outcome<K>, _context: &mut Context<Self>) -> Self::Result {
        let step = self.step(K::told(message.0.clone()));
        AtomicResponse::new(Box::pin(step.map(move |done, actor, _| match done {
            Ok(_) => actor.running = actor.running.saturating_sub(1),
            Err(error) if K::is_late(&error) => {
                actor.running = actor.running.saturating_sub(1);
                K::late(&actor.cluster_id, &message.0);
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

impl<K: Kind> Handler<Turn<K>> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Turn<K>, _context: &mut Context<Self>) -> Self::Result {
        let Turn { place, permit, cause } = message;
        self.waiting.remove(&place);
        let permits = permit.map(|permit| (place, permit)).into_iter().collect();
        let caller = Caller::caused("scheduler", &cause);
        let step = self.step(Ask { permits, ..Ask::new(K::tick(), caller) });
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

impl<K: Kind> Handler<Refresh> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _message: Refresh, _context: &mut Context<Self>) -> Self::Result {
        AtomicResponse::new(Box::pin(self.refresh()))
    }
}

/// The same, for as long as somebody waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Follow;

impl<K: Kind> Handler<Follow> for CredentialActor<K> {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _message: Follow, context: &mut Context<Self>) -> Self::Result {
        self.following = self.is_watched();
        if !self.following {
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        let replica = &self.deps().replica;
        let mine = |working: &K::Working| K::ownership(working).owner == Some(replica.id);
        if self.working.as_ref().is_some_and(mine) && replica.is_live() {
            self.look_later(context);
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        AtomicResponse::new(Box::pin(self.refresh().map(|(), actor, context| {
            actor.look_later(context);
        })))
    }
}
