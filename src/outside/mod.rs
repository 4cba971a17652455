//! What a call to the outside carries, whoever is called: until when it may act, whether it still may, and how to
//! name a trouble.
//!
//! Knows nothing of registries, of signers, nor of why anything is called.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

/// Whether an announced call may still act.
///
/// Checked as late as possible before something changes outside, so that a sender that was
/// stopped for a while does not act on an announcement that others have closed meanwhile.
#[async_trait]
pub trait Fence: Send + Sync {
    /// True while the call's token is the current one of its subject.
    async fn is_current(&self) -> bool;
}

/// The fence of a call that changes nothing: it was not announced, so nothing can overtake it.
#[derive(Debug, Clone, Copy)]
pub struct Unfenced;

#[async_trait]
impl Fence for Unfenced {
    async fn is_current(&self) -> bool {
        true
    }
}

/// What every call carries: until when it may act, and the fence.
#[derive(Clone)]
pub struct CallContext {
    /// No change outside may begin after this.
    pub deadline: std::time::Instant,
    /// The fence of the announcement.
    pub fence: Arc<dyn Fence>,
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Trouble of a call that says nothing about what it was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble.
    pub kind: TroubleKind,
    /// Plain words for `status_details`; never a secret, never a response body.
    pub message: String,
    /// The other side's own `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// Kinds of trouble. Each of them is the other side's (or our own set-up's), not the account's or the credential's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// No connection, so nothing was applied.
    Connect,
    /// The call's time ran out.
    Timeout,
    /// `429`.
    RateLimited,
    /// `5xx`, a reset or an answer that makes no sense.
    ServerError,
    /// The service's own credential was refused: the other side is blocked, nothing is denied.
    OwnCredential,
    /// Something that every call would meet: a team, a namespace or a resource type is missing, robots are disabled,
    /// a file is broken.
    Misconfigured,
    /// The service itself could not: no random bytes.
    Internal,
    /// The announcement was no longer current, so nothing was sent.
    NotCurrent,
}

impl TroubleKind {
    /// Whether the other side is blocked for whoever asks: such a failure is nobody's attempt.
    #[must_use]
    pub const fn blocks(self) -> bool {
        match self {
            Self::Connect
            | Self::RateLimited
            | Self::OwnCredential
            | Self::Misconfigured
            | Self::Internal
            | Self::NotCurrent => true,
            Self::Timeout | Self::ServerError => false,
        }
    }
}

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

    /// How long to wait before the next try, where that is not for the caller to say: what was overtaken is decided
    /// anew at once.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        match self.kind {
            TroubleKind::NotCurrent => Some(Duration::ZERO),
            TroubleKind::Connect
            | TroubleKind::Timeout
            | TroubleKind::RateLimited
            | TroubleKind::ServerError
            | TroubleKind::OwnCredential
            | TroubleKind::Misconfigured
            | TroubleKind::Internal => self.retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::*;

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
