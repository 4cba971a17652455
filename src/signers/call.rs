//! What every implementation asks of its call: whether it may still act, and how to name a trouble.
//!
//! Knows the trait's words only, nothing of any signer.

use std::time::Duration;

use tokio::time::Instant;

use super::{CallContext, Trouble, TroubleKind};

impl CallContext {
    /// The deadline on tokio's clock, so that tests may pause the time.
    #[must_use]
    pub fn tokio_deadline(&self) -> Instant {
        Instant::from_std(self.deadline)
    }

    /// The time that is left; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tokio_deadline().saturating_duration_since(Instant::now())
    }

    /// Trouble once the deadline has passed.
    ///
    /// # Errors
    /// `Timeout` when no time is left.
    pub fn in_time(&self) -> Result<(), Trouble> {
        if self.remaining().is_zero() { Err(Trouble::timeout()) } else { Ok(()) }
    }

    /// The last question before something changes outside: is there time, and is the announcement
    /// still the current one? The deadline is looked at again after the fence, which may be slow.
    ///
    /// # Errors
    /// `Timeout` or `NotCurrent`; nothing may be sent then.
    pub async fn may_act(&self) -> Result<(), Trouble> {
        self.in_time()?;
        match tokio::time::timeout_at(self.tokio_deadline(), self.fence.is_current()).await {
            Ok(true) => self.in_time(),
            Ok(false) => Err(Trouble::new(
                TroubleKind::NotCurrent,
                "the announcement of this call is no longer current",
            )),
            Err(_) => Err(Trouble::timeout()),
        }
    }
}

impl Trouble {
    /// Trouble without a `Retry-After`.
    #[must_use]
    pub fn new(kind: TroubleKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// The call's time ran out.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new(TroubleKind::Timeout, "the time of the call ran out")
    }

    /// The same with the other side's own `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::*;
    use crate::signers::Fence;

    struct Answer(Option<bool>);

    #[async_trait]
    impl Fence for Answer {
        async fn is_current(&self) -> bool {
            match self.0 {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    fn call(answer: Option<bool>, left: Duration) -> CallContext {
        let deadline = (Instant::now() + left).into_std();
        CallContext { deadline, fence: Arc::new(Answer(answer)) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_may_act_while_it_is_current_and_in_time() {
        let second = Duration::from_secs(1);
        let kind = |result: Result<(), Trouble>| result.map_err(|trouble| trouble.kind);
        assert_eq!(kind(call(Some(true), second).may_act().await), Ok(()));
        let closed = call(Some(false), second).may_act().await;
        assert_eq!(kind(closed), Err(TroubleKind::NotCurrent));
        let late = call(Some(true), Duration::ZERO).may_act().await;
        assert_eq!(kind(late), Err(TroubleKind::Timeout));
        // A fence that never answers holds nobody up beyond the deadline.
        assert_eq!(kind(call(None, second).may_act().await), Err(TroubleKind::Timeout));
    }
}
