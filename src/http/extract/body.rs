//! JSON bodies: optional, small, strict.
//!
//! A fault names the field and the rule. A value is never shown, because it may be a secret; only a
//! word that is not of a known list is, and names of fields.

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpRequest, web};
use futures_util::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;

use super::drain::drain;
use crate::http::problem::{ApiError, Constraint, FieldError, word};

/// A body that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest body that is read.
pub const MAX_BODY: usize = 64 * 1024;

/// A JSON object; an empty body is `{}`.
///
/// The type must have `deny_unknown_fields`, so that an unknown field is refused and named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Body<T> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let checked = check_head(request.headers());
        let (mut payload, version) = (payload.take(), request.version());
        Box::pin(async move {
            let read = match checked {
                Ok(()) => whole(&mut payload).await,
                Err(refused) => Err(refused),
            };
            if read.is_err() {
                drain(version, &mut payload).await;
            }
            read.map(Self)
        })
    }
}

/// A body that is not looked at before the handler asks for it: nobody gets an answer about one whose own
/// proof does not hold.
pub struct LateBody<T> {
    checked: Result<(), ApiError>,
    payload: Payload,
    of: PhantomData<T>,
}

impl<T> FromRequest for LateBody<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let checked = check_head(request.headers());
        ready(Ok(Self { checked, payload: payload.take(), of: PhantomData }))
    }
}

impl<T: DeserializeOwned> LateBody<T> {
    /// Reads it.
    ///
    /// # Errors
    /// As [`Body`].
    pub async fn read(self) -> Result<T, ApiError> {
        self.checked?;
        let mut payload = self.payload;
        whole(&mut payload).await
    }
}

/// Whoever does not end a body holds a connection, and with it a shutdown.
async fn whole<T: DeserializeOwned>(payload: &mut Payload) -> Result<T, ApiError> {
    let body = tokio::time::timeout(PATIENCE, read(payload)).await;
    parse(&body.map_err(|_| ApiError::Unread)??)
}

fn check_head(headers: &HeaderMap) -> Result<(), ApiError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    // More digits than a number has is too large as well.
    if announced.is_some_and(|text| text.parse::<usize>().map_or(true, |n| n > MAX_BODY)) {
        return Err(ApiError::BodyTooLarge { limit: MAX_BODY });
    }
    let plain = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let json = headers.get(header::CONTENT_TYPE).is_none_or(|value| {
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if plain && json { Ok(()) } else { Err(ApiError::MediaType) }
}

async fn read(payload: &mut Payload) -> Result<web::BytesMut, ApiError> {
    let mut body = web::BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| ApiError::Unread)?;
        if body.len().saturating_add(chunk.len()) > MAX_BODY {
            return Err(ApiError::BodyTooLarge { limit: MAX_BODY });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let text = body.trim_ascii();
    let text = if text.is_empty() { b"{}" } else { text };
    // Form comes before content: a fault of a field is told only when the whole is JSON.
    serde_json::from_slice::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
    // A list would pass for an object whose fields come in order.
    if text.first() != Some(&b'{') {
        return Err(wrong_type("body", "a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })?;
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::NotJson { line: error.line(), column: error.column() }
}

fn wrong_type(field: &str, expected: &str) -> ApiError {
    let rule = Constraint::Type { expected: expected.to_owned() };
    ApiError::field(FieldError::new(field, rule, format!("must be {expected}")))
}

/// serde tells faults as text only, and with the value in it, so the text is taken apart.
fn explain(path: &str, error: &serde_json::Error) -> ApiError {
    let path = if path == "." || path.is_empty() { "body" } else { path };
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    match error.classify() {
        Category::Data => {}
        // The whole was found to be JSON before: a null or a number where one of some words is wanted.
        Category::Syntax if text == "expected value" => {
            return wrong_type(path, in_json_words(""));
        }
        Category::Io | Category::Syntax | Category::Eof => return not_json(error),
    }
    let name = first_quoted(text);
    if let Some(name) = name.filter(|_| text.starts_with("unknown field ")) {
        let allowed_fields = expected_words(text);
        let message = match allowed_fields.as_slice() {
            [] => "is unknown; no fields are allowed here".to_owned(),
            known => format!("is unknown; allowed are {}", known.join(", ")),
        };
        // serde_path_to_error ends the path with the unknown field itself.
        let field = if path == "body" { name } else { path };
        let field = word(field).unwrap_or("body");
        return ApiError::field(FieldError::new(
            field,
            Constraint::Unknown { allowed_fields },
            message,
        ));
    }
    if let Some(name) = name.filter(|_| text.starts_with("missing field ")) {
        return ApiError::field(FieldError::required(&below(path, name)));
    }
    if let Some(name) = name.filter(|_| text.starts_with("duplicate field ")) {
        let field = if path == "body" { name } else { path };
        return ApiError::field(FieldError::new(field, Constraint::Unique, "is given twice"));
    }
    if let Some(name) = name.filter(|_| text.starts_with("unknown variant ")) {
        return ApiError::field(FieldError::not_one_of(path, name, &expected_words(text)));
    }
    if let Some((_, expected)) = text.rsplit_once(", expected ") {
        return wrong_type(path, in_json_words(expected));
    }
    // Words of our own types; what a library says may hold the value.
    let message = if text.starts_with("must ") { text } else { "has a form that is not allowed" };
    let rule = Constraint::Format { format: "see message" };
    ApiError::field(FieldError::new(path, rule, message))
}

fn below(path: &str, name: &str) -> String {
    if path == "body" { name.to_owned() } else { format!("{path}.{name}") }
}

fn first_quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

/// The quoted words after "expected": what the type knows.
fn expected_words(text: &str) -> Vec<String> {
    let Some((_, list)) = text.rsplit_once(", expected ") else { return Vec::new() };
    list.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Names of Rust types are no business of clients.
fn in_json_words(expected: &str) -> &str {
    match expected {
        "a boolean" | "a string" => expected,
        "a sequence" => "a list",
        "a map" => "a JSON object",
        _ if expected.starts_with("struct ") => "a JSON object",
        _ if ["u8", "u16", "u32", "u64", "usize"].contains(&expected) => {
            "a whole number that is not negative"
        }
        _ if ["i8", "i16", "i32", "i64"].contains(&expected) => "a whole number",
        _ => "of another type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        generation: u32,
        #[serde(default)]
        force: bool,
        reason: Option<Word>,
        #[serde(default)]
        registries: Vec<crate::ids::RegistryId>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its name matters")]
        enabled: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Manual,
        Compromise,
    }

    fn fault(body: &str) -> FieldError {
        match parse::<Sample>(body.as_bytes()) {
            Err(ApiError::Fields(mut errors)) => errors.remove(0),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn a_good_body() {
        let sample: Sample = parse(
            br#" {"generation": 4, "reason": "manual", "registries": ["quay"], "force": true,
               "inner": {"enabled": true}} "#,
        )
        .unwrap();
        assert_eq!((sample.generation, sample.force), (4, true));
        assert!(matches!(sample.reason, Some(Word::Manual)));
        assert_eq!((sample.registries.len(), sample.inner.is_some()), (1, true));
        let none: Sample = parse(br#"{"generation": 4, "reason": null}"#).unwrap();
        assert!(none.reason.is_none() && !matches!(none.reason, Some(Word::Compromise)));
    }

    #[test]
    fn faults_name_field_and_rule_and_show_no_value() {
        for (body, field, part) in [
            ("", "generation", "is required"),
            (r#"{"generation": 1, "genration": 2}"#, "genration", "allowed are generation, force"),
            (r#"{"generation": "s3cret"}"#, "generation", "a whole number that is not negative"),
            (r#"{"generation": -1}"#, "generation", "a whole number that is not negative"),
            (r#"{"generation": 1.5}"#, "generation", "a whole number"),
            (r#"{"generation": 1, "force": "s3cret"}"#, "force", "must be a boolean"),
            (r#"{"generation": 1, "registries": "s3cret"}"#, "registries", "must be a list"),
            (r#"{"generation": 1, "registries": ["S3cret"]}"#, "registries[0]", "must be 1 to 63"),
            (r#"{"generation": 1, "inner": 3}"#, "inner", "must be a JSON object"),
            (r#"{"generation": 1, "inner": {}}"#, "inner.enabled", "is required"),
            (r#"{"generation": 1, "inner": {"x": 1}}"#, "inner.x", "is unknown; allowed are"),
            (r#"{"generation": 1, "generation": 2}"#, "generation", "is given twice"),
            (
                r#"{"generation": 1, "S3cret-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": 1}"#,
                "body",
                "is unknown",
            ),
            ("[1]", "body", "must be a JSON object"),
            ("null", "body", "must be a JSON object"),
        ] {
            let fault = fault(body);
            assert_eq!(fault.field, field, "{body}");
            assert!(fault.message.contains(part), "{body}: {fault:?}");
            assert!(!format!("{fault:?}").contains("3cret"), "{fault:?}");
        }
        let word = fault(r#"{"generation": 1, "reason": "bored"}"#);
        let allowed_values = vec!["manual".to_owned(), "compromise".to_owned()];
        assert_eq!(word.constraint, Constraint::Enum { allowed_values });
        assert_eq!(word.value.as_deref(), Some("bored"));
    }

    #[test]
    fn what_is_not_json_is_said_so() {
        let deep = "[".repeat(60_000);
        let nested = format!("{{\"reason\": {deep}{}}}", "]".repeat(deep.len()));
        let bad = ["{", "{\"x\": 1, ", "{\"generation\": 1} x", "nope", "[1", "\u{feff}{}", &deep];
        for body in bad {
            let error = parse::<Sample>(body.as_bytes()).unwrap_err();
            assert!(matches!(error, ApiError::NotJson { .. }), "{body:.20}: {error:?}");
        }
        assert!(parse::<Sample>(nested.as_bytes()).is_err());
        assert!(matches!(parse::<Sample>(b"{\"a\xff\": 1}"), Err(ApiError::NotJson { .. })));
    }
}
