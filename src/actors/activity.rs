//! What is under way, so that a shutdown can wait for it.
//!
//! Once it is stopping nothing new begins: no command, no call. Calls that run may end, and their outcomes are
//! stored; what does not end in time is closed as unknown by the next process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Counts steps and calls.
#[derive(Debug)]
pub struct Activity {
    stopping: AtomicBool,
    running: Arc<watch::Sender<usize>>,
    unattended: Semaphore,
}

/// So many steps for which nobody waits are at the database at once, where it has one writer: while one is stored,
/// the next is decided.
const UNATTENDED: usize = 2;

impl Default for Activity {
    fn default() -> Self {
        Self::new(UNATTENDED)
    }
}

/// Something under way; dropping it says that it ended.
#[derive(Debug)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Activity {
    /// Lets so many steps for which nobody waits be at the database at once, at least one.
    #[must_use]
    pub fn new(unattended: usize) -> Self {
        Self {
            stopping: AtomicBool::new(false),
            running: Arc::new(watch::Sender::new(0)),
            unattended: Semaphore::new(unattended.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    /// The turn of a step for which nobody waits: a thousand of them may be due at once, and whoever waits for an
    /// answer is not to stand behind them all.
    pub async fn unattended(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed; without a turn it would go on all the same.
        self.unattended.acquire().await.ok()
    }

    /// Something begins.
    #[must_use]
    pub fn begin(&self) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running(self.running.clone())
    }

    /// Nothing new is to begin.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether nothing new is to begin.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until nothing is under way; false when the time was over first.
    pub async fn ended(&self, time: Duration) -> bool {
        let mut running = self.running.subscribe();
        tokio::time::timeout(time, running.wait_for(|running| *running == 0)).await.is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}
