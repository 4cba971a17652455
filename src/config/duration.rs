//! Durations as people write them: `90d`, `1h 30m`, `0s`.
//!
//! Read by `humantime`, written by hand: humantime counts 90 days as "2months 29days 3h".

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// The text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a duration like 90d, 1h 30m or 10s")]
pub struct ParseDurationError;

/// Reads a duration.
pub(super) fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let parsed = humantime::parse_duration(text.trim()).map_err(|_| ParseDurationError)?;
    // The database counts microseconds in 63 bits; a thousand years is enough for anybody.
    if parsed > Duration::from_secs(1000 * 366 * 86_400) {
        return Err(ParseDurationError);
    }
    Ok(parsed)
}

/// Writes a duration exactly, in days from three days on.
#[must_use]
pub fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let days = if seconds >= 3 * 86_400 { seconds / 86_400 } else { 0 };
    let rest = seconds - days * 86_400;
    let parts = [
        (days, "d"),
        (rest / 3600, "h"),
        (rest / 60 % 60, "m"),
        (rest % 60, "s"),
        (u64::from(duration.subsec_millis()), "ms"),
        (u64::from(duration.subsec_micros() % 1000), "us"),
        (u64::from(duration.subsec_nanos() % 1000), "ns"),
    ];
    let text: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text.join(" ") }
}

pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*value))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(from)?).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_back() {
        for text in ["90d", "24h", "1h 30m", "0s", "5s", "250ms", "7d", "48h", "3d 5h", "1us"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
        assert_eq!(format(parse("2w").unwrap()), "14d");
        for bad in ["", "10", "soon", "-5s", "5 parsecs", "9999999999d", "1100years"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
