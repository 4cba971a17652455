//! Request headers with a meaning: `Prefer`, `If-None-Match`, `Authorization: Basic`, `X-Reason`,
//! `Idempotency-Key`.

use std::future::{Ready, ready};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpRequest, web};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::http::auth::credentials;
use crate::http::edge::Edge;
use crate::http::problem::{ApiError, Constraint, FieldError, Scheme};

/// No request waits longer.
pub(super) const MAX_WAIT: u64 = 60;
const MAX_REASON: usize = 512;
const MAX_KEY: usize = 255;

/// How long the client wants to wait for the work that it starts.
///
/// `respond-async` alone is no wait; with `wait` it waits so long and then does without (RFC 7240).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefer {
    /// At most so long.
    pub wait: Duration,
}

impl FromRequest for Prefer {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let edge = request.app_data::<web::Data<Edge>>();
        ready(match edge {
            Some(edge) => Ok(Self { wait: wait(request.headers()).unwrap_or(edge.request_wait) }),
            None => Err(ApiError::internal("the application has no edge")),
        })
    }
}

/// The same for calls that wait by rules of their own: only what the client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferred {
    /// At most so long; none where the client does not care.
    pub wait: Option<Duration>,
}

impl FromRequest for Preferred {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self { wait: wait(request.headers()) }))
    }
}

/// A preference that is not understood is ignored (RFC 7240); the first of a kind counts.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").filter_map(|value| value.to_str().ok());
    let mut asynchronous = false;
    for preference in values.flat_map(|value| value.split(',')) {
        let main = preference.split(';').next().unwrap_or_default();
        let (name, value) = main.split_once('=').unwrap_or((main, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("respond-async") {
            asynchronous = true;
        }
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        if name.eq_ignore_ascii_case("wait") && digits {
            let seconds = value.parse().unwrap_or(MAX_WAIT).min(MAX_WAIT);
            return Some(Duration::from_secs(seconds));
        }
    }
    asynchronous.then_some(Duration::ZERO)
}

/// An entity tag; the text is without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ETag(pub String);

impl ETag {
    /// The tag of a pull secret as one kind of caller sees it. Never made from secret bytes.
    #[must_use]
    pub fn of_pull_secret(row_version: u64, render_revision: u64, view: &str) -> Self {
        Self(format!("{row_version}-{render_revision}-{view}"))
    }

    /// As a header has it.
    #[must_use]
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// The versions that a client has already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IfNoneMatch {
    any: bool,
    tags: Vec<String>,
}

impl IfNoneMatch {
    /// Whether the client has this version. Compares weakly, as RFC 9110 has it for this header.
    #[must_use]
    pub fn has(&self, tag: &ETag) -> bool {
        self.any || self.tags.contains(&tag.0)
    }
}

impl FromRequest for IfNoneMatch {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let values = request.headers().get_all(header::IF_NONE_MATCH);
        let mut found = Self { any: false, tags: Vec::new() };
        for value in values.filter_map(|value| value.to_str().ok()) {
            found.any |= value.trim() == "*";
            // Quotes part tags from what is between them; a tag itself has none.
            found.tags.extend(value.split('"').skip(1).step_by(2).map(ToOwned::to_owned));
        }
        ready(Ok(found))
    }
}

/// A cluster's own pull secret, presented as `Authorization: Basic`.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    /// The account's login name.
    pub username: String,
    /// Its secret.
    pub password: SecretString,
}

/// With or without padding: clients differ, and both say the same.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl BasicAuth {
    fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let bad = || ApiError::BadCredentials(Scheme::Basic);
        let encoded = credentials(headers, Scheme::Basic, "basic")?;
        let bytes = Zeroizing::new(BASE64.decode(encoded.expose_secret()).map_err(|_| bad())?);
        let text = std::str::from_utf8(&bytes).map_err(|_| bad())?;
        let (username, password) = text.split_once(':').ok_or_else(bad)?;
        if username.is_empty() || password.is_empty() {
            return Err(bad());
        }
        Ok(Self { username: username.to_owned(), password: SecretString::from(password) })
    }
}

impl FromRequest for BasicAuth {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::read(request.headers()))
    }
}

/// `X-Reason`: why the caller does it, for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub Option<String>);

impl FromRequest for Reason {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let spaced = |b: u8| b.is_ascii_graphic() || b == b' ';
        ready(visible(request.headers(), "X-Reason", MAX_REASON, spaced).map(Self))
    }
}

/// `Idempotency-Key`: the caller's name for one attempt that may come several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

impl FromRequest for IdempotencyKey {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let graphic = |b: u8| b.is_ascii_graphic();
        ready(visible(request.headers(), "Idempotency-Key", MAX_KEY, graphic).map(Self))
    }
}

fn visible(
    headers: &HeaderMap,
    name: &'static str,
    max: usize,
    allowed: fn(u8) -> bool,
) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let bytes = value.as_bytes();
    let fits = (1..=max).contains(&bytes.len()) && bytes.iter().all(|b| allowed(*b));
    match value.to_str() {
        Ok(text) if fits => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => {
            let rule = Constraint::MaxLength { max_length: max };
            let message = format!("must be 1 to {max} visible ASCII characters");
            Err(ApiError::field(FieldError::new(name, rule, message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn headers(pairs: &[(&'static str, &str)]) -> HttpRequest {
        let add = |request: TestRequest, pair: &(&'static str, &str)| request.append_header(*pair);
        pairs.iter().fold(TestRequest::get(), add).to_http_request()
    }

    fn taken<T: FromRequest<Error = ApiError, Future = Ready<Result<T, ApiError>>>>(
        pairs: &[(&'static str, &str)],
    ) -> Result<T, ApiError> {
        T::from_request(&headers(pairs), &mut Payload::None).into_inner()
    }

    #[test]
    fn preferences() {
        for (value, seconds) in [
            ("wait=7", Some(7)),
            ("WAIT = \"7\" ; x=1", Some(7)),
            ("return=minimal, wait=3", Some(3)),
            ("respond-async, wait=3", Some(3)),
            ("wait=600", Some(60)),
            ("wait=99999999999999999999999", Some(60)),
            ("respond-async", Some(0)),
            ("wait=0", Some(0)),
            ("wait=-1", None),
            ("wait", None),
            ("wait=soon", None),
            ("", None),
        ] {
            let found = wait(headers(&[("prefer", value)]).headers());
            assert_eq!(found, seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn entity_tags() {
        let tag = ETag::of_pull_secret(12, 3, "full");
        assert_eq!(tag.quoted(), "\"12-3-full\"");
        for (value, has) in [
            ("\"12-3-full\"", true),
            ("W/\"12-3-full\"", true),
            ("\"a\", W/\"b,c\" ,\"12-3-full\"", true),
            ("*", true),
            ("12-3-full", false),
            ("\"12-3-meta\"", false),
            ("\"\"", false),
        ] {
            let found: IfNoneMatch = taken(&[("if-none-match", value)]).unwrap();
            assert_eq!(found.has(&tag), has, "{value}");
        }
        assert!(!taken::<IfNoneMatch>(&[]).unwrap().has(&tag));
    }

    #[test]
    fn basic_credentials() {
        let of = |value: &str| taken::<BasicAuth>(&[("authorization", value)]);
        let encoded = base64::engine::general_purpose::STANDARD.encode("org+hyp-1:a:b:");
        for value in
            [format!("Basic {encoded}"), format!("basic {}", encoded.trim_end_matches('='))]
        {
            let found = of(&value).unwrap();
            assert_eq!(found.username, "org+hyp-1");
            assert_eq!(found.password.expose_secret(), "a:b:");
            assert!(!format!("{found:?}").contains("a:b"));
        }
        let no_colon = base64::engine::general_purpose::STANDARD.encode("abc");
        for bad in ["Basic", "Basic !!", &format!("Basic {no_colon}"), "Bearer x", "Basic Og=="] {
            assert!(matches!(of(bad), Err(ApiError::BadCredentials(Scheme::Basic))), "{bad}");
        }
        let none = taken::<BasicAuth>(&[]);
        assert!(matches!(none, Err(ApiError::NoCredentials(Scheme::Basic))));
    }

    #[test]
    fn reasons_and_keys() {
        let reason = taken::<Reason>(&[("x-reason", "leaked in a chat")]).unwrap();
        assert_eq!(reason.0.as_deref(), Some("leaked in a chat"));
        assert!(taken::<Reason>(&[("x-reason", &"x".repeat(513))]).is_err());
        assert!(taken::<Reason>(&[("x-reason", "a\tb")]).is_err());
        assert!(taken::<IdempotencyKey>(&[("idempotency-key", "a b")]).is_err());
        assert!(taken::<IdempotencyKey>(&[]).unwrap().0.is_none());
    }
}
