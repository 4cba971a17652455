//! What the surface needs of the rest of the process, and whether it may work at all.
//!
//! One value per process, shared by all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::auth::Authenticator;
use super::health::Readiness;
use super::limits::Limits;
use crate::telemetry::Metrics;
use crate::time::Clock;

/// What every request may need.
pub struct Edge {
    /// Counts requests and panics.
    pub metrics: Metrics,
    /// The time in answers.
    pub clock: Arc<dyn Clock>,
    /// Says who is calling.
    pub authenticator: Arc<dyn Authenticator>,
    /// How much each caller may ask for.
    pub limits: Limits,
    /// Whether requests are taken.
    pub lifecycle: Lifecycle,
    /// What `/readyz` looks at.
    pub readiness: Readiness,
    /// How long a request waits for work when it does not say.
    pub request_wait: Duration,
}

/// Where the process is in its life. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    started: Arc<AtomicBool>,
    leaving: Arc<AtomicBool>,
    draining: CancellationToken,
}

/// The stages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Listens, and only says that it is not ready.
    Starting,
    /// Works.
    Serving,
    /// Works, and says that it is not ready, so that no more requests are sent here.
    Leaving,
    /// Ends what it began; takes nothing new.
    Draining,
}

impl Lifecycle {
    /// Requests are taken from now on.
    pub fn begin_serving(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Probes say "not ready" from now on; requests are still taken.
    pub fn begin_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// No new request is taken from now on, and whoever waits in one is told.
    pub fn begin_draining(&self) {
        self.draining.cancel();
    }

    /// The stage now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        if self.draining.is_cancelled() {
            Stage::Draining
        } else if self.leaving.load(Ordering::Acquire) {
            Stage::Leaving
        } else if self.started.load(Ordering::Acquire) {
            Stage::Serving
        } else {
            Stage::Starting
        }
    }

    /// Ends when draining begins: a request that waits for work answers then with what there is.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }
}
