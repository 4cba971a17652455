//! A token bucket per key, in bounded memory.
//!
//! Keys are kept as hashes with a secret of this process: nobody can choose keys that meet, and no name stays.

use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{NotUntil, RateLimiter};

/// So many keys are told apart; more of them share [`SHARED`] buckets until some are full again.
const MOST: usize = 16_384;
/// See [`MOST`].
const SHARED: u64 = 256;
/// Full buckets are forgotten after so many requests.
const SWEEP: u32 = 4096;

type Buckets<C> = RateLimiter<u64, HashMapStateStore<u64>, C, StateInformationMiddleware>;

/// How often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    /// So many in each window.
    pub(super) count: u32,
    /// Which window.
    pub(super) window: Duration,
    /// So many of them at once.
    pub(super) bucket: u32,
}

/// What is left to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// So many in each window.
    pub limit: u32,
    /// So many may come at once, now.
    pub remaining: u32,
    /// As many as ever may come after this.
    pub full_in: Duration,
}

/// Nothing is left.
#[derive(Debug, Clone)]
pub(super) struct Empty {
    pub(super) allowance: Allowance,
    pub(super) window: Duration,
    pub(super) retry_after: Duration,
}

/// The buckets of one limit.
pub(super) struct Keyed<C: Clock = MonotonicClock> {
    quota: Quota,
    interval: Duration,
    buckets: Buckets<C>,
    hasher: RandomState,
    taken: AtomicU32,
}

impl Keyed {
    pub(super) fn new(quota: Quota) -> Self {
        Self::with_clock(quota, MonotonicClock)
    }
}

impl<C: Clock> Keyed<C> {
    fn with_clock(quota: Quota, clock: C) -> Self {
        let interval = (quota.window / quota.count.max(1)).max(Duration::from_nanos(1));
        let bucket = NonZeroU32::new(quota.bucket).unwrap_or(NonZeroU32::MIN);
        let period = governor::Quota::with_period(interval);
        let rule = period
            .map_or_else(|| governor::Quota::per_second(bucket), |quota| quota.allow_burst(bucket));
        let buckets = Buckets::new(rule, HashMapStateStore::default(), clock);
        Self { quota, interval, buckets, hasher: RandomState::new(), taken: AtomicU32::new(0) }
    }

    /// Takes one.
    pub(super) fn take(&self, key: impl Hash) -> Result<Allowance, Empty> {
        let key = self.place(self.hasher.hash_one(key));
        match self.buckets.check_key(&key) {
            Ok(state) => Ok(self.allowance(state.remaining_burst_capacity())),
            Err(until) => Err(self.empty(&until)),
        }
    }

    fn place(&self, hash: u64) -> u64 {
        if self.taken.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            self.buckets.retain_recent();
            self.buckets.shrink_to_fit();
        }
        // The first numbers are kept for those who have to share.
        if self.buckets.len() < MOST { hash.max(SHARED) } else { hash % SHARED }
    }

    fn allowance(&self, remaining: u32) -> Allowance {
        let missing = self.quota.bucket.saturating_sub(remaining);
        let full_in = self.interval.saturating_mul(missing);
        Allowance { limit: self.quota.count, remaining, full_in }
    }

    fn empty(&self, until: &NotUntil<C::Instant>) -> Empty {
        Empty {
            allowance: self.allowance(0),
            window: self.quota.window,
            retry_after: until.wait_time_from(self.buckets.clock().now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;

    const QUOTA: Quota = Quota { count: 60, window: Duration::from_secs(60), bucket: 3 };

    #[test]
    fn what_is_taken_comes_back_with_time() {
        let clock = FakeRelativeClock::default();
        let keyed = Keyed::with_clock(QUOTA, clock.clone());
        for remaining in [2, 1, 0] {
            let full_in = Duration::from_secs(u64::from(3 - remaining));
            assert_eq!(keyed.take("ada").unwrap(), Allowance { limit: 60, remaining, full_in });
        }
        let empty = keyed.take("ada").unwrap_err();
        assert_eq!(empty.retry_after, Duration::from_secs(1));
        assert_eq!(empty.allowance.full_in, Duration::from_secs(3));
        clock.advance(Duration::from_millis(999));
        assert!(keyed.take("ada").is_err());
        clock.advance(Duration::from_millis(1));
        assert_eq!(keyed.take("ada").unwrap().remaining, 0);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(keyed.take("ada").unwrap().remaining, 2, "never more than the bucket holds");
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let clock = FakeRelativeClock::default();
        let keyed = Keyed::with_clock(QUOTA, clock.clone());
        for key in 0..100_000_u32 {
            let _ = keyed.take(key);
        }
        let bound = MOST + usize::try_from(SHARED).unwrap();
        assert!(keyed.buckets.len() <= bound, "{}", keyed.buckets.len());
        clock.advance(Duration::from_secs(60));
        for _ in 0..SWEEP {
            let _ = keyed.take("ada");
        }
        assert!(keyed.buckets.len() < 10, "what is full again is forgotten");
        assert!(keyed.take("new").is_ok());
    }
}
