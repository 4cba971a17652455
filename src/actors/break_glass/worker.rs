//! Runs the steps of break-glass credentials, makes the calls that they announce, wakes what is due.
//!
//! A step commits and then makes its calls; a call's outcome is the next step. Holds no truth: whatever is lost
//! with the process is found by the next look at the database. One panicking cluster never holds up another.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::calls::{self, ConfiguredCluster, Finished};
use super::fleet::{Drafter, Fleet};
use super::line::{Line, Lines};
use super::log;
use super::step::{AnnouncedCall, Delivered, Request, Step, StepError, Tools, step};
use crate::actors::audit::Caller;
use crate::actors::deps::Deps;
use crate::ids::ClusterId;
use crate::state::break_glass::{Command, Event};
use crate::store::break_glass::BreakGlassPurge;
use crate::store::{IdempotencyAnswer, StoreError};

/// An outcome that could not be stored is told again after this.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// History and gauges are looked at so often.
const HOUSEKEEPING: Duration = Duration::from_secs(15);
/// So many rows per transaction, and so many transactions per turn.
const BATCH: u32 = 500;
const TURNS: usize = 20;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The step said no.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Too many wait already.
    #[error("too many requests wait for this cluster")]
    Busy,
    /// The process ends, or the cluster's code panicked; nothing is known of the command's fate.
    #[error("this cluster's break-glass credentials are being restarted")]
    Restarting,
    /// The clusters file does not name it (any more).
    #[error("the clusters file does not name this cluster")]
    Unnamed,
}

/// What it works with.
pub struct Worker {
    pub(super) deps: Arc<Deps>,
    pub(super) tools: Tools,
    pub(super) fleet: Fleet,
    pub(super) lines: Lines,
}

/// One command, and what comes with it.
pub(super) struct Told {
    pub command: Command,
    pub delivered: Delivered,
    pub caller: Caller,
    pub answer: Option<IdempotencyAnswer>,
}

impl Told {
    pub(super) fn service(command: Command, part: &str) -> Self {
        let caller = Caller::service(part);
        Self { command, delivered: Delivered::default(), caller, answer: None }
    }
}

impl Worker {
    /// Runs one command in its turn, and begins what it announced. Has to be called on the worker's own thread:
    /// calls live as long as that.
    pub(super) async fn run(
        self: &Arc<Self>,
        cluster_id: &ClusterId,
        told: &Told,
    ) -> Result<Vec<Event>, WorkError> {
        if self.deps.activity.is_stopping() && !is_outcome(&told.command) {
            return Err(WorkError::Restarting);
        }
        let _running = self.deps.activity.begin();
        let line = self.lines.of(cluster_id);
        let place = self.lines.join(&line).ok_or(WorkError::Busy)?;
        let _turn = place.turn().await;
        let entry = self.fleet.entry(cluster_id).ok_or(WorkError::Unnamed)?;
        let configured = self.fleet.configured(cluster_id, &entry).await;
        let drafts = Drafter { configured: &configured, now: self.tools.clock.now() };
        let request = Request {
            command: &told.command,
            rules: &self.fleet.rules(&entry),
            delivered: &told.delivered,
            drafts: &drafts,
            caller: &told.caller,
            answer: told.answer.as_ref(),
            may_begin: self.may_begin(),
            time_is_certain: self.deps.replica.time_is_trusted(),
        };
        let work = AssertUnwindSafe(step(&self.tools, cluster_id, &request)).catch_unwind();
        let Ok(done) = work.await else {
            self.panicked(cluster_id, &line);
            return Err(WorkError::Restarting);
        };
        let done = done?;
        if done.events.is_empty() {
            self.nothing_new(cluster_id, told, &done).await?;
        } else {
            line.tell();
            log::events(cluster_id, &done.events, &told.caller);
        }
        let configured = Arc::new(configured);
        for call in done.calls {
            self.start(cluster_id, call, configured.clone());
        }
        Ok(done.events)
    }

    fn may_begin(&self) -> bool {
        !self.deps.activity.is_stopping() && self.deps.replica.is_live()
    }

    /// Nothing was committed: what would have gone with the commit is stored alone.
    async fn nothing_new(
        &self,
        cluster_id: &ClusterId,
        told: &Told,
        step: &Step,
    ) -> Result<(), WorkError> {
        if let Some(answer) = &told.answer {
            let stored = self.deps.store.answer_idempotent(answer).await;
            stored.map_err(StepError::from)?;
        }
        // Whoever took it has moved its time; what is due already could not begin and comes again by itself.
        let waits = step.due_at.is_some_and(|due| due <= self.tools.clock.now());
        if told.command == Command::Tick && !waits {
            let (store, version) = (&self.tools.store, step.working.version);
            let set = store.reschedule_break_glass(cluster_id, version, step.due_at).await;
            set.map_err(StepError::from)?;
        }
        Ok(())
    }

    /// An outcome is a fact: it is told until it is stored, or nobody waits for it any more.
    fn start(
        self: &Arc<Self>,
        cluster_id: &ClusterId,
        call: AnnouncedCall,
        configured: Arc<ConfiguredCluster>,
    ) {
        let (worker, cluster_id) = (self.clone(), cluster_id.clone());
        let running = self.deps.activity.begin();
        actix_rt::spawn(async move {
            let _running = running;
            let began = Instant::now();
            let finished = calls::make(&worker.tools, &configured, call).await;
            log::call(&cluster_id, &finished, began.elapsed());
            let Finished { subject, token, answer, delivered } = finished;
            let command = Command::Answer { subject, token, answer };
            let told = Told { delivered, ..Told::service(command, "signer") };
            while let Err(error) = worker.run(&cluster_id, &told).await {
                match error {
                    // A late one, or an outcome that the next look at the database replaces.
                    WorkError::Step(StepError::Rejected(_))
                    | WorkError::Unnamed
                    | WorkError::Restarting => {
                        tracing::debug!(%cluster_id, %error, "an outcome was not taken");
                        return;
                    }
                    WorkError::Step(StepError::Store(_) | StepError::Seal(_)) | WorkError::Busy => {
                        tracing::warn!(%cluster_id, %error, "an outcome waits");
                        tokio::time::sleep(STORE_RETRY).await;
                    }
                }
            }
        });
    }

    /// Nothing was stored, so the work comes again with its due time; after too many it waits for long.
    fn panicked(self: &Arc<Self>, cluster_id: &ClusterId, line: &Line) {
        self.deps.metrics.panic("break_glass");
        let tuning = &self.deps.tuning;
        if !line.panicked(tuning.panic_limit, tuning.panic_window) {
            tracing::error!(%cluster_id, "break-glass panicked: it is tried again later");
            return;
        }
        tracing::error!(%cluster_id, "break-glass panicked too often: quarantined");
        let retry_at = self.tools.clock.now().plus(tuning.quarantine);
        let told = Told::service(Command::Quarantine { retry_at }, "supervisor");
        let (worker, cluster_id) = (self.clone(), cluster_id.clone());
        actix_rt::spawn(async move {
            if let Err(error) = worker.run(&cluster_id, &told).await {
                tracing::error!(%cluster_id, %error, "no quarantine");
            }
        });
    }

    /// Nobody will answer the calls that a process before has left open. Of another replica that lives, this
    /// takes a call that is made once more; a repetition names the same request, so that is harmless.
    pub(super) async fn take_over(self: &Arc<Self>) -> Result<(), StoreError> {
        let open = self.tools.store.clusters_with_open_break_glass_calls().await?;
        for cluster_id in open {
            let told = Told::service(Command::TakeOver, "takeover");
            if let Err(error) = self.run(&cluster_id, &told).await {
                tracing::warn!(%cluster_id, %error, "open break-glass calls stay open for a while");
            }
        }
        Ok(())
    }

    /// Looks for what is due, until the process ends.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut kept_house: Option<Instant> = None;
        while !self.deps.activity.is_stopping() {
            let house = kept_house.is_none_or(|at| at.elapsed() >= HOUSEKEEPING);
            match AssertUnwindSafe(self.look(house)).catch_unwind().await {
                Ok(Ok(())) if house => kept_house = Some(Instant::now()),
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "break-glass work waits for the database"),
                Err(_) => self.deps.metrics.panic("break_glass"),
            }
            tokio::time::sleep(self.deps.tuning.tick).await;
        }
    }

    async fn look(self: &Arc<Self>, house: bool) -> Result<(), StoreError> {
        let _running = self.deps.activity.begin();
        self.fleet.reload();
        if self.deps.replica.is_live() {
            let (now, tuning) = (self.tools.clock.now(), &self.deps.tuning);
            let until = now.plus(tuning.lease);
            for cluster_id in self.tools.store.break_glass_due(now, tuning.batch, until).await? {
                let worker = self.clone();
                actix_rt::spawn(async move { worker.wake(&cluster_id).await });
            }
        }
        if house { self.keep_house().await } else { Ok(()) }
    }

    async fn wake(self: &Arc<Self>, cluster_id: &ClusterId) {
        let told = Told::service(Command::Tick, "scheduler");
        match self.run(cluster_id, &told).await {
            Ok(_) => {}
            Err(WorkError::Unnamed) => {
                let event_name = "cluster_unnamed";
                tracing::warn!(event_name, %cluster_id, "its break-glass work waits for the clusters file");
            }
            Err(error) => tracing::warn!(%cluster_id, %error, "break-glass work comes later"),
        }
    }

    async fn keep_house(&self) -> Result<(), StoreError> {
        self.lines.tidy(self.deps.tuning.panic_window);
        let gauge = &self.deps.metrics.break_glass_credentials;
        let counts = self.tools.store.credential_counts().await?;
        // A state that nothing is in any more has to go back to zero.
        gauge.reset();
        for (word, count) in counts {
            gauge.with_label_values(&[word]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        // History passes by the wall clock alone.
        if self.deps.replica.time_is_trusted() { self.let_pass().await } else { Ok(()) }
    }

    async fn let_pass(&self) -> Result<(), StoreError> {
        let (now, policy) = (self.tools.clock.now(), &self.tools.policy);
        let before = BreakGlassPurge {
            denied_before: now.minus(policy.denied_after),
            failed_before: now.minus(policy.failed_after),
            history_before: now.minus(policy.history_after),
            batch: BATCH,
        };
        for _ in 0..TURNS {
            if self.tools.store.purge_break_glass(before).await? < u64::from(BATCH) {
                break;
            }
        }
        Ok(())
    }
}

/// What was begun before the process was told to end may end.
fn is_outcome(command: &Command) -> bool {
    matches!(command, Command::Answer { .. })
}
