//! Does the wall clock run as the monotonic one does?
//!
//! A jump makes everything that waits for a time seem to have waited. When the two drift apart by more than five
//! minutes between two looks, the wall clock is not trusted: what time alone would end or delete stays. It is
//! trusted again at once when it comes back to where it was, and otherwise after it has kept in step for a while,
//! in which somebody can notice. A restart trusts it, too: that is how a person says that the time is right.

use std::time::{Duration, Instant};

use crate::time::Timestamp;

/// Less is the work of whoever keeps the clock right.
const TOLERANCE: Duration = Duration::from_secs(300);

/// What was seen of both clocks.
#[derive(Debug)]
pub struct Clocks {
    trust_after: Duration,
    last: Option<(Timestamp, Instant)>,
    /// Since when it is not trusted.
    doubt: Option<Doubt>,
}

#[derive(Debug)]
struct Doubt {
    /// In microseconds, how far the wall clock is from where it would be without its jumps.
    off: i64,
    in_step_since: Instant,
}

impl Clocks {
    /// Clocks that nobody has looked at. After a jump the wall clock has to keep in step for `trust_after`.
    #[must_use]
    pub const fn new(trust_after: Duration) -> Self {
        Self { trust_after, last: None, doubt: None }
    }

    /// Looks at both.
    pub fn look(&mut self, wall: Timestamp, now: Instant) {
        let Some((last_wall, last)) = self.last.replace((wall, now)) else { return };
        let passed = micros(now.saturating_duration_since(last));
        let drift = wall.as_micros().saturating_sub(last_wall.as_micros()).saturating_sub(passed);
        let limit = micros(TOLERANCE);
        if drift.saturating_abs() > limit {
            let off = self.doubt.as_ref().map_or(0, |doubt| doubt.off).saturating_add(drift);
            self.doubt = Some(Doubt { off, in_step_since: now });
        } else if let Some(doubt) = &mut self.doubt {
            doubt.off = doubt.off.saturating_add(drift);
        }
        let over = |doubt: &Doubt| {
            doubt.off.saturating_abs() <= limit
                || now.saturating_duration_since(doubt.in_step_since) >= self.trust_after
        };
        if self.doubt.as_ref().is_some_and(over) {
            self.doubt = None;
        }
    }

    /// Whether the wall clock may be believed.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.doubt.is_none()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    struct Looks {
        clocks: Clocks,
        wall: Timestamp,
        now: Instant,
    }

    impl Looks {
        fn new() -> Self {
            let wall = Timestamp::from_micros(1_800_000_000_000_000);
            let mut clocks = Clocks::new(HOUR);
            let now = Instant::now();
            clocks.look(wall, now);
            Self { clocks, wall, now }
        }

        /// The monotonic clock goes on, the wall clock does as well and jumps besides.
        fn pass(&mut self, time: Duration, ahead: Duration, back: Duration) -> bool {
            self.now += time;
            self.wall = self.wall.plus(time).plus(ahead).minus(back);
            self.clocks.look(self.wall, self.now);
            self.clocks.is_trusted()
        }
    }

    #[test]
    fn clocks_that_run_alike_are_trusted() {
        let mut looks = Looks::new();
        for _ in 0..1000 {
            // Corrected a little at a time.
            assert!(looks.pass(SECOND, SECOND / 2, Duration::ZERO));
        }
        assert!(looks.pass(2 * HOUR, TOLERANCE, Duration::ZERO), "a long pause is no jump");
    }

    #[test]
    fn a_jump_is_doubted_until_the_clock_has_kept_in_step() {
        for (ahead, back) in [(HOUR, Duration::ZERO), (Duration::ZERO, HOUR)] {
            let mut looks = Looks::new();
            assert!(!looks.pass(SECOND, ahead, back));
            assert!(!looks.pass(HOUR - SECOND, Duration::ZERO, Duration::ZERO));
            assert!(looks.pass(SECOND, Duration::ZERO, Duration::ZERO));
        }
    }

    #[test]
    fn a_second_jump_begins_the_wait_anew_and_the_way_back_ends_it() {
        let mut looks = Looks::new();
        assert!(!looks.pass(SECOND, 2 * HOUR, Duration::ZERO));
        assert!(!looks.pass(HOUR - SECOND, Duration::ZERO, HOUR));
        assert!(!looks.pass(HOUR - SECOND, Duration::ZERO, Duration::ZERO));
        assert!(looks.pass(SECOND / 2, Duration::ZERO, HOUR), "where it was");
    }
}
