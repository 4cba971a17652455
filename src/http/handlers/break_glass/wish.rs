//! What somebody may ask of a credential. Pure: time and rules come in.
//!
//! The sentences are known to clients; they are part of the contract.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::http::problem::{ApiError, Constraint, FieldError};
use crate::time::{ParseTimestampError, Timestamp};

const LONGEST_NAME: usize = 35;
const SHORTEST_LIFE: Duration = Duration::from_secs(600);
/// Clocks differ, and a request takes its time.
const TOLERANCE: Duration = Duration::from_secs(5);

/// The body of a POST. Fields that only the server sets, and unknown ones, are not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RequestBody {
    username: Option<String>,
    expiration_timestamp: Option<String>,
    certificate_signing_request: Option<String>,
    /// For the audit, and for whoever has to approve it.
    pub(super) reason: Option<String>,
}

/// How long a credential may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Where the request does not say.
    pub default: Duration,
    /// The longest.
    pub longest: Duration,
}

/// What is asked for, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub username: Option<String>,
    pub expires_at: Timestamp,
    pub signing_request: Option<String>,
}

impl RequestBody {
    /// Checks a request that comes now.
    pub(super) fn check(self, now: Timestamp, lifetimes: Lifetimes) -> Result<Wish, ApiError> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(Wish {
            username: given(self.username).map(username).transpose()?,
            expires_at: expiration(self.expiration_timestamp.as_deref(), now, lifetimes)?,
            signing_request: given(self.certificate_signing_request),
        })
    }
}

/// The length comes first: what is shown again is then short.
fn username(name: String) -> Result<String, ApiError> {
    if name.chars().count() > LONGEST_NAME {
        return refused(format!("The username must have at most {LONGEST_NAME} characters"));
    }
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.') {
        return Ok(name);
    }
    refused(format!("The username '{name}' must respect the regexp '^[a-zA-Z0-9-.]*$'"))
}

/// Certificates know whole seconds only.
fn expiration(
    asked: Option<&str>,
    now: Timestamp,
    lifetimes: Lifetimes,
) -> Result<Timestamp, ApiError> {
    let Some(text) = asked else { return Ok(now.plus(lifetimes.default).whole_second()) };
    let at: Timestamp = text.parse().map_err(|error: ParseTimestampError| {
        let rule = Constraint::Format { format: "date-time" };
        ApiError::field(FieldError::new("expiration_timestamp", rule, error.to_string()))
    })?;
    if at.plus(TOLERANCE) < now.plus(SHORTEST_LIFE) {
        let least = in_words(SHORTEST_LIFE);
        return refused(format!("Expiration needs to be at least {least} from now"));
    }
    if at > now.plus(lifetimes.longest).plus(TOLERANCE) {
        let most = in_words(lifetimes.longest);
        return refused(format!("Expiration needs to be at most {most} from now"));
    }
    Ok(at.whole_second())
}

fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        3600 => "1 hour".to_owned(),
        seconds if seconds % 3600 == 0 => format!("{} hours", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    }
}

fn refused<T>(reason: String) -> Result<T, ApiError> {
    Err(ApiError::Refused { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const LIFETIMES: Lifetimes = Lifetimes {
        default: Duration::from_secs(24 * 3600),
        longest: Duration::from_secs(24 * 3600),
    };

    fn check(body: Value) -> Result<Wish, ApiError> {
        let now = "2026-11-30T12:00:00.5Z".parse().unwrap();
        serde_json::from_value::<RequestBody>(body).unwrap().check(now, LIFETIMES)
    }

    fn reason(body: Value) -> String {
        check(body).unwrap_err().to_string()
    }

    #[test]
    fn nothing_has_to_be_given() {
        let expected = Wish {
            username: None,
            expires_at: "2026-12-01T12:00:00Z".parse().unwrap(),
            signing_request: None,
        };
        for body in [
            json!({}),
            json!({"username": "", "certificate_signing_request": null}),
            json!({"id": 3, "status": [], "kubeconfig": {}, "colour": "blue"}),
        ] {
            assert_eq!(check(body.clone()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn usernames() {
        for good in ["a", "Ada-1.x", "-", "..", &"x".repeat(35)] {
            let wish = check(json!({"username": good})).unwrap();
            assert_eq!(wish.username.as_deref(), Some(good));
        }
        for bad in ["a b", "a_b", "é", "a\n", "'", "a/b", "a:b"] {
            let told = format!("The username '{bad}' must respect the regexp '^[a-zA-Z0-9-.]*$'");
            assert_eq!(reason(json!({"username": bad})), told);
        }
        let long = "_".repeat(36);
        assert_eq!(
            reason(json!({"username": long})),
            "The username must have at most 35 characters"
        );
    }

    #[test]
    fn expirations() {
        let soon = "Expiration needs to be at least 10 minutes from now";
        let late = "Expiration needs to be at most 24 hours from now";
        for (text, told) in [
            ("2026-11-30T12:10:00Z", None),
            ("2026-11-30T12:09:55.5Z", None),
            ("2026-11-30T12:09:55.4Z", Some(soon)),
            ("2020-01-01T00:00:00Z", Some(soon)),
            ("2026-12-01T12:00:05.5Z", None),
            ("2026-12-01T12:00:05.6Z", Some(late)),
            ("9999-01-01T00:00:00Z", Some(late)),
            (
                "tomorrow",
                Some("expiration_timestamp must be an RFC 3339 time like 2026-11-30T20:01:34Z"),
            ),
        ] {
            let found = check(json!({"expiration_timestamp": text}));
            let found = found.err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), told, "{text}");
        }
        let zone = check(json!({"expiration_timestamp": "2026-11-30T14:00:00.9+01:00"}));
        assert_eq!(zone.unwrap().expires_at, "2026-11-30T13:00:00Z".parse().unwrap());
    }
}
