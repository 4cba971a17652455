//! Maintenance windows: when a scheduled rotation may begin. UTC, so that no hour is missing or twice.
//!
//! Pure: asked about a time, never about now. Must not know records, rotations or the configuration.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// Longer is no window any more.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const SHORTEST: Duration = Duration::from_secs(60);
/// A pattern that did not match in so many days never does; leap days come within eight years.
const HORIZON_DAYS: u32 = 9 * 366;
const MINUTE: Duration = Duration::from_secs(60);

/// A window that opens at the times of a cron pattern (minute, hour, day, month, weekday) and stays open.
#[derive(Debug, Clone)]
pub struct Window {
    text: String,
    cron: Cron,
    length: Duration,
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.length == other.length
    }
}

impl Eq for Window {}

/// Why a window is none. The texts never show the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not a pattern of five fields.
    #[error("must be a cron pattern of five fields in UTC, like `0 2 * * SUN`")]
    Cron,
    /// No day has it.
    #[error("must be a cron pattern that some day matches")]
    Never,
    /// Too short or too long.
    #[error("must be a duration from 1m to 7d")]
    Length,
}

impl Window {
    /// A window from its pattern and its length.
    ///
    /// # Errors
    /// [`WindowError`] says which of the two is wrong.
    pub fn parse(cron: &str, length: Duration) -> Result<Self, WindowError> {
        let text = cron.split_whitespace().collect::<Vec<_>>().join(" ");
        // Five fields, none of which is a nickname like `@daily`.
        if text.len() > 100 || text.split(' ').count() != 5 {
            return Err(WindowError::Cron);
        }
        if !(SHORTEST..=LONGEST).contains(&length) {
            return Err(WindowError::Length);
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let cron = parser.build().parse(&text).map_err(|_| WindowError::Cron)?;
        let window = Self { text, cron, length };
        window.opens_at(Timestamp::EPOCH).map(|_| window.clone()).ok_or(WindowError::Never)
    }

    /// The pattern.
    #[must_use]
    pub fn cron(&self) -> &str {
        &self.text
    }

    /// How long it stays open.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// When the window that is open at this time closes, overlapping ones taken together as far as the next
    /// look needs it; `None` while it is closed.
    #[must_use]
    pub fn closes_at(&self, at: Timestamp) -> Option<Timestamp> {
        // The first start that is late enough to be open still.
        let first = self.start_from(at.minus(self.length).plus(Duration::from_micros(1)))?;
        if first > at {
            return None;
        }
        let mut last = first;
        while let Some(next) = self.start_from(last.plus(MINUTE)).filter(|next| *next <= at) {
            last = next;
        }
        Some(last.plus(self.length))
    }

    /// The first time at or after this at which it is open.
    #[must_use]
    pub fn opens_at(&self, at: Timestamp) -> Option<Timestamp> {
        if self.closes_at(at).is_some() {
            return Some(at);
        }
        self.start_from(at)
    }

    /// The first start at or after this.
    fn start_from(&self, at: Timestamp) -> Option<Timestamp> {
        let from = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?;
        let mut date = from.to_zoned(TimeZone::UTC).date();
        for _ in 0..HORIZON_DAYS {
            if self.has_day(date)
                && let Some(start) = self.starts_on(date).find(|start| *start >= at)
            {
                return Some(start);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let (month, day) = (u32::from(date.month().unsigned_abs()), date.day().unsigned_abs());
        let pattern = &self.cron.pattern;
        pattern.month_match(month).unwrap_or(false)
            && pattern.day_match(i32::from(date.year()), month, u32::from(day)).unwrap_or(false)
    }

    fn starts_on(&self, date: Date) -> impl Iterator<Item = Timestamp> {
        let pattern = &self.cron.pattern;
        let has = |hour: &u32| pattern.hour_match(*hour).unwrap_or(false);
        let midnight = date.to_zoned(TimeZone::UTC).ok();
        let midnight = midnight.map(|zoned| zoned.timestamp().as_microsecond());
        (0..24).filter(has).flat_map(move |hour| {
            let minutes = (0..60).filter(|minute| pattern.minute_match(*minute).unwrap_or(false));
            minutes.filter_map(move |minute| {
                let into_day = i64::from(hour * 60 + minute) * 60_000_000;
                Some(Timestamp::from_micros(midnight? + into_day))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_opens_and_closes() {
        let sunday = Window::parse("30 2  * * SUN", 3 * HOUR).unwrap();
        assert_eq!((sunday.cron(), sunday.length()), ("30 2 * * SUN", 3 * HOUR));
        // 2026-11-29 is a Sunday.
        let (opens, closes) = (at("2026-11-29T02:30:00Z"), at("2026-11-29T05:30:00Z"));
        assert_eq!(sunday.closes_at(at("2026-11-29T02:29:59.999999Z")), None);
        assert_eq!(sunday.closes_at(opens), Some(closes));
        assert_eq!(sunday.closes_at(at("2026-11-29T05:29:59.999999Z")), Some(closes));
        assert_eq!(sunday.closes_at(closes), None);
        assert_eq!(sunday.opens_at(at("2026-11-25T12:00:00Z")), Some(opens));
        assert_eq!(sunday.opens_at(at("2026-11-29T03:00:00Z")), Some(at("2026-11-29T03:00:00Z")));
        assert_eq!(sunday.opens_at(closes), Some(at("2026-12-06T02:30:00Z")));
    }

    #[test]
    fn windows_reach_over_midnight_and_into_each_other() {
        let late = Window::parse("0 23 * * *", 2 * HOUR).unwrap();
        let one = at("2026-12-01T01:00:00Z");
        assert_eq!(late.closes_at(at("2026-12-01T00:30:00Z")), Some(one));
        let often = Window::parse("*/30 * * * *", HOUR).unwrap();
        assert_eq!(often.closes_at(at("2026-12-01T00:40:00Z")), Some(at("2026-12-01T01:30:00Z")));
        let leap = Window::parse("0 0 29 2 *", HOUR).unwrap();
        assert_eq!(leap.opens_at(at("2026-12-01T00:00:00Z")), Some(at("2028-02-29T00:00:00Z")));
    }

    #[test]
    fn what_is_no_window_is_said_so() {
        for cron in ["", "@daily", "* * * *", "0 0 0 * * *", "61 * * * *", "0 2 * * NEVER", "x"] {
            assert_eq!(Window::parse(cron, HOUR), Err(WindowError::Cron), "{cron}");
        }
        assert_eq!(Window::parse("0 2 30 2 *", HOUR), Err(WindowError::Never));
        for seconds in [0, 59, 7 * 86_400 + 1] {
            let length = Duration::from_secs(seconds);
            assert_eq!(Window::parse("0 2 * * *", length), Err(WindowError::Length));
        }
    }
}
