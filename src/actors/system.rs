//! Starts shards and scheduler on threads of their own, watches them, and is what HTTP talks to.

use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::prelude::*;
use actix_rt::Arbiter;
use prometheus::IntGauge;
use tokio::sync::{oneshot, watch};

use super::audit::Caller;
use super::break_glass::kit::Kit;
use super::breakers;
use super::credential::{ExecutedOf, Snapshot};
use super::deps::Deps;
use super::hints;
use super::kind::Kind;
use super::liveness::{self, Liveness};
use super::scheduler::{self, PingScheduler, Scheduler};
use super::shard::{Asked, CommandError, Dispatch, DropActors, Ping, Shard};
use super::sweeper::{self, PingSweeper, Sweeper};
use super::usage;
use crate::ids::ClusterId;
use crate::state::shared::cluster_hash;
use crate::store::{Hint, IdempotencyAnswer, StoreError};

/// Shards and scheduler are asked so often whether they live.
const WATCH: Duration = Duration::from_secs(5);
/// A shard that does not answer for so long hangs; the process is better started again.
const HANGS: Duration = Duration::from_secs(60);

/// The shards of a kind, each on an arbiter of its own; a cluster's is chosen by a hash of its id.
pub struct Shards<K: Kind = Deps> {
    tools: Arc<K>,
    shards: Arc<Vec<Addr<Shard<K>>>>,
    in_flight: IntGauge,
}

impl<K: Kind> Clone for Shards<K> {
    fn clone(&self) -> Self {
        let (tools, shards) = (self.tools.clone(), self.shards.clone());
        Self { tools, shards, in_flight: self.in_flight.clone() }
    }
}

/// Something that waits; dropping it says that it waits no more.
struct Waiting<'a>(&'a IntGauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<K: Kind> Shards<K> {
    /// Starts shards on the given arbiters.
    #[must_use]
    pub fn start(tools: &Arc<K>, arbiters: &[actix_rt::ArbiterHandle]) -> Self {
        let start = |arbiter: &actix_rt::ArbiterHandle| {
            let tools = tools.clone();
            Shard::start_in_arbiter(arbiter, |_| Shard::new(tools))
        };
        let in_flight = tools.deps().metrics.commands_in_flight.clone();
        let shards = Arc::new(arbiters.iter().map(start).collect());
        Self { tools: tools.clone(), shards, in_flight }
    }

    /// What they work with.
    #[must_use]
    pub const fn tools(&self) -> &Arc<K> {
        &self.tools
    }

    /// The shard of a cluster.
    #[must_use]
    pub fn of(&self, cluster_id: &ClusterId) -> &Addr<Shard<K>> {
        let count = u64::try_from(self.shards.len()).unwrap_or(1);
        let index = usize::try_from(cluster_hash(cluster_id) % count).unwrap_or(0);
        &self.shards[index]
    }

    /// Runs a command and waits for its commit, not for what follows from it.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: K::Command,
        caller: Caller,
    ) -> Result<ExecutedOf<K>, CommandError<K::Error>> {
        self.execute_once(cluster_id, command, caller, None).await
    }

    /// The same, with the answer that a repetition of the request gets: both are committed, or neither.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn execute_once(
        &self,
        cluster_id: &ClusterId,
        command: K::Command,
        caller: Caller,
        to_store: Option<IdempotencyAnswer>,
    ) -> Result<ExecutedOf<K>, CommandError<K::Error>> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked { command, caller, answer: to_store, reply };
        let message = Dispatch::command(cluster_id.clone(), asked);
        self.in_flight.inc();
        let _waiting = Waiting(&self.in_flight);
        match self.of(cluster_id).try_send(message) {
            Ok(()) => answer.await.unwrap_or(Err(CommandError::Restarting)),
            Err(SendError::Full(_)) => Err(CommandError::Busy),
            Err(SendError::Closed(_)) => Err(CommandError::Restarting),
        }
    }

    /// Another replica has changed a credential.
    pub fn refresh(&self, cluster_id: ClusterId) {
        // A full mailbox will look by itself.
        let _ = self.of(&cluster_id).try_send(Dispatch::refresh(cluster_id));
    }

    /// Lets go of all actors.
    pub fn drop_actors(&self) {
        for shard in self.shards.iter() {
            shard.do_send(DropActors);
        }
    }

    /// How many credentials have an actor now. A shard that does not answer counts as empty.
    pub async fn actors(&self) -> usize {
        let mut count = 0;
        for shard in self.shards.iter() {
            count += shard.send(Ping).await.unwrap_or(0);
        }
        count
    }

    /// An error when a shard is dead or hangs.
    async fn ping(&self) -> Result<(), &'static str> {
        for shard in self.shards.iter() {
            match tokio::time::timeout(HANGS, shard.send(Ping)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Err("a shard is dead"),
                Err(_) => return Err("a shard hangs"),
            }
        }
        Ok(())
    }
}

/// The shards of all kinds.
#[derive(Clone)]
pub struct Actors {
    /// Pull secrets.
    pub pull_secrets: Shards,
    /// Break-glass credentials, where they are set up.
    pub break_glass: Option<Shards<Kit>>,
}

impl Actors {
    /// Another replica has changed something of a cluster.
    pub fn refresh(&self, cluster_id: &ClusterId) {
        self.pull_secrets.refresh(cluster_id.clone());
        if let Some(break_glass) = &self.break_glass {
            break_glass.refresh(cluster_id.clone());
        }
    }

    /// Lets go of all actors.
    pub fn drop_actors(&self) {
        self.pull_secrets.drop_actors();
        if let Some(break_glass) = &self.break_glass {
            break_glass.drop_actors();
        }
    }

    async fn ping(&self) -> Result<(), &'static str> {
        self.pull_secrets.ping().await?;
        match &self.break_glass {
            Some(break_glass) => break_glass.ping().await,
            None => Ok(()),
        }
    }
}

/// Everything that runs beside HTTP.
pub struct System {
    /// What it works with.
    pub deps: Arc<Deps>,
    /// Where commands for pull secrets go.
    pub shards: Shards,
    /// Where all commands go.
    pub actors: Actors,
    scheduler: Addr<Scheduler>,
    sweeper: Addr<Sweeper>,
    liveness: Weak<()>,
    beside: Beside,
    arbiters: Vec<Arbiter>,
}

impl System {
    /// Joins the other replicas, starts the shards, takes what the dead have left behind, then starts the
    /// scheduler.
    ///
    /// # Errors
    /// [`StoreError`] when the database does not answer.
    pub async fn start(deps: Arc<Deps>, break_glass: Option<Arc<Kit>>) -> Result<Self, StoreError> {
        let arbiters: Vec<Arbiter> =
            (0..deps.tuning.shards.max(1)).map(|_| Arbiter::new()).collect();
        let handles: Vec<_> = arbiters.iter().map(Arbiter::handle).collect();
        let shards = Shards::start(&deps, &handles);
        let break_glass = break_glass.map(|kit| Shards::start(&kit, &handles));
        let actors = Actors { pull_secrets: shards.clone(), break_glass };
        liveness::join(&deps).await?;
        sweeper::prepare(&deps).await?;
        let mut closed = scheduler::take_over(&shards).await?;
        if let Some(break_glass) = &actors.break_glass {
            closed += scheduler::take_over(break_glass).await?;
        }
        if closed > 0 {
            tracing::info!(closed, "took over what the process before left open");
        }
        breakers::watch(&deps);
        usage::watch(&deps, &shards);
        let own = Arbiter::new();
        let scheduler = {
            let (deps, actors) = (deps.clone(), actors.clone());
            Scheduler::start_in_arbiter(&own.handle(), |_| Scheduler::new(deps, actors))
        };
        let sweeper = {
            let (deps, shards) = (deps.clone(), shards.clone());
            Sweeper::start_in_arbiter(&own.handle(), |_| Sweeper::new(deps, shards))
        };
        let alive = Liveness::new(deps.clone(), actors.clone(), scheduler.clone());
        let liveness = alive.alive();
        // On a thread where nothing else can hold it up.
        let thread = Arbiter::new();
        let hears = hints::hear(deps.clone(), actors.clone(), scheduler.clone());
        let beside = Beside::start(&thread, async move {
            tokio::join!(alive.run(), hears);
        });
        liveness::tell(&deps, &Hint::Members).await;
        let arbiters = arbiters.into_iter().chain([own, thread]).collect();
        Ok(Self { deps, shards, actors, scheduler, sweeper, liveness, beside, arbiters })
    }

    /// Ends when a shard or the scheduler cannot go on. The process is to be started again then, which is
    /// safe because actors hold no truth.
    pub async fn failed(&self) -> &'static str {
        loop {
            tokio::time::sleep(WATCH).await;
            if let Err(reason) = self.actors.ping().await {
                return reason;
            }
            match tokio::time::timeout(HANGS, self.scheduler.send(PingScheduler)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return "the scheduler is dead",
                Err(_) => return "the scheduler hangs",
            }
            match tokio::time::timeout(HANGS, self.sweeper.send(PingSweeper)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return "the sweeper is dead",
                Err(_) => return "the sweeper hangs",
            }
            if self.liveness.upgrade().is_none() {
                return "nobody says any more that this replica lives";
            }
        }
    }

    /// Hands everything over. Begins nothing new, gives back at once what has no call under way, waits for the
    /// calls, leaves, and stops the threads. What did not end in this time is closed as unknown by whoever takes
    /// it over; then the answer is false.
    pub async fn stop(self, time: Duration) -> bool {
        self.deps.activity.stop();
        hand_over(&self.deps, time, Leaving::Soon).await;
        let ended = self.deps.activity.ended(time).await;
        self.deps.replica.has_left();
        // Whoever leaves must not join again.
        self.beside.stop().await;
        hand_over(&self.deps, time, Leaving::Now).await;
        let (tell, told) = oneshot::channel();
        // Joining blocks; a thread that does not end must not hold up whoever waits with a limit.
        std::thread::spawn(move || {
            for arbiter in self.arbiters {
                arbiter.stop();
                let _ = arbiter.join();
            }
            let _ = tell.send(());
        });
        let _ = told.await;
        ended
    }
}

/// Work that runs for the life of the process and is ended on its own thread: a database connection that is
/// dropped after its thread's runtime would panic.
struct Beside {
    stop: oneshot::Sender<()>,
    stopped: oneshot::Receiver<()>,
}

impl Beside {
    fn start(thread: &Arbiter, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (stop, told) = oneshot::channel();
        let (tell, stopped) = oneshot::channel();
        thread.spawn(async move {
            tokio::select! {
                () = work => {}
                _ = told => {}
            }
            let _ = tell.send(());
        });
        Self { stop, stopped }
    }

    async fn stop(self) {
        drop(self.stop);
        let _ = self.stopped.await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Soon,
    Now,
}

/// Where the database does not answer, others take over after a lease.
async fn hand_over(deps: &Deps, time: Duration, leaving: Leaving) {
    let (id, now) = (deps.replica.id, deps.clock.now());
    let work = async {
        let done = match leaving {
            Leaving::Soon => deps.store.release(id, now).await,
            Leaving::Now => deps.store.leave(id, now).await,
        };
        if let Err(error) = done {
            tracing::warn!(%error, "work was not handed over: others take it after a lease");
        }
        liveness::tell(deps, &Hint::Members).await;
    };
    let time = time.clamp(Duration::from_millis(100), Duration::from_secs(2));
    if tokio::time::timeout(time, work).await.is_err() {
        tracing::warn!("work was not handed over in time: others take it after a lease");
    }
}

/// Waits until the state is as wanted or the time is up, and returns the last state seen.
pub async fn wait_until<W>(
    mut watch: watch::Receiver<Snapshot<W>>,
    time: Duration,
    wanted: impl Fn(&Snapshot<W>) -> bool,
) -> Snapshot<W> {
    let _ = tokio::time::timeout(time, watch.wait_for(|snapshot| wanted(snapshot))).await;
    watch.borrow_and_update().clone()
}
