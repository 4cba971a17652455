//! Call contexts with fences that a test holds in its hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hyperfleet_credentials::registries::{CallContext, Fence};
use tokio::time::Instant;

/// A fence that a test can close, and that counts how often it was asked.
#[derive(Default)]
pub struct TestFence {
    closed: AtomicBool,
    asked: AtomicUsize,
}

impl TestFence {
    /// One whose call has been overtaken.
    pub fn closed() -> Arc<Self> {
        let fence = Self::default();
        fence.closed.store(true, Ordering::SeqCst);
        Arc::new(fence)
    }

    /// How often somebody asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Fence for TestFence {
    async fn is_current(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        !self.closed.load(Ordering::SeqCst)
    }
}

/// A call that is current and has plenty of time.
pub fn call() -> CallContext {
    call_within(Duration::from_secs(20))
}

/// A call that is current and has so much time.
pub fn call_within(time: Duration) -> CallContext {
    let deadline = (Instant::now() + time).into_std();
    CallContext { deadline, fence: Arc::new(TestFence::default()) }
}

/// A call with a fence of the test's own.
pub fn fenced(fence: Arc<dyn Fence>) -> CallContext {
    CallContext { fence, ..call() }
}
