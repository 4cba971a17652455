//! From an error to `application/problem+json` (RFC 9457), or to what OCM clients know, and one log entry.

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Serialize;

use super::{ApiError, Conflict, Facts, FieldError, ocm};
use crate::http::answer::whole_seconds;
use crate::http::context::RequestContext;
use crate::ids::{ClusterId, Generation, RotationId};
use crate::state::pull_secret::{RotationStatus, StateName};
use crate::time::Timestamp;

const TYPE_BASE: &str = "https://api.hyperfleet.io/errors/";

#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: String,
    instance: &'a str,
    code: String,
    timestamp: String,
    trace_id: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(flatten)]
    more: More<'a>,
}

/// The members that only some problems have.
#[derive(Default, Serialize)]
struct More<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_id: Option<&'a ClusterId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation_id: Option<RotationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation_status: Option<RotationStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    registries: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    served_generation: Option<Generation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// Makes the reply to a failed request and logs it.
pub fn render(error: &ApiError, context: &RequestContext, now: Timestamp) -> HttpResponse {
    let Facts(slug, title, status, code) = error.facts();
    let problem = Problem {
        r#type: format!("{TYPE_BASE}{slug}"),
        title,
        status,
        detail: error.to_string(),
        instance: &context.path,
        code: format!("HYPERFLEET-{code}"),
        timestamp: now.to_millis_text(),
        trace_id: &context.trace_id,
        errors: errors(error),
        more: more(error),
    };
    log(error, &problem, context);
    let mut reply = HttpResponse::build(actix_web::ResponseError::status_code(error));
    // Plain data: writing it cannot fail, and an empty body is better than none.
    let (kind, body) = match context.surface {
        None => ("application/problem+json", serde_json::to_vec(&problem).unwrap_or_default()),
        Some(surface) => ("application/json", ocm::body(surface, status, error, context, now)),
    };
    reply.content_type(kind);
    reply.insert_header((header::VARY, "Authorization"));
    reply.insert_header((header::CACHE_CONTROL, "no-store"));
    if let Some(seconds) = problem.more.retry_after {
        reply.insert_header((header::RETRY_AFTER, seconds.to_string()));
    }
    headers_of(error, &mut reply);
    reply.body(body)
}

fn headers_of(error: &ApiError, reply: &mut actix_web::HttpResponseBuilder) {
    match error {
        ApiError::Method { allow } => {
            reply.insert_header((header::ALLOW, allow.as_str()));
        }
        ApiError::NoCredentials(scheme) | ApiError::BadCredentials(scheme) => {
            reply.insert_header((header::WWW_AUTHENTICATE, scheme.challenge()));
        }
        ApiError::NotOffered { allow, .. } => {
            reply.insert_header((header::ALLOW, *allow));
        }
        ApiError::UnknownRoute
        | ApiError::Forbidden { .. }
        | ApiError::Refused { .. }
        | ApiError::Version { .. }
        | ApiError::NotJson { .. }
        | ApiError::Unread
        | ApiError::Fields(_)
        | ApiError::Rule(_)
        | ApiError::Query(_)
        | ApiError::Path(_)
        | ApiError::BodyTooLarge { .. }
        | ApiError::MediaType
        | ApiError::NotFound { .. }
        | ApiError::Conflict(_)
        | ApiError::RateLimited { .. }
        | ApiError::Internal { .. }
        | ApiError::Unavailable { .. }
        | ApiError::Upstream { .. } => {}
    }
}

fn errors(error: &ApiError) -> &[FieldError] {
    match error {
        ApiError::Fields(errors) | ApiError::Rule(errors) | ApiError::Query(errors) => errors,
        ApiError::Path(error) => std::slice::from_ref(error),
        ApiError::UnknownRoute
        | ApiError::Method { .. }
        | ApiError::NoCredentials(_)
        | ApiError::BadCredentials(_)
        | ApiError::Forbidden { .. }
        | ApiError::NotJson { .. }
        | ApiError::Unread
        | ApiError::Refused { .. }
        | ApiError::NotOffered { .. }
        | ApiError::Version { .. }
        | ApiError::BodyTooLarge { .. }
        | ApiError::MediaType
        | ApiError::NotFound { .. }
        | ApiError::Conflict(_)
        | ApiError::RateLimited { .. }
        | ApiError::Internal { .. }
        | ApiError::Unavailable { .. }
        | ApiError::Upstream { .. } => &[],
    }
}

fn more(error: &ApiError) -> More<'_> {
    match error {
        ApiError::NotFound { cluster_id, .. } => {
            More { cluster_id: cluster_id.as_ref(), ..More::default() }
        }
        ApiError::Conflict(conflict) => more_of_conflict(conflict),
        ApiError::Version { cluster_id, .. } => {
            More { cluster_id: Some(cluster_id), ..More::default() }
        }
        ApiError::RateLimited { limit, window, retry_after } => More {
            limit: Some(*limit),
            window: Some(window),
            retry_after: Some(whole_seconds(*retry_after)),
            ..More::default()
        },
        ApiError::Unavailable { retry_after, .. } => More {
            retryable: Some(true),
            retry_after: Some(whole_seconds(*retry_after)),
            ..More::default()
        },
        ApiError::Upstream { cluster_id, registries, retryable, .. } => More {
            cluster_id: Some(cluster_id),
            state: Some(StateName::Failed.into()),
            registries,
            retryable: Some(*retryable),
            ..More::default()
        },
        ApiError::UnknownRoute
        | ApiError::Method { .. }
        | ApiError::NoCredentials(_)
        | ApiError::BadCredentials(_)
        | ApiError::Forbidden { .. }
        | ApiError::NotJson { .. }
        | ApiError::Unread
        | ApiError::Fields(_)
        | ApiError::Rule(_)
        | ApiError::Query(_)
        | ApiError::Path(_)
        | ApiError::Refused { .. }
        | ApiError::NotOffered { .. }
        | ApiError::BodyTooLarge { .. }
        | ApiError::MediaType
        | ApiError::Internal { .. } => More::default(),
    }
}

fn more_of_conflict(conflict: &Conflict) -> More<'_> {
    More {
        cluster_id: conflict.cluster_id.as_ref(),
        state: conflict.state.map(Into::into),
        rotation_id: conflict.rotation_id,
        rotation_status: conflict.rotation_status,
        started_at: conflict.started_at,
        registries: &conflict.registries,
        served_generation: conflict.served_generation,
        retryable: conflict.retryable,
        retry_after: conflict.retry_after.map(whole_seconds),
        ..More::default()
    }
}

fn log(error: &ApiError, problem: &Problem<'_>, context: &RequestContext) {
    let text = error.cause().unwrap_or(&problem.detail);
    let (method, path) = (context.method.as_str(), context.path.as_str());
    let field = problem.errors.first().map(|error| error.field.as_str());
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                error_code = problem.code,
                error_type = problem.r#type,
                error = text,
                request_context.method = method,
                request_context.path = path,
                request_context.field = field,
                "request failed"
            )
        };
    }
    match (problem.status, error) {
        // Starting, shutting down, busy: nothing is wrong, and the client is told when to come back.
        (503, ApiError::Unavailable { cause: None, .. }) => event!(info),
        (500.., _) => event!(error),
        (401 | 403 | 429, _) => event!(warn),
        _ => event!(info),
    }
}
