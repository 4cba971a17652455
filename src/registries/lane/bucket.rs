//! The token bucket of a lane, on tokio's clock.
//!
//! Knows the rate only; whether the registry is well is the breaker's subject.

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use crate::registries::rate::Rate;

type Limiter = RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Duration>>;

/// Time since the lane was made: tests pause tokio's clock, which governor's own do not follow.
#[derive(Debug, Clone)]
struct TokioClock(Instant);

impl GovernorClock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A tenth may come at once; the others are spread so that burst and all that follows within a period are
/// `count` together. A full bucket of `count` would let twice as many through in its first period.
fn quota(count: NonZeroU32, period: Duration) -> Option<Quota> {
    let burst = NonZeroU32::MIN.saturating_add(count.get() / 10);
    let others = u128::from(count.get() - burst.get() + 1);
    // Rounded up: a nanosecond less would be one call more.
    let interval = u64::try_from(period.as_nanos().div_ceil(others)).unwrap_or(u64::MAX);
    Quota::with_period(Duration::from_nanos(interval)).map(|quota| quota.allow_burst(burst))
}

/// A bucket; without a rate it is never empty.
#[derive(Debug)]
pub(super) struct Bucket {
    filled: Mutex<Filled>,
    start: Instant,
}

#[derive(Debug)]
struct Filled {
    limiter: Option<Limiter>,
    replicas: NonZeroU32,
}

impl Bucket {
    /// A full one, for one replica.
    pub(super) fn new(rate: Rate) -> Self {
        let start = Instant::now();
        let filled = Filled { limiter: limiter(rate, start), replicas: NonZeroU32::MIN };
        Self { filled: Mutex::new(filled), start }
    }

    /// From now on it gives this replica's part of the rate. It begins empty: what was in it may have been given
    /// to others already.
    pub(super) fn share(&self, rate: Rate, replicas: NonZeroU32) {
        let mut filled = self.filled();
        if filled.replicas == replicas {
            return;
        }
        let limiter = limiter(rate.shared(replicas), self.start);
        if let Some(limiter) = &limiter {
            while limiter.check().is_ok() {}
        }
        *filled = Filled { limiter, replicas };
    }

    /// Takes one token, or says when there will be one.
    pub(super) fn take(&self) -> Result<(), Instant> {
        let filled = self.filled();
        let Some(limiter) = &filled.limiter else { return Ok(()) };
        limiter.check().map_err(|not_until| {
            let now = self.start.elapsed();
            // Never "now": a waiter that is woken a nanosecond early would turn in circles.
            self.start + now + not_until.wait_time_from(now).max(Duration::from_millis(1))
        })
    }

    /// No code panics under this lock; a poisoned one would be as good as any.
    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limiter(rate: Rate, start: Instant) -> Option<Limiter> {
    let quota = match rate {
        Rate::Off => None,
        Rate::Per { count, period } => quota(count, period),
    };
    quota.map(|quota| RateLimiter::direct_with_clock(quota, TokioClock(start)))
}
