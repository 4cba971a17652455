//! Owns the actors of a part of the clusters: makes one on demand, lets go of idle ones, brings back those
//! that panicked.
//!
//! actix restarts no actor after a panic, so this is done here: the dying actor sends one message, and a
//! fresh one is made from the database after a pause. The fifth panic within ten minutes puts the
//! credential in quarantine. One credential's trouble is never its neighbours'.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::dev::ToEnvelope;
use actix::prelude::*;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::activity::Running;
use super::audit::Caller;
use super::credential::{CredentialActor, Execute, ExecutedOf, Outcome, Refresh, Wake};
use super::deps::Deps;
use super::kind::{Ask, Kind};
use super::replica::Flight;
use super::step::StepError;
use crate::ids::ClusterId;
use crate::store::{Claimed, IdempotencyAnswer};

/// The answer to a command.
pub type Reply<K> = oneshot::Sender<Result<ExecutedOf<K>, CommandError<<K as Kind>::Error>>>;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError<E: std::error::Error = StepError> {
    /// The step said no.
    #[error(transparent)]
    Step(E),
    /// Too many messages wait already.
    #[error("too many requests wait for this cluster")]
    Busy,
    /// The actor died or pauses after a panic; nothing is known of the command's fate.
    #[error("the credential's actor is being restarted")]
    Restarting,
}

/// Something for one cluster's actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Dispatch<K: Kind> {
    cluster_id: ClusterId,
    work: Work<K>,
}

/// A command for which somebody waits.
pub struct Asked<K: Kind> {
    /// The command.
    pub command: K::Command,
    /// Who asks.
    pub caller: Caller,
    /// What a repetition of the request is answered; committed with the command.
    pub answer: Option<IdempotencyAnswer>,
    /// Where the answer goes.
    pub reply: Reply<K>,
}

enum Work<K: Kind> {
    Execute(Asked<K>),
    Outcome(K::Finished, Running, Flight),
    Wake(Option<Claimed>),
    Refresh,
}

impl<K: Kind> Dispatch<K> {
    /// A command for which somebody waits.
    #[must_use]
    pub const fn command(cluster_id: ClusterId, asked: Asked<K>) -> Self {
        Self { cluster_id, work: Work::Execute(asked) }
    }

    /// The outcome of a call.
    #[must_use]
    pub const fn outcome(
        cluster_id: ClusterId,
        finished: K::Finished,
        running: Running,
        flight: Flight,
    ) -> Self {
        Self { cluster_id, work: Work::Outcome(finished, running, flight) }
    }

    /// A look at what this replica has taken.
    #[must_use]
    pub fn claimed(claimed: Claimed) -> Self {
        Self { cluster_id: claimed.cluster_id.clone(), work: Work::Wake(Some(claimed)) }
    }

    /// Another replica has changed it: whoever watches here wants to know.
    #[must_use]
    pub const fn refresh(cluster_id: ClusterId) -> Self {
        Self { cluster_id, work: Work::Refresh }
    }

    /// A look at what is due.
    #[must_use]
    pub const fn wake(cluster_id: ClusterId) -> Self {
        Self { cluster_id, work: Work::Wake(None) }
    }
}

/// An actor has nothing to do.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Idle {
    /// Whose.
    pub cluster_id: ClusterId,
    /// Which value.
    pub incarnation: u64,
}

/// An actor panicked.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Died {
    /// Whose.
    pub cluster_id: ClusterId,
    /// Which value.
    pub incarnation: u64,
}

/// Is this shard alive, and how many actors does it have?
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct Ping;

struct Entry<K: Kind> {
    address: Addr<CredentialActor<K>>,
    incarnation: u64,
}

/// Panics of one credential.
#[derive(Default)]
struct Panics {
    times: VecDeque<Instant>,
    paused_until: Option<Instant>,
}

/// The actor.
pub struct Shard<K: Kind> {
    tools: Arc<K>,
    actors: HashMap<ClusterId, Entry<K>>,
    panics: HashMap<ClusterId, Panics>,
    incarnations: u64,
}

impl<K: Kind> Shard<K> {
    /// A shard without any actor.
    #[must_use]
    pub fn new(tools: Arc<K>) -> Self {
        Self { tools, actors: HashMap::new(), panics: HashMap::new(), incarnations: 0 }
    }

    fn deps(&self) -> &Deps {
        self.tools.deps()
    }

    /// The living actor of a cluster, made if there is none.
    fn actor(
        &mut self,
        cluster_id: &ClusterId,
        context: &Context<Self>,
    ) -> Addr<CredentialActor<K>> {
        if let Some(entry) = self.actors.get(cluster_id)
            && entry.address.connected()
        {
            return entry.address.clone();
        }
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let shard = context.address();
        let tools = self.tools.clone();
        let address = CredentialActor::new(tools, cluster_id.clone(), shard, incarnation).start();
        let entry = Entry { address: address.clone(), incarnation };
        if self.actors.insert(cluster_id.clone(), entry).is_none() {
            self.deps().metrics.actors.inc();
        }
        address
    }

    fn forget(&mut self, cluster_id: &ClusterId, incarnation: u64) {
        let current = self.actors.get(cluster_id).map(|entry| entry.incarnation);
        if current == Some(incarnation) && self.actors.remove(cluster_id).is_some() {
            self.deps().metrics.actors.dec();
        }
    }

    fn is_paused(&self, cluster_id: &ClusterId) -> bool {
        let paused = self.panics.get(cluster_id).and_then(|panics| panics.paused_until);
        paused.is_some_and(|until| until > Instant::now())
    }

    fn execute(&mut self, cluster_id: &ClusterId, asked: Asked<K>, context: &Context<Self>) {
        let Asked { command, caller, answer: to_store, reply } = asked;
        if self.is_paused(cluster_id) || self.deps().activity.is_stopping() {
            let _ = reply.send(Err(CommandError::Restarting));
            return;
        }
        let (inner, answer) = oneshot::channel();
        let message = Execute { command, caller, answer: to_store, reply: inner };
        if self.offer(cluster_id, message, context).is_err() {
            self.deps().metrics.mailbox_full.inc();
            let _ = reply.send(Err(CommandError::Busy));
            return;
        }
        actix_rt::spawn(async move {
            let answer = match answer.await {
                Ok(answer) => answer.map_err(CommandError::Step),
                Err(_died) => Err(CommandError::Restarting),
            };
            let _ = reply.send(answer);
        });
    }

    fn offer<M>(
        &mut self,
        cluster_id: &ClusterId,
        message: M,
        context: &Context<Self>,
    ) -> Result<(), SendError<M>>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        CredentialActor<K>: Handler<M>,
        <CredentialActor<K> as Actor>::Context: ToEnvelope<CredentialActor<K>, M>,
    {
        match self.actor(cluster_id, context).try_send(message) {
            // It died a moment ago: a fresh one takes its place.
            Err(SendError::Closed(message)) => {
                self.actors.remove(cluster_id);
                self.actor(cluster_id, context).try_send(message)
            }
            other => other,
        }
    }

    /// The pause after a panic, or `None` when there were too many.
    fn note_panic(&mut self, cluster_id: &ClusterId) -> Option<Duration> {
        let tuning = &self.tools.deps().tuning;
        let panics = self.panics.entry(cluster_id.clone()).or_default();
        let now = Instant::now();
        panics.times.push_back(now);
        while panics.times.front().is_some_and(|at| now.duration_since(*at) > tuning.panic_window) {
            panics.times.pop_front();
        }
        if panics.times.len() >= tuning.panic_limit {
            panics.times.clear();
            return None;
        }
        let doublings = u32::try_from(panics.times.len().saturating_sub(1)).unwrap_or(0).min(16);
        let pause = tuning.restart_pause.saturating_mul(1 << doublings);
        panics.paused_until = Some(now + pause);
        Some(pause)
    }

    /// Stores the quarantine without the actor, whose code cannot be trusted now.
    fn quarantine(&self, cluster_id: ClusterId) {
        let tools = self.tools.clone();
        actix_rt::spawn(async move {
            let deps = tools.deps();
            let retry_at = deps.clock.now().plus(deps.tuning.quarantine);
            let ask = Ask::new(K::quarantine(retry_at), Caller::service("supervisor"));
            let work = AssertUnwindSafe(K::step(tools.clone(), cluster_id.clone(), None, ask));
            match work.catch_unwind().await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::error!(%cluster_id, %error, "no quarantine"),
                Err(_) => tracing::error!(%cluster_id, "no quarantine: the code panicked again"),
            }
        });
    }
}

impl<K: Kind> Actor for Shard<K> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.set_mailbox_capacity(self.deps().tuning.mailbox);
    }
}

impl<K: Kind> Handler<Dispatch<K>> for Shard<K> {
    type Result = ();

    fn handle(&mut self, message: Dispatch<K>, context: &mut Context<Self>) {
        let Dispatch { cluster_id, work } = message;
        match work {
            Work::Execute(asked) => self.execute(&cluster_id, asked, context),
            // An outcome is a fact and always fits: there is one per announced call.
            Work::Outcome(finished, running, flight) => {
                self.actor(&cluster_id, context).do_send(Outcome(finished, running, flight));
            }
            Work::Wake(claimed) => {
                // A full mailbox is awake.
                if !self.is_paused(&cluster_id) && !self.deps().activity.is_stopping() {
                    let _ = self.offer(&cluster_id, Wake(claimed), context);
                }
            }
            Work::Refresh => {
                if let Some(entry) = self.actors.get(&cluster_id) {
                    let _ = entry.address.try_send(Refresh);
                }
            }
        }
    }
}

impl<K: Kind> Handler<Idle> for Shard<K> {
    type Result = ();

    fn handle(&mut self, message: Idle, _context: &mut Context<Self>) {
        self.forget(&message.cluster_id, message.incarnation);
    }
}

/// Let go of all actors: what they remember may be old.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DropActors;

impl<K: Kind> Handler<DropActors> for Shard<K> {
    type Result = ();

    fn handle(&mut self, _message: DropActors, _context: &mut Context<Self>) {
        let count = i64::try_from(self.actors.len()).unwrap_or(i64::MAX);
        self.actors.clear();
        self.deps().metrics.actors.sub(count);
    }
}

impl<K: Kind> Handler<Died> for Shard<K> {
    type Result = ();

    fn handle(&mut self, message: Died, context: &mut Context<Self>) {
        let Died { cluster_id, incarnation } = message;
        self.forget(&cluster_id, incarnation);
        self.deps().metrics.panic("actor");
        match self.note_panic(&cluster_id) {
            None => {
                tracing::error!(%cluster_id, "panicked too often: quarantined");
                self.quarantine(cluster_id);
            }
            Some(pause) => {
                self.deps().metrics.actor_restarts.inc();
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                let event_name = "actor_restarts";
                tracing::error!(%cluster_id, event_name, pause_ms, "panicked: restarting");
                context.notify_later(Dispatch::wake(cluster_id), pause);
            }
        }
    }
}

impl<K: Kind> Handler<Ping> for Shard<K> {
    type Result = usize;

    fn handle(&mut self, _message: Ping, _context: &mut Context<Self>) -> usize {
        self.actors.len()
    }
}
