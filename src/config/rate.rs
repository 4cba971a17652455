//! `"60/1m"` and `off`: how often something may happen.
//!
//! Values only; whoever limits brings its own bucket.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::duration;

/// A number per time, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// No limit.
    Off,
    /// At most `count` within `per`.
    Limited {
        /// How many, at least one.
        count: u32,
        /// In which time, more than zero.
        per: Duration,
    },
}

/// The text is not a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a rate like \"60/1m\" (a number, a slash, a duration) or \"off\"")]
pub struct ParseRateError;

impl FromStr for Rate {
    type Err = ParseRateError;
    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        if text.trim() == "off" {
            return Ok(Self::Off);
        }
        let (count, per) = text.split_once('/').ok_or(ParseRateError)?;
        let count = count.trim().parse().map_err(|_| ParseRateError)?;
        let per = per.trim();
        // "60/m" is what many people write for "60/1m".
        let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
            duration::parse(per)
        } else {
            duration::parse(&format!("1{per}"))
        };
        let per = per.map_err(|_| ParseRateError)?;
        if count == 0 || per.is_zero() {
            return Err(ParseRateError);
        }
        Ok(Self::Limited { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Limited { count, per } => write!(f, "{count}/{}", duration::format(*per)),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// How many may come at once above a rate, or no extra.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burst {
    /// Nothing above the rate's own count.
    Off,
    /// So many at once.
    Of(u32),
}

impl Serialize for Burst {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Of(count) => serializer.serialize_u32(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Burst {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u32),
            Text(String),
        }
        let rule = || de::Error::custom("must be a number of at least 1, or \"off\"");
        match Form::deserialize(deserializer).map_err(|_| rule())? {
            Form::Number(count) if count > 0 => Ok(Self::Of(count)),
            Form::Text(text) if text == "off" => Ok(Self::Off),
            Form::Number(_) | Form::Text(_) => Err(rule()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_back() {
        for (text, shown) in [
            ("60/1m", "60/1m"),
            (" 6000 / 1m ", "6000/1m"),
            ("5/s", "5/1s"),
            ("600/1h", "600/1h"),
            ("off", "off"),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), shown);
        }
        for bad in ["", "60", "60/", "/1m", "0/1m", "60/0s", "-1/1m", "on", "60/1m/2"] {
            assert_eq!(bad.parse::<Rate>(), Err(ParseRateError), "{bad}");
        }
    }
}
