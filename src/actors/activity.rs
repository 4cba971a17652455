//! What is under way, so that a shutdown can wait for it.
//!
//! Once it is stopping nothing new begins: no command, no call. Calls that run may end, and their outcomes are
//! stored; what does not end in time is closed as unknown by the next process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Counts steps and calls.
#[derive(Debug)]
pub struct Activity {
    stopping: AtomicBool,
    running: Arc<watch::Sender<usize>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { stopping: AtomicBool::new(false), running: Arc::new(watch::Sender::new(0)) }
    }
}

/// Something under way; dropping it says that it ended.
#[derive(Debug)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Activity {
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
