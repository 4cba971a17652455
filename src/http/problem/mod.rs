//! What can go wrong, and what a client is told of it.
//!
//! [`ApiError`] says what happened, `render` turns it into `application/problem+json` or, for OCM clients,
//! into an OCM error; there is no other place that makes an error reply. The text of an error is for clients: no secret, no internals.
//! What only an operator may see is the `cause`, which is logged and never sent.

mod field;
mod ocm;
mod rejection;
mod render;

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};

pub use field::{Constraint, FieldError, shown, word};
pub use rejection::Refused;
pub(super) use render::render;

use crate::ids::{ClusterId, Generation, RotationId};
use crate::state::pull_secret::{RotationStatus, StateName};
use crate::time::Timestamp;

/// The hint for a client when nothing better is known.
pub const RETRY_SOON: Duration = Duration::from_secs(5);

/// Everything that a request can fail with.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// No route has this path. Adapters read its code as "wrong URL".
    #[error("there is no such path; check the URL")]
    UnknownRoute,
    /// The path knows other methods.
    #[error("the path knows only {allow}")]
    Method {
        /// For the header `Allow`.
        allow: String,
    },
    /// Nobody says who is calling.
    #[error("the request carries no credentials; send `Authorization: {}`", .0.form())]
    NoCredentials(Scheme),
    /// Whoever is calling is not known, or not any more: the same answer for each.
    #[error("the credentials are malformed, unknown or no longer valid")]
    BadCredentials(Scheme),
    /// The caller may not do this.
    #[error("{caller} may not `{verb}` on `{subresource}`")]
    Forbidden {
        /// The caller's own name.
        caller: String,
        /// What on.
        subresource: &'static str,
        /// What for.
        verb: &'static str,
    },
    /// The body is not JSON.
    #[error("the body is not valid JSON (line {line}, column {column})")]
    NotJson {
        /// Where, from 1; 0 where it ends too early.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// The body did not come to its end: it broke off, its chunks are none, or it took too long.
    #[error("the body could not be read to its end")]
    Unread,
    /// Fields of the body or headers are missing or wrong in form.
    #[error("{}", in_words(.0))]
    Fields(Vec<FieldError>),
    /// The request is well-formed and breaks a rule.
    #[error("{}", in_words(.0))]
    Rule(Vec<FieldError>),
    /// Query parameters are wrong.
    #[error("{}", in_words(.0))]
    Query(Vec<FieldError>),
    /// A part of the path is wrong.
    #[error("{} {}", .0.field, .0.message)]
    Path(Box<FieldError>),
    /// The request is wrong in a way that has a sentence of its own, which clients know.
    #[error("{reason}")]
    Refused {
        /// The whole sentence.
        reason: String,
    },
    /// The path knows the method, but not for this cluster.
    #[error("{reason}")]
    NotOffered {
        /// For the header `Allow`.
        allow: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The body is too large.
    #[error("the body has more than {limit} bytes")]
    BodyTooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// The body is of another kind.
    #[error("the body must be application/json, not compressed")]
    MediaType,
    /// There is no such thing.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// For which cluster.
        cluster_id: Option<ClusterId>,
    },
    /// Not possible in the present state.
    #[error("{}", .0.detail)]
    Conflict(Box<Conflict>),
    /// The caller speaks of a version that there never was.
    #[error("{detail}")]
    Version {
        /// Why, in words for the client.
        detail: String,
        /// For which cluster.
        cluster_id: ClusterId,
    },
    /// Too many requests.
    #[error("more than {limit} requests per {window}")]
    RateLimited {
        /// How many may come.
        limit: u32,
        /// In which time, as in the configuration.
        window: String,
        /// When the next may come.
        retry_after: Duration,
    },
    /// Our own fault. The cause is logged, never sent.
    #[error("an unexpected fault; quote the trace id when you report it")]
    Internal {
        /// For the log.
        cause: String,
    },
    /// Not possible at the moment, by nobody's fault that the client could mend.
    #[error("{detail}")]
    Unavailable {
        /// Why, in words for the client.
        detail: String,
        /// When to come back.
        retry_after: Duration,
        /// For the log.
        cause: Option<String>,
    },
    /// A registry failed for good.
    #[error("{detail}")]
    Upstream {
        /// Why, in words for the client.
        detail: String,
        /// For which cluster.
        cluster_id: ClusterId,
        /// Which registries.
        registries: Vec<String>,
        /// Whether a new try makes sense.
        retryable: bool,
    },
}

/// How a caller proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// A token of the service's own users.
    Bearer,
    /// The cluster's own pull secret.
    Basic,
}

impl Scheme {
    const fn form(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer <token>",
            Self::Basic => "Basic <auth of a pull secret's entry>",
        }
    }

    const fn challenge(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer realm=\"hyperfleet\"",
            Self::Basic => "Basic realm=\"hyperfleet\", charset=\"UTF-8\"",
        }
    }
}

/// A `409 CNF-003`, with what a client needs to understand it.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Conflict {
    pub detail: String,
    pub cluster_id: Option<ClusterId>,
    pub state: Option<StateName>,
    pub rotation_id: Option<RotationId>,
    pub rotation_status: Option<RotationStatus>,
    pub started_at: Option<Timestamp>,
    pub registries: Vec<String>,
    pub served_generation: Option<Generation>,
    pub retryable: Option<bool>,
    pub retry_after: Option<Duration>,
}

impl From<Conflict> for ApiError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(Box::new(conflict))
    }
}

impl ApiError {
    /// A fault of ours; the cause is for the log only.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::Internal { cause: cause.to_string() }
    }

    /// One wrong field of the body or of a header.
    #[must_use]
    pub fn field(error: FieldError) -> Self {
        Self::Fields(vec![error])
    }

    /// One field that breaks a rule in a well-formed request.
    #[must_use]
    pub fn rule(error: FieldError) -> Self {
        Self::Rule(vec![error])
    }

    /// One wrong query parameter.
    #[must_use]
    pub fn query(error: FieldError) -> Self {
        Self::Query(vec![error])
    }

    /// There is no pull secret: never made, or revoked.
    #[must_use]
    pub const fn no_pull_secret(cluster_id: ClusterId) -> Self {
        Self::NotFound { what: "pull secret", cluster_id: Some(cluster_id) }
    }

    /// The cluster has no such rotation.
    #[must_use]
    pub const fn no_rotation(cluster_id: Option<ClusterId>) -> Self {
        Self::NotFound { what: "rotation", cluster_id }
    }

    /// There is no such campaign.
    #[must_use]
    pub const fn no_campaign() -> Self {
        Self::NotFound { what: "campaign", cluster_id: None }
    }

    /// The cluster has no such break-glass credential.
    #[must_use]
    pub const fn no_credential(cluster_id: Option<ClusterId>) -> Self {
        Self::NotFound { what: "break-glass credential", cluster_id }
    }

    /// The cluster has no such revocation.
    #[must_use]
    pub const fn no_revocation(cluster_id: Option<ClusterId>) -> Self {
        Self::NotFound { what: "revocation", cluster_id }
    }

    /// Come back in a moment.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::Unavailable { detail: detail.into(), retry_after: RETRY_SOON, cause: None }
    }

    /// The same, with something for the log.
    pub fn unavailable(detail: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        let cause = Some(cause.to_string());
        Self::Unavailable { detail: detail.into(), retry_after: RETRY_SOON, cause }
    }

    /// The error behind whatever the framework hands over.
    pub(super) fn of(error: &actix_web::Error) -> Self {
        if let Some(known) = error.as_error::<Self>() {
            return known.clone();
        }
        match error.as_response_error().status_code() {
            StatusCode::NOT_FOUND => Self::UnknownRoute,
            StatusCode::PAYLOAD_TOO_LARGE => Self::BodyTooLarge { limit: super::extract::MAX_BODY },
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::MediaType,
            status if status.is_client_error() => Self::Unread,
            _ => Self::internal(error),
        }
    }

    fn facts(&self) -> Facts {
        match self {
            Self::UnknownRoute => NOT_FOUND.code("NTF-000"),
            Self::Method { .. } => INVALID_REQUEST.code("VAL-005").status(405),
            Self::NoCredentials(_) => {
                Facts("authentication-required", "Authentication Required", 401, "AUT-001")
            }
            Self::BadCredentials(_) => {
                Facts("invalid-credentials", "Invalid Credentials", 401, "AUT-002")
            }
            Self::Forbidden { .. } => {
                Facts("permission-denied", "Permission Denied", 403, "AUZ-001")
            }
            Self::NotJson { .. } | Self::Unread => INVALID_REQUEST.code("VAL-003"),
            Self::Fields(errors) => VALIDATION.code(field_code(errors)),
            Self::Rule(errors) => VALIDATION.code(field_code(errors)).status(422),
            Self::Query(_) => VALIDATION.code("VAL-004"),
            Self::Path(_) => VALIDATION.code("VAL-005"),
            Self::Refused { .. } => VALIDATION,
            Self::NotOffered { .. } => INVALID_REQUEST.code("VAL-005").status(405),
            Self::BodyTooLarge { .. } => INVALID_REQUEST.code("VAL-003").status(413),
            Self::MediaType => INVALID_REQUEST.code("VAL-003").status(415),
            Self::NotFound { .. } => NOT_FOUND,
            Self::Conflict(_) => Facts("resource-conflict", "Resource Conflict", 409, "CNF-003"),
            Self::Version { .. } => Facts("version-conflict", "Version Conflict", 409, "CNF-002"),
            Self::RateLimited { .. } => {
                Facts("rate-limit-exceeded", "Rate Limit Exceeded", 429, "LMT-001")
            }
            Self::Internal { .. } => Facts("internal-error", "Internal Error", 500, "INT-001"),
            Self::Unavailable { .. } => {
                Facts("service-unavailable", "Service Unavailable", 503, "SVC-001")
            }
            Self::Upstream { .. } => Facts("upstream-error", "Upstream Error", 502, "SVC-004"),
        }
    }

    fn cause(&self) -> Option<&str> {
        match self {
            Self::Internal { cause } => Some(cause),
            Self::Unavailable { cause, .. } => cause.as_deref(),
            Self::UnknownRoute
            | Self::Method { .. }
            | Self::NoCredentials(_)
            | Self::BadCredentials(_)
            | Self::Forbidden { .. }
            | Self::NotJson { .. }
            | Self::Unread
            | Self::Fields(_)
            | Self::Rule(_)
            | Self::Query(_)
            | Self::Path(_)
            | Self::Refused { .. }
            | Self::NotOffered { .. }
            | Self::BodyTooLarge { .. }
            | Self::MediaType
            | Self::NotFound { .. }
            | Self::Conflict(_)
            | Self::Version { .. }
            | Self::RateLimited { .. }
            | Self::Upstream { .. } => None,
        }
    }
}

/// Slug, title, status and code of a problem.
#[derive(Clone, Copy)]
struct Facts(&'static str, &'static str, u16, &'static str);

const VALIDATION: Facts = Facts("validation-error", "Validation Error", 400, "VAL-002");
const INVALID_REQUEST: Facts = Facts("invalid-request", "Invalid Request", 400, "VAL-003");
const NOT_FOUND: Facts = Facts("resource-not-found", "Resource Not Found", 404, "NTF-001");

impl Facts {
    const fn code(self, code: &'static str) -> Self {
        Self(self.0, self.1, self.2, code)
    }

    const fn status(self, status: u16) -> Self {
        Self(self.0, self.1, status, self.3)
    }
}

const fn field_code(errors: &[FieldError]) -> &'static str {
    match errors {
        [one] if one.constraint.is_required() => "VAL-001",
        [_] => "VAL-002",
        [] | [_, _, ..] => "VAL-000",
    }
}

fn in_words(errors: &[FieldError]) -> String {
    match errors {
        [one] => format!("{} {}", one.field, one.message),
        several => format!("{} fields are wrong", several.len()),
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.facts().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Without a body: the request's path and trace id are known to the outermost middleware only,
    /// which puts the problem in its place.
    fn error_response(&self) -> HttpResponse {
        HttpResponse::new(self.status_code())
    }
}
