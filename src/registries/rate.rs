//! How often a registry may be called, as the configuration writes it: `"60/1m"` or `"off"`.
//!
//! Knows nothing of lanes or registries.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A limit of calls over time: in no period, whenever it begins, do more than `count` calls begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// No limit.
    #[default]
    Off,
    /// So many calls in each period.
    Per {
        /// How many.
        count: NonZeroU32,
        /// In which time.
        period: Duration,
    },
}

/// Why a text is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No slash in it, and not `off`.
    #[error("must be \"off\" or a count and a time like \"60/1m\"")]
    Shape,
    /// What stands before the slash.
    #[error("the count before the slash must be a whole number from 1 to 4294967295")]
    Count,
    /// What stands behind the slash.
    #[error("the time behind the slash must be like 1s, 1m or 1h, from 1ms to 24h")]
    Period,
    /// Faster than anything that would have to be limited.
    #[error("more than 1000000 calls a second is no limit; write \"off\"")]
    TooFast,
}

impl Rate {
    /// The time in which one call comes free again; none when there is no limit.
    #[must_use]
    pub fn interval(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Per { count, period } => Some(period / count.get()),
        }
    }
}

impl Rate {
    /// The part of one of so many. What is less than one call in the period is one in a longer period.
    pub(super) fn shared(self, among: NonZeroU32) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::Per { count, period } => match NonZeroU32::new(count.get() / among.get()) {
                Some(count) => Self::Per { count, period },
                None => self.slowed(among.get()),
            },
        }
    }

    /// One call at a time, so many times slower.
    pub(super) fn slowed(self, factor: u32) -> Self {
        match self.interval() {
            None => Self::Off,
            Some(interval) => {
                Self::Per { count: NonZeroU32::MIN, period: interval.saturating_mul(factor) }
            }
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let (count, period) = text.split_once('/').ok_or(RateError::Shape)?;
        let count = count.parse().map_err(|_| RateError::Count)?;
        let period = humantime::parse_duration(period).map_err(|_| RateError::Period)?;
        if !(Duration::from_millis(1)..=Duration::from_hours(24)).contains(&period) {
            return Err(RateError::Period);
        }
        let rate = Self::Per { count, period };
        if rate.interval().is_some_and(|interval| interval < Duration::from_micros(1)) {
            return Err(RateError::TooFast);
        }
        Ok(rate)
    }
}

impl TryFrom<String> for Rate {
    type Error = RateError;
    fn try_from(text: String) -> Result<Self, RateError> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Per { count, period } => {
                write!(f, "{count}/{}", humantime::format_duration(*period))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["off", "60/1m", "1/500ms", "5/1h"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
            let json = serde_json::to_string(&rate).unwrap();
            assert_eq!(serde_json::from_str::<Rate>(&json).unwrap(), rate);
        }
        assert_eq!("60/1m".parse::<Rate>().unwrap().interval(), Some(Duration::from_secs(1)));
        assert_eq!(Rate::Off.interval(), None);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, error) in [
            ("", RateError::Shape),
            ("60", RateError::Shape),
            ("Off", RateError::Shape),
            ("0/1m", RateError::Count),
            ("-1/1m", RateError::Count),
            ("x/1m", RateError::Count),
            ("60/", RateError::Period),
            ("60/1", RateError::Period),
            ("60/0s", RateError::Period),
            ("60/2d", RateError::Period),
            ("2000000/1s", RateError::TooFast),
        ] {
            assert_eq!(text.parse::<Rate>(), Err(error), "{text:?}");
        }
        let error = serde_json::from_str::<Rate>("\"60/x\"").unwrap_err();
        assert!(error.to_string().contains("behind the slash"), "{error}");
    }
}
