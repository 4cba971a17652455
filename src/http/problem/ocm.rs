//! An error as OCM clients know it.
//!
//! It always has a body and is always `application/json`: the OCM SDK takes an empty `4xx` for success, and
//! any other content type for a fault of the transport.

use serde::Serialize;

use super::ApiError;
use crate::http::context::RequestContext;
use crate::http::ocm;
use crate::state::break_glass::Surface;
use crate::time::Timestamp;

#[derive(Serialize)]
struct OcmError<'a> {
    kind: &'static str,
    id: String,
    href: String,
    code: String,
    reason: String,
    operation_id: &'a str,
    timestamp: String,
}

/// The body of an error's answer.
pub(super) fn body(
    surface: Surface,
    status: u16,
    error: &ApiError,
    context: &RequestContext,
    now: Timestamp,
) -> Vec<u8> {
    let shown = OcmError {
        kind: "Error",
        id: status.to_string(),
        href: format!("{}/errors/{status}", ocm::base(surface)),
        code: format!("{}-{status}", ocm::code_prefix(surface)),
        reason: error.to_string(),
        operation_id: &context.request_id,
        timestamp: now.to_seconds_text(),
    };
    // Plain data: writing it cannot fail, and an empty body is better than none.
    serde_json::to_vec(&shown).unwrap_or_default()
}
