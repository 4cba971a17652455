//! Answers of handlers: status, headers and body in one call each.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, ContentType};
use actix_web::web::Bytes;
use serde::Serialize;
use zeroize::Zeroizing;

use super::extract::ETag;
use super::problem::ApiError;

/// Room for a pull secret of a dozen registries, so that the buffer does not grow and leave copies.
const ROOM: usize = 16 * 1024;

/// What a handler gives back.
pub type Answer = Result<HttpResponse, ApiError>;

/// A resource without secrets.
///
/// # Errors
/// When it cannot be written, which is our fault.
pub fn json(status: StatusCode, resource: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(resource).map_err(ApiError::internal)?;
    Ok(HttpResponse::build(status).insert_header(ContentType::json()).body(body))
}

/// A resource that may hold a secret: not kept by anybody on the way, and wiped once it is sent.
///
/// # Errors
/// When it cannot be written, which is our fault.
pub fn secret(status: StatusCode, resource: &impl Serialize) -> Answer {
    let mut body = Zeroizing::new(Vec::with_capacity(ROOM));
    serde_json::to_writer(&mut *body, resource).map_err(ApiError::internal)?;
    Ok(HttpResponse::build(status)
        .insert_header(ContentType::json())
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::VARY, "Authorization"))
        .body(Bytes::from_owner(Wiped(body))))
}

struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `204`.
#[must_use]
pub fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// `304`, with the headers that the `200` would have had.
#[must_use]
pub fn not_modified(tag: &ETag) -> HttpResponse {
    let mut response = HttpResponse::NotModified().finish();
    set(&mut response, header::CACHE_CONTROL, "no-store");
    with_etag(response, tag)
}

/// Adds `ETag`, and that the answer depends on who asks.
#[must_use]
pub fn with_etag(mut response: HttpResponse, tag: &ETag) -> HttpResponse {
    set(&mut response, header::ETAG, &tag.quoted());
    set(&mut response, header::VARY, "Authorization");
    response
}

/// Adds where the resource is.
#[must_use]
pub fn with_location(mut response: HttpResponse, path: &str) -> HttpResponse {
    set(&mut response, header::LOCATION, path);
    response
}

/// Adds when to come back.
#[must_use]
pub fn with_retry_after(mut response: HttpResponse, after: Duration) -> HttpResponse {
    set(&mut response, header::RETRY_AFTER, &whole_seconds(after).to_string());
    response
}

/// Says that the answer was given before.
#[must_use]
pub fn as_replayed(mut response: HttpResponse) -> HttpResponse {
    set(&mut response, header::HeaderName::from_static("idempotency-replayed"), "true");
    response
}

/// Whole seconds, rounded up: a client that comes back then is never too early.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    seconds_up(duration).max(1)
}

/// Whole seconds, rounded up, where "none" is an answer, too.
pub(super) fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn set(response: &mut HttpResponse<BoxBody>, name: header::HeaderName, value: &str) {
    // Tags, paths of checked ids and numbers are visible ASCII.
    if let Ok(value) = header::HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
