//! How the process ends: it says so, serves on for a moment, drains, closes, within one limit for all.
//!
//! Knows the order of things and the signals. What is cut off by the limit or by a second signal is what a
//! kill would have cut off: the next start goes on from the database.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::actors::deps::Deps;
use crate::actors::system::System;
use crate::actors::upkeep;
use crate::http::edge::Lifecycle;
use crate::http::handlers::Backend;

/// Saying goodbye to the other replicas takes less than this.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The signals that end the process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the process decides itself what a signal does. Early: as the first process of a container
    /// it would not even see one that it does not listen for.
    pub(super) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Everything that has to end.
pub(super) struct Shutdown {
    pub lifecycle: Lifecycle,
    pub api: ServerHandle,
    pub pages: ServerHandle,
    pub backend: Backend,
    pub system: System,
    pub deps: Arc<Deps>,
    /// Requests are still served for so long after the probes say no.
    pub delay: Duration,
    /// For all of it.
    pub limit: Duration,
}

impl Shutdown {
    /// Ends everything in order.
    ///
    /// # Errors
    /// When the time was over first, or a second signal wanted it to end at once.
    pub(super) async fn run(self, signals: &mut Signals) -> anyhow::Result<()> {
        let limit = self.limit;
        let stage = Cell::new("leaving");
        tokio::select! {
            done = tokio::time::timeout(limit, self.in_order(&stage)) => {
                if done != Ok(true) {
                    tracing::warn!(stage = stage.get(), ?limit, "shutdown took too long: forced");
                    bail!("the shutdown took longer than {limit:?} and was forced");
                }
            }
            signal = signals.next() => {
                tracing::warn!(stage = stage.get(), signal, "shutdown cut short by a second signal");
                bail!("a second signal cut the shutdown short");
            }
        }
        tracing::info!("shutdown completed");
        Ok(())
    }

    /// False when calls were left behind.
    async fn in_order(self, stage: &Cell<&'static str>) -> bool {
        let begun = Instant::now();
        tracing::info!(delay = ?self.delay, limit = ?self.limit, "shutdown initiated");
        self.lifecycle.begin_leaving();
        tokio::time::sleep(self.delay).await;

        stage.set("requests");
        tracing::info!("drain started");
        self.lifecycle.begin_draining();
        self.api.stop(true).await;
        // Nobody asks any more: what was read is written, what is under way ends, and the audit is anchored as
        // it is then.
        stage.set("reads");
        self.flush_reads().await;
        stage.set("calls");
        // What they leave of the time is for handing over.
        let left = self.limit.saturating_sub(begun.elapsed());
        let ended = self.system.stop(left.saturating_sub(left.min(HAND_OVER * 2) / 2)).await;
        tracing::info!("drain ended");

        stage.set("closing");
        if let Err(error) = upkeep::anchor_audit(&self.deps).await {
            tracing::warn!(%error, "the audit was not anchored");
        }
        self.pages.stop(false).await;
        if ended {
            self.deps.store.close().await;
        }
        ended
    }

    async fn flush_reads(&self) {
        let Ok(work) = self.backend.get() else { return };
        if !work.reads.flush(self.limit).await {
            tracing::error!("reads of pull secrets were not written to the audit in time");
        }
    }
}
