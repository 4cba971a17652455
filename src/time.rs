//! Time as the product stores it: microseconds since the Unix epoch, UTC.
//!
//! The only module that reads the wall clock. The machines in `state` get their time as a value.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant, microseconds since 1970-01-01T00:00:00Z. Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The epoch.
    pub const EPOCH: Self = Self(0);

    /// From microseconds since the epoch, the database's form.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time that passed since `earlier`; zero when the clock went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This instant moved later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// This instant moved earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// This instant without the part of a second.
    #[must_use]
    pub const fn whole_second(self) -> Self {
        Self(self.0 - self.0.rem_euclid(1_000_000))
    }

    /// RFC 3339 in whole seconds, as the OCM surfaces want it.
    #[must_use]
    pub fn to_seconds_text(self) -> String {
        format!("{:.0}", self.whole_second().to_jiff())
    }

    fn to_jiff(self) -> jiff::Timestamp {
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_microsecond(self.0).unwrap_or(end)
    }

    /// RFC 3339 with exactly three decimals, as logs and problems want it.
    #[must_use]
    pub fn to_millis_text(self) -> String {
        format!("{:.3}", self.to_jiff())
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// RFC 3339, UTC, with as many decimals as the value has.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_jiff().fmt(f)
    }
}

/// The text was not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be an RFC 3339 time like 2026-11-30T20:01:34Z")]
pub struct ParseTimestampError;

impl FromStr for Timestamp {
    type Err = ParseTimestampError;
    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| ParseTimestampError)?;
        Ok(Self(parsed.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Where the wall time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Moves the wall clock of this process by what stands in a file, as a test wants it.
#[derive(Debug)]
struct Shift {
    file: PathBuf,
    /// When the file was read last, and what it said.
    read: Mutex<(Option<Instant>, i64)>,
}

/// Nobody but a test sets it, and only once; then a look at the clock costs one more comparison.
static SHIFT: OnceLock<Shift> = OnceLock::new();

/// The file is read again at most so often.
const READ_AGAIN: Duration = Duration::from_millis(20);

/// From now on the wall clock of this process is off by the seconds that stand in this file, which may change
/// while it runs. For tests alone.
pub fn shift_by_file(file: PathBuf) {
    let _ = SHIFT.set(Shift { file, read: Mutex::new((None, 0)) });
}

impl Shift {
    fn micros(&self) -> i64 {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.0.is_none_or(|at| at.elapsed() >= READ_AGAIN) {
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            // Somebody may be writing it at this very moment.
            if let Ok(seconds) = text.trim().parse::<i64>() {
                read.1 = seconds.saturating_mul(1_000_000);
            }
            read.0 = Some(Instant::now());
        }
        read.1
    }
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        let now = jiff::Timestamp::now().as_microsecond();
        Timestamp(now.saturating_add(SHIFT.get().map_or(0, Shift::micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let at: Timestamp = "2026-11-30T20:01:34.5Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-11-30T20:01:34.5Z");
        assert_eq!(at.to_millis_text(), "2026-11-30T20:01:34.500Z");
        let late: Timestamp = "2026-11-30T20:01:34.999999Z".parse().unwrap();
        assert_eq!(late.to_seconds_text(), "2026-11-30T20:01:34Z");
        assert_eq!(Timestamp::from_micros(-1).to_seconds_text(), "1969-12-31T23:59:59Z");
        assert_eq!("2026-11-30T21:01:34.5+01:00".parse(), Ok(at));
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::EPOCH.since(end), Duration::ZERO);
        assert!(!end.to_string().is_empty());
        assert!(!Timestamp::from_micros(i64::MIN).to_string().is_empty());
    }
}
