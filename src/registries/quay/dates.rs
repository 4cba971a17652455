//! Times as Quay writes them: "Mon, 30 Nov 2026 20:01:34 -0000" in its answers, `11/30/2026` in the
//! questions to its log. Pure.

use jiff::fmt::rfc2822;
use jiff::tz::Offset;

use crate::time::Timestamp;

/// Quay's "-0000" and the "GMT" of HTTP both mean UTC.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let zoned = rfc2822::parse(text).ok()?;
    Some(Timestamp::from_micros(zoned.timestamp().as_microsecond()))
}

/// The UTC day of an instant as the log's filter wants it.
pub(super) fn day(at: Timestamp) -> Option<String> {
    let at = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?;
    let date = Offset::UTC.to_datetime(at).date();
    Some(format!("{:02}/{:02}/{:04}", date.month(), date.day(), date.year()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_utc() {
        let expected: Timestamp = "2026-11-30T20:01:34Z".parse().unwrap();
        for text in ["Mon, 30 Nov 2026 20:01:34 -0000", "Mon, 30 Nov 2026 20:01:34 GMT"] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in ["", "yesterday", "2026-11-30T20:01:34Z", "Mon, 32 Nov 2026 20:01:34 -0000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_month_first() {
        let at: Timestamp = "2026-02-03T23:59:59Z".parse().unwrap();
        assert_eq!(day(at).as_deref(), Some("02/03/2026"));
    }
}
