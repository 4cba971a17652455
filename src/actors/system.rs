//! Starts shards and scheduler on threads of their own, watches them, and is what HTTP talks to.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::Arbiter;
use tokio::sync::{oneshot, watch};

use super::audit::Caller;
use super::credential::{Executed, Snapshot};
use super::deps::Deps;
use super::scheduler::{self, PingScheduler, Scheduler};
use super::shard::{CommandError, Dispatch, Ping, Shard};
use crate::ids::ClusterId;
use crate::state::pull_secret::{Command, cluster_hash};
use crate::store::StoreError;

/// Shards and scheduler are asked so often whether they live.
const WATCH: Duration = Duration::from_secs(5);
/// A shard that does not answer for so long hangs; the process is better started again.
const HANGS: Duration = Duration::from_secs(60);

/// The shards, each an arbiter of its own; a cluster's is chosen by a hash of its id.
#[derive(Clone)]
pub struct Shards(Arc<Vec<Addr<Shard>>>);

impl Shards {
    /// Starts shards on the given arbiters.
    #[must_use]
    pub fn start(deps: &Arc<Deps>, arbiters: &[actix_rt::ArbiterHandle]) -> Self {
        let start = |arbiter: &actix_rt::ArbiterHandle| {
            let deps = deps.clone();
            Shard::start_in_arbiter(arbiter, |_| Shard::new(deps))
        };
        Self(Arc::new(arbiters.iter().map(start).collect()))
    }

    /// The shard of a cluster.
    #[must_use]
    pub fn of(&self, cluster_id: &ClusterId) -> &Addr<Shard> {
        let count = u64::try_from(self.0.len()).unwrap_or(1);
        let index = usize::try_from(cluster_hash(cluster_id) % count).unwrap_or(0);
        &self.0[index]
    }

    /// Runs a command and waits for its commit, not for what follows from it.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: Caller,
    ) -> Result<Executed, CommandError> {
        let (reply, answer) = oneshot::channel();
        let message = Dispatch::command(cluster_id.clone(), command, caller, reply);
        match self.of(cluster_id).try_send(message) {
            Ok(()) => answer.await.unwrap_or(Err(CommandError::Restarting)),
            Err(SendError::Full(_)) => Err(CommandError::Busy),
            Err(SendError::Closed(_)) => Err(CommandError::Restarting),
        }
    }

    /// How many credentials have an actor now. A shard that does not answer counts as empty.
    pub async fn actors(&self) -> usize {
        let mut count = 0;
        for shard in self.0.iter() {
            count += shard.send(Ping).await.unwrap_or(0);
        }
        count
    }

    /// An error when a shard is dead or hangs.
    async fn ping(&self) -> Result<(), &'static str> {
        for shard in self.0.iter() {
            match tokio::time::timeout(HANGS, shard.send(Ping)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Err("a shard is dead"),
                Err(_) => return Err("a shard hangs"),
            }
        }
        Ok(())
    }
}

/// Everything that runs beside HTTP.
pub struct System {
    /// What it works with.
    pub deps: Arc<Deps>,
    /// Where commands go.
    pub shards: Shards,
    scheduler: Addr<Scheduler>,
    arbiters: Vec<Arbiter>,
}

impl System {
    /// Starts the shards, closes what the process before left open, then starts the scheduler.
    ///
    /// # Errors
    /// [`StoreError`] when the database does not answer.
    pub async fn start(deps: Arc<Deps>) -> Result<Self, StoreError> {
        let arbiters: Vec<Arbiter> =
            (0..deps.tuning.shards.max(1)).map(|_| Arbiter::new()).collect();
        let handles: Vec<_> = arbiters.iter().map(Arbiter::handle).collect();
        let shards = Shards::start(&deps, &handles);
        let closed = scheduler::take_over(&deps, &shards).await?;
        if closed > 0 {
            tracing::info!(closed, "took over what the process before left open");
        }
        let own = Arbiter::new();
        let scheduler = {
            let (deps, shards) = (deps.clone(), shards.clone());
            Scheduler::start_in_arbiter(&own.handle(), |_| Scheduler::new(deps, shards))
        };
        let arbiters = arbiters.into_iter().chain([own]).collect();
        Ok(Self { deps, shards, scheduler, arbiters })
    }

    /// Ends when a shard or the scheduler cannot go on. The process is to be started again then, which is
    /// safe because actors hold no truth.
    pub async fn failed(&self) -> &'static str {
        loop {
            tokio::time::sleep(WATCH).await;
            if let Err(reason) = self.shards.ping().await {
                return reason;
            }
            match tokio::time::timeout(HANGS, self.scheduler.send(PingScheduler)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return "the scheduler is dead",
                Err(_) => return "the scheduler hangs",
            }
        }
    }

    /// Begins nothing new, waits for what is under way, and stops the threads. What did not end in this
    /// time is closed as unknown at the next start.
    pub async fn stop(self, time: Duration) {
        self.deps.activity.stop();
        self.deps.activity.ended(time).await;
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
    }
}

/// Waits until the state is as wanted or the time is up, and returns the last state seen.
pub async fn wait_until(
    mut watch: watch::Receiver<Snapshot>,
    time: Duration,
    wanted: impl Fn(&Snapshot) -> bool,
) -> Snapshot {
    let _ = tokio::time::timeout(time, watch.wait_for(|snapshot| wanted(snapshot))).await;
    watch.borrow_and_update().clone()
}
