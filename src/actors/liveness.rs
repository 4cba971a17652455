//! Says that this replica lives, watches whether the others do, and stops it when it cannot be sure.
//!
//! Runs on a thread that does nothing slow, over a connection of its own. Decides nothing about credentials: it
//! removes the row of a replica that is dead, and the scheduler takes over what that one owned.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::Addr;

use super::deps::Deps;
use super::replica::{Observed, Standing};
use super::scheduler::{LookNow, Scheduler};
use super::system::Actors;
use crate::store::{Hint, ReplicaRow, StoreError, Unavailable};

/// So many raises fit into a lease.
const BEATS: u32 = 10;
/// However long the lease is, a death need not be noticed sooner than this after it.
const SLOWEST: Duration = Duration::from_secs(5);

/// Makes this replica's row.
///
/// # Errors
/// [`StoreError`].
pub async fn join(deps: &Deps) -> Result<(), StoreError> {
    let begun = Instant::now();
    deps.store.join(deps.replica.id, &deps.keyring.get().key_ids(), deps.clock.now()).await?;
    deps.replica.joined(begun);
    tracing::info!(event_name = "replica_joined", replica = %deps.replica.id, "this replica joined");
    Ok(())
}

/// Follows the replicas for the life of the process. Its end is seen by `alive`.
pub struct Liveness {
    deps: Arc<Deps>,
    actors: Actors,
    scheduler: Addr<Scheduler>,
    alive: Arc<()>,
    standing: Standing,
}

impl Liveness {
    /// One that has joined.
    #[must_use]
    pub fn new(deps: Arc<Deps>, actors: Actors, scheduler: Addr<Scheduler>) -> Self {
        Self { deps, actors, scheduler, alive: Arc::new(()), standing: Standing::Live }
    }

    /// Gone when this is gone.
    #[must_use]
    pub fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// Runs until its thread ends.
    pub async fn run(mut self) {
        let pause = (self.deps.tuning.lease / BEATS).min(SLOWEST);
        loop {
            self.turn().await;
            tokio::time::sleep(pause).await;
        }
    }

    async fn turn(&mut self) {
        self.look_at_clocks();
        match self.beat().await {
            Ok(Some((begun, rows))) => {
                let observed = self.deps.replica.observe(begun, &rows);
                self.deps.keyring.agree(self.deps.replica.common_keys());
                self.share_limits();
                self.follow(&observed).await;
            }
            Ok(None) => {
                let event_name = "replica_buried";
                tracing::error!(event_name, "others took this replica for dead: it joins again");
                self.deps.replica.was_buried();
                self.stand();
                if let Err(error) = join(&self.deps).await {
                    tracing::warn!(%error, "this replica could not join again");
                }
            }
            Err(error) => tracing::warn!(%error, "this replica could not say that it lives"),
        }
        self.stand();
        let live = i64::try_from(self.deps.replica.live_count()).unwrap_or(i64::MAX);
        self.deps.metrics.replicas_live.set(live);
    }

    /// What a registry allows is for all replicas together.
    fn share_limits(&self) {
        let count = u32::try_from(self.deps.replica.live_count()).unwrap_or(u32::MAX);
        let replicas = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        self.deps.registries.values().for_each(|registry| registry.lane.share(replicas));
    }

    /// A database that does not answer must not keep this from noticing how late it is.
    async fn beat(&self) -> Result<Option<(Instant, Vec<ReplicaRow>)>, StoreError> {
        let (deps, begun) = (&self.deps, Instant::now());
        let key_ids = deps.keyring.get().key_ids();
        let beat = deps.store.beat(deps.replica.id, &key_ids, deps.clock.now());
        let patience = (deps.tuning.lease / 5).min(SLOWEST);
        let Ok(rows) = tokio::time::timeout(patience, beat).await else {
            let detail = "the database did not answer in time".to_owned();
            return Err(StoreError::Unavailable { reason: Unavailable::Busy, detail });
        };
        Ok(rows?.map(|rows| (begun, rows)))
    }

    async fn follow(&self, observed: &Observed) {
        for replica in &observed.came {
            tracing::info!(event_name = "replica_came", %replica, "another replica is there");
        }
        for replica in &observed.went {
            tracing::info!(event_name = "replica_went", %replica, "another replica is gone");
        }
        let mut buried = false;
        for (replica, counter) in &observed.dead {
            match self.deps.store.bury(*replica, *counter).await {
                Ok(true) => {
                    buried = true;
                    let event_name = "replica_died";
                    tracing::warn!(event_name, %replica, "another replica was not seen to live for a lease");
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%replica, %error, "a dead replica keeps its row"),
            }
        }
        if buried {
            tell(&self.deps, &Hint::Members).await;
        }
        if buried || !observed.went.is_empty() {
            self.scheduler.do_send(LookNow { orphans: true });
        }
    }

    /// Acts on what became of this replica's own standing.
    fn stand(&mut self) {
        let (before, now) = (self.standing, self.deps.replica.standing());
        self.standing = now;
        self.deps.metrics.fenced.set(i64::from(now != Standing::Live));
        match (before, now) {
            (Standing::Live, Standing::Silent) => {
                let event_name = "replica_fenced";
                tracing::warn!(
                    event_name,
                    "no call begins until this replica can say that it lives"
                );
            }
            (Standing::Live | Standing::Silent, Standing::Lost) => {
                let event_name = "replica_lost";
                tracing::error!(
                    event_name,
                    "others may have taken over: what is in memory is dropped"
                );
                self.actors.drop_actors();
            }
            (Standing::Silent | Standing::Lost, Standing::Live) => {
                tracing::info!(event_name = "replica_resumed", "this replica goes on");
                self.scheduler.do_send(LookNow { orphans: true });
            }
            (Standing::Live, Standing::Live)
            | (Standing::Silent, Standing::Silent)
            | (Standing::Lost, Standing::Lost | Standing::Silent) => {}
        }
    }

    fn look_at_clocks(&self) {
        let (deps, event) = (&self.deps, "the wall clock");
        let Some(trusted) = deps.replica.look_at_clocks(deps.clock.now(), Instant::now()) else {
            return;
        };
        deps.metrics.clock_doubted.set(i64::from(!trusted));
        if trusted {
            tracing::info!(event_name = "clock_trusted", "{event} is believed again");
        } else {
            let event_name = "clock_doubted";
            tracing::error!(
                event_name,
                "{event} jumped: nothing is revoked or removed because time has passed"
            );
        }
    }
}

/// Tells the others; it does not matter whether they hear.
pub async fn tell(deps: &Deps, hint: &Hint) {
    if let Err(error) = deps.store.tell(hint).await {
        tracing::debug!(%error, "a hint was not sent");
    }
}
