//! A wall clock that went back: what happened in a future that has not come yet must not be waited for.
//!
//! Knows times and their order, not what they are of. Nothing is decided here: only the dates of what was decided
//! are drawn in.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::time::Timestamp;

/// The clocks of replicas may differ by so much; less is not touched.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// No next attempt is ever put off for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(48 * 3600);

/// Whether something happened later than now, by more than clocks may differ.
#[must_use]
pub fn is_ahead(happened: &[&mut Timestamp], now: Timestamp) -> bool {
    happened.iter().any(|time| **time > now.plus(TOLERANCE))
}

/// Whether the next attempt is put off for longer than any attempt ever is.
#[must_use]
pub fn is_put_off(next_attempt_at: Timestamp, now: Timestamp) -> bool {
    next_attempt_at > now.plus(LONGEST_PAUSE)
}

/// Dates everything that has happened now at the latest, in the order in which it happened.
pub fn draw_in(happened: Vec<&mut Timestamp>, now: Timestamp) {
    let future: BTreeSet<Timestamp> =
        happened.iter().map(|time| **time).filter(|time| *time > now).collect();
    // What is in the past stays before all of it, so that nothing that was seen earlier proves more.
    let place = |time: Timestamp| {
        let index = future.iter().position(|known| *known == time).unwrap_or(0);
        now.plus(Duration::from_micros(u64::try_from(index).unwrap_or(0) + 1))
    };
    for time in happened.into_iter().filter(|time| **time > now) {
        *time = place(*time);
    }
}
