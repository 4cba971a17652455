//! Query parameters: unknown ones are ignored, bad values are `400 VAL-004` and named.

use std::future::{Ready, ready};
use std::str::FromStr;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};

use super::headers::MAX_WAIT;
use crate::http::problem::{ApiError, Constraint, FieldError};
use crate::store::{Cursor, CursorError};
use crate::time::Timestamp;

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 100;
const DEFAULT_SIZE: u64 = 100;

/// The parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl FromRequest for Query {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::parse(request.query_string()))
    }
}

/// What is wrong with a query, so that a client is told all of it at once.
#[derive(Debug, Default)]
pub struct Faults {
    wrong: Vec<FieldError>,
    other: Option<ApiError>,
}

impl Faults {
    /// What was read; where it was wrong something in its place, which nobody will see.
    pub fn take<T: Default>(&mut self, read: Result<T, ApiError>) -> T {
        read.unwrap_or_else(|error| {
            match error {
                ApiError::Query(errors) => self.wrong.extend(errors),
                other => self.other = self.other.take().or(Some(other)),
            }
            T::default()
        })
    }

    /// Goes on only when nothing was wrong.
    ///
    /// # Errors
    /// Everything that was wrong.
    pub fn none(self) -> Result<(), ApiError> {
        match self {
            Self { other: Some(other), .. } => Err(other),
            Self { wrong, other: None } if wrong.is_empty() => Ok(()),
            Self { wrong, other: None } => Err(ApiError::Query(wrong)),
        }
    }
}

impl Query {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(text).map_err(|_| {
            let rule = Constraint::Format { format: "query" };
            ApiError::query(FieldError::new("query", rule, "must be name=value pairs"))
        })?;
        Ok(Self(pairs.into_inner()))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that may be given once. An empty one counts as none.
    ///
    /// # Errors
    /// When it is given twice.
    pub fn text<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, ApiError> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            let fault = FieldError::new(name, Constraint::Unique, "is given more than once");
            return Err(ApiError::query(fault));
        }
        Ok(first.filter(|text| !text.is_empty()))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name)? {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                Err(ApiError::query(FieldError::not_one_of(name, other, &["true", "false"])))
            }
        }
    }

    /// `limit`: 1 to 100, 50 when not given.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn limit(&self) -> Result<u32, ApiError> {
        let Some(text) = self.text("limit")? else { return Ok(DEFAULT_LIMIT) };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|n| digits && (1..=MAX_LIMIT).contains(n));
        number.ok_or_else(|| {
            let rule = if text.starts_with('-') || text.trim_start_matches('0').is_empty() {
                Constraint::Min { min_value: 1 }
            } else {
                Constraint::Max { max_value: i64::from(MAX_LIMIT) }
            };
            let message = format!("must be a whole number from 1 to {MAX_LIMIT}");
            ApiError::query(FieldError::new("limit", rule, message).value(text))
        })
    }

    /// `page`: from 1, which it is when not given.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn page(&self) -> Result<u64, ApiError> {
        let Some(text) = self.text("page")? else { return Ok(1) };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|n| digits && *n >= 1);
        number.ok_or_else(|| {
            let rule = Constraint::Min { min_value: 1 };
            let message = "must be a whole number from 1";
            ApiError::query(FieldError::new("page", rule, message).value(text))
        })
    }

    /// `size` of a page, 100 when not given. `-1` is all, hence none.
    ///
    /// # Errors
    /// When it is neither `-1` nor a whole number.
    pub fn size(&self) -> Result<Option<u64>, ApiError> {
        match self.text("size")? {
            None => Ok(Some(DEFAULT_SIZE)),
            Some("-1") => Ok(None),
            Some(text) => {
                let digits = text.bytes().all(|b| b.is_ascii_digit());
                let number = text.parse().ok().filter(|_| digits);
                number.map(Some).ok_or_else(|| {
                    let rule = Constraint::Min { min_value: -1 };
                    let message = "must be a whole number, or -1 for all";
                    ApiError::query(FieldError::new("size", rule, message).value(text))
                })
            }
        }
    }

    /// `wait`: a duration like `20s`, or whole seconds; at most 60 seconds.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn wait(&self) -> Result<Option<Duration>, ApiError> {
        let Some(text) = self.text("wait")? else { return Ok(None) };
        let seconds = text.parse().ok().map(Duration::from_secs);
        let wait = seconds.or_else(|| humantime::parse_duration(text).ok());
        let wait = wait.map(|wait| wait.min(Duration::from_secs(MAX_WAIT)));
        wait.map(Some).ok_or_else(|| {
            let rule = Constraint::Format { format: "duration" };
            let message = "must be a duration like 20s";
            ApiError::query(FieldError::new("wait", rule, message).value(text))
        })
    }

    /// `cursor`: where the last page ended.
    ///
    /// # Errors
    /// When we never gave that one out.
    pub fn cursor(&self) -> Result<Option<Cursor>, ApiError> {
        let Some(text) = self.text("cursor")? else { return Ok(None) };
        text.parse().map(Some).map_err(|error: CursorError| {
            let rule = Constraint::Format { format: "cursor" };
            let message = error.to_string();
            ApiError::query(FieldError::new("cursor", rule, message).value(text))
        })
    }

    /// A time.
    ///
    /// # Errors
    /// When it is not RFC 3339.
    pub fn time(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse::<Timestamp>() {
            Ok(time) => Ok(Some(time)),
            Err(error) => {
                let rule = Constraint::Format { format: "date-time" };
                Err(ApiError::query(FieldError::new(name, rule, error.to_string()).value(text)))
            }
        }
    }

    /// A value of a type that knows its form, as an identifier does.
    ///
    /// # Errors
    /// When it has another form.
    pub fn parsed<T>(&self, name: &str) -> Result<Option<T>, ApiError>
    where
        T: FromStr<Err: std::fmt::Display>,
    {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error: T::Err| {
            let rule = Constraint::Format { format: "see message" };
            ApiError::query(FieldError::new(name, rule, error.to_string()).value(text))
        })
    }

    /// Words of a known list, given with commas, several times, or both. None given means all.
    ///
    /// # Errors
    /// When one is not on the list.
    pub fn words<T>(&self, name: &str) -> Result<Vec<T>, ApiError>
    where
        T: FromStr + strum::VariantArray + Copy + Into<&'static str>,
    {
        let given = self.all(name).flat_map(|value| value.split(',')).map(str::trim);
        given
            .filter(|word| !word.is_empty())
            .map(|word| {
                word.parse().map_err(|_| {
                    let allowed: Vec<&str> = T::VARIANTS.iter().map(|v| (*v).into()).collect();
                    ApiError::query(FieldError::not_one_of(name, word, &allowed))
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pull_secret::RotationStatus;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    fn is_bad<T: std::fmt::Debug>(result: Result<T, ApiError>, field: &str) -> bool {
        matches!(result, Err(ApiError::Query(errors)) if errors[0].field == field)
    }

    #[test]
    fn limits() {
        assert_eq!(query("").limit().unwrap(), 50);
        assert_eq!(query("limit=1&other=x").limit().unwrap(), 1);
        assert_eq!(query("limit=100").limit().unwrap(), 100);
        for bad in ["0", "101", "-1", "x", "1.0", "%2B1", "99999999999999999999"] {
            assert!(is_bad(query(&format!("limit={bad}")).limit(), "limit"), "{bad}");
        }
        assert!(is_bad(query("limit=1&limit=2").limit(), "limit"));
    }

    #[test]
    fn flags_times_and_words() {
        assert_eq!(query("include_metadata=true").flag("include_metadata").unwrap(), Some(true));
        assert!(is_bad(query("include_metadata=1").flag("include_metadata"), "include_metadata"));
        assert!(query("since=2026-11-30T00:00:00Z").time("since").unwrap().is_some());
        assert!(is_bad(query("since=yesterday").time("since"), "since"));
        let words = query("status=failed,pending&status=cancelled");
        let expected =
            vec![RotationStatus::Failed, RotationStatus::Pending, RotationStatus::Cancelled];
        assert_eq!(words.words::<RotationStatus>("status").unwrap(), expected);
        assert!(is_bad(query("status=done").words::<RotationStatus>("status"), "status"));
    }

    #[test]
    fn pages_and_sizes() {
        assert_eq!((query("").page().unwrap(), query("").size().unwrap()), (1, Some(100)));
        assert_eq!(query("page=7").page().unwrap(), 7);
        assert_eq!(query("size=-1").size().unwrap(), None);
        assert_eq!(query("size=0").size().unwrap(), Some(0));
        for bad in ["0", "-1", "x", "1.5", "%2B1", "99999999999999999999"] {
            assert!(is_bad(query(&format!("page={bad}")).page(), "page"), "{bad}");
        }
        for bad in ["-2", "x", "1.5", "%2B1", "99999999999999999999"] {
            assert!(is_bad(query(&format!("size={bad}")).size(), "size"), "{bad}");
        }
    }

    #[test]
    fn waits() {
        for (text, seconds) in [("20s", 20), ("20", 20), ("0s", 0), ("1h", 60), ("1m", 60)] {
            let wait = query(&format!("wait={text}")).wait().unwrap();
            assert_eq!(wait, Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(query("").wait().unwrap(), None);
        for bad in ["soon", "-1", "20x"] {
            assert!(is_bad(query(&format!("wait={bad}")).wait(), "wait"), "{bad}");
        }
    }

    #[test]
    fn cursors() {
        assert!(query("").cursor().unwrap().is_none());
        for bad in ["x", "AAAA", "!!", &"A".repeat(5000)] {
            assert!(is_bad(query(&format!("cursor={bad}")).cursor(), "cursor"), "{bad}");
        }
    }
}
