//! What identifies one request in logs, answers and problems.
//!
//! Reads headers; must not know what the request wants.

use std::future::{Ready, ready};
use std::rc::Rc;

use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use uuid::Uuid;

use super::ocm;
use super::problem::ApiError;
use crate::state::break_glass::Surface;

/// The caller's or our name of a request.
pub const REQUEST_ID: &str = "x-request-id";
/// The trace that a request belongs to.
pub const TRACE_ID: &str = "x-trace-id";

/// So much of a client's name is logged.
const MAX_USER_AGENT: usize = 200;

/// One request's identity. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct RequestContext(Rc<Inner>);

/// The members of a [`RequestContext`].
#[derive(Debug)]
pub struct Inner {
    /// The caller's `X-Request-Id`, or a UUIDv7.
    pub request_id: String,
    /// 32 hexadecimal digits, from `traceparent` or made.
    pub trace_id: String,
    /// The method.
    pub method: String,
    /// The path as it was sent, without the query.
    pub path: String,
    /// What the client calls itself.
    pub user_agent: Option<String>,
    /// The OCM surface that the path is on, which has answers of its own.
    pub surface: Option<Surface>,
}

impl std::ops::Deref for RequestContext {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl RequestContext {
    /// Reads the request's head.
    #[must_use]
    pub fn of(request: &ServiceRequest) -> Self {
        let headers = request.headers();
        let request_id =
            request_id(headers).map_or_else(|| Uuid::now_v7().to_string(), ToOwned::to_owned);
        let trace_id = trace_id(headers).map_or_else(new_trace_id, ToOwned::to_owned);
        let method = request.method().as_str().to_owned();
        let path = request.path().to_owned();
        let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let user_agent = user_agent.map(|text| text.chars().take(MAX_USER_AGENT).collect());
        // The path that the framework routes by, so that both agree.
        let surface = ocm::surface_of(request.match_info().as_str());
        Self(Rc::new(Inner { request_id, trace_id, method, path, user_agent, surface }))
    }
}

impl FromRequest for RequestContext {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let found = request.extensions().get::<Self>().cloned();
        ready(found.ok_or_else(|| ApiError::internal("the request has no context")))
    }
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let visible = text.bytes().all(|b| b.is_ascii_graphic());
    (visible && (1..=128).contains(&text.len())).then_some(text)
}

/// The trace id of a `traceparent` (W3C Trace Context). A version above ours may have more parts.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let formed = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    let longer = parts.next().is_some();
    let known = version != "ff" && !(version == "00" && longer);
    (formed && known && !zero(trace) && !zero(span)).then_some(trace)
}

fn new_trace_id() -> String {
    format!("{:032x}", rand::random::<u128>().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn context(name: &'static str, value: &str) -> RequestContext {
        RequestContext::of(&TestRequest::get().insert_header((name, value)).to_srv_request())
    }

    #[test]
    fn a_traceparent_is_honoured() {
        for good in
            [format!("00-{TRACE}-b7ad6b7169203331-01"), format!("01-{TRACE}-b7ad6b7169203331-00-x")]
        {
            assert_eq!(context("traceparent", &good).trace_id, TRACE, "{good}");
        }
    }

    #[test]
    fn a_bad_traceparent_is_replaced() {
        for bad in [
            String::new(),
            TRACE.to_owned(),
            format!("00-{TRACE}-b7ad6b7169203331"),
            format!("ff-{TRACE}-b7ad6b7169203331-01"),
            format!("00-{TRACE}-b7ad6b7169203331-01-x"),
            format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
        ] {
            let made = context("traceparent", &bad);
            assert_ne!(made.trace_id, TRACE, "{bad}");
            assert_eq!(made.trace_id.len(), 32);
            assert!(made.trace_id.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn a_request_id_is_the_callers_where_it_is_fit() {
        assert_eq!(context(REQUEST_ID, "abc-1").request_id, "abc-1");
        for bad in ["", "a b", &"x".repeat(129)] {
            let made = context(REQUEST_ID, bad).request_id.clone();
            assert_eq!(Uuid::try_parse(&made).unwrap().get_version_num(), 7, "{bad}");
        }
    }
}
