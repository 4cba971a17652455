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
use super::log::{self, Cause};
use super::shard::{Died, Dispatch, Idle, Shard};
use super::step::{self, AnnouncedCall, Place, Request, Step, StepError, Working};
use crate::ids::{AccountId, ClusterId};
use crate::registries::lane::Permit;
use crate::state::pull_secret::{Command, Event, Rejection, due_at};
use crate::store::{IdempotencyAnswer, StoreError};

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
pub struct Outcome(pub Finished, pub Running);

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
            let With { secret, permits, answer } = with;
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
        self.working = Some(working);
        for call in calls {
            self.start_call(call);
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
    fn start_call(&mut self, call: AnnouncedCall) {
        self.running += 1;
        let deps = self.deps.clone();
        let cluster_id = self.cluster_id.clone();
        let shard = self.shard.clone();
        let running = self.deps.activity.begin();
        actix_rt::spawn(async move {
            let finished = calls::make(deps, cluster_id.clone(), call).await;
            // At most one per announced call, so the bound of the mailbox is kept by the machine.
            shard.do_send(Dispatch::outcome(cluster_id, finished, running));
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

    fn subscribe(&mut self) -> Option<watch::Receiver<Snapshot>> {
        let working = self.working.as_ref()?;
        let sender =
            self.watch.get_or_insert_with(|| watch::channel(Snapshot(Arc::new(working.clone()))).0);
        Some(sender.subscribe())
    }

    fn is_busy(&self) -> bool {
        let watched = self.watch.as_ref().is_some_and(|watch| watch.receiver_count() > 0);
        self.running > 0 || !self.waiting.is_empty() || watched
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
        let step = self.step(command, caller, With { answer, ..With::default() });
        AtomicResponse::new(Box::pin(step.map(|done, actor, _| {
            let executed = done.and_then(|events| {
                let unknown = || StepError::Store(StoreError::Conflict);
                let watch = actor.subscribe().ok_or_else(unknown)?;
                let snapshot = watch.borrow().clone();
                Ok(Executed { events, snapshot, watch })
            });
            // Nobody waits any more: the command was carried out all the same.
            let _ = reply.send(executed);
        })))
    }
}

/// Time has passed, or work was found: look at the state and go on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Wake;

impl Handler<Wake> for CredentialActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _message: Wake, _context: &mut Context<Self>) -> Self::Result {
        // The scheduler's claim is newer than what is kept in memory only in its due time, which no
        // decision looks at; a lost race shows by the version.
        let step = self.step(Command::Tick, Caller::service("scheduler"), With::default());
        AtomicResponse::new(Box::pin(step.then(|done, actor, _| {
            let reschedule = matches!(&done, Ok(events) if events.is_empty());
            if let Err(error) = &done {
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "a wake-up failed");
            }
            let deps = actor.deps.clone();
            let cluster_id = actor.cluster_id.clone();
            let working = actor.working.clone().filter(|_| reschedule);
            let running = deps.activity.begin();
            async move {
                let _running = running;
                let Some(working) = working else { return };
                let due = working.record.as_ref().and_then(|record| due_at(record, &deps.policy));
                // What is due already waits for a lane; the claim brings it back.
                if due.is_some_and(|due| due <= deps.clock.now()) {
                    return;
                }
                let set = deps.store.reschedule(&cluster_id, working.version, due).await;
                if let Err(error) = set {
                    tracing::debug!(%cluster_id, %error, "a due time was not set");
                }
            }
            .into_actor(actor)
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
        AtomicResponse::new(Box::pin(step.map(move |done, actor, context| match done {
            Ok(_) => actor.running = actor.running.saturating_sub(1),
            Err(StepError::Rejected(Rejection::NotCurrent | Rejection::NoRecord)) => {
                actor.running = actor.running.saturating_sub(1);
                log::late_outcome(&actor.cluster_id, &message.0);
            }
            Err(error) => {
                // Kept until it can be stored: an outcome is a fact.
                tracing::warn!(cluster_id = %actor.cluster_id, %error, "an outcome waits");
                context.notify_later(message, STORE_RETRY);
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
