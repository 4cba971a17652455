//! The token bucket of a lane, on tokio's clock.
//!
//! Knows the rate only; whether the registry is well is the breaker's subject.

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

/// A bucket; without a rate it is never empty.
#[derive(Debug)]
pub(super) struct Bucket {
    limiter: Option<Limiter>,
    start: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        let start = Instant::now();
        let quota = match rate {
            Rate::Off => None,
            Rate::Per { count, .. } => {
                rate.interval().and_then(Quota::with_period).map(|quota| quota.allow_burst(count))
            }
        };
        let limiter = quota.map(|quota| RateLimiter::direct_with_clock(quota, TokioClock(start)));
        Self { limiter, start }
    }

    /// Takes one token, or says when there will be one.
    pub(super) fn take(&self) -> Result<(), Instant> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check().map_err(|not_until| {
            let now = self.start.elapsed();
            // Never "now": a waiter that is woken a nanosecond early would turn in circles.
            self.start + now + not_until.wait_time_from(now).max(Duration::from_millis(1))
        })
    }
}
