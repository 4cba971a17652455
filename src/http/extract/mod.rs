//! What handlers take from a request: typed, checked, and refused with the right problem.
//!
//! Knows forms only. Rules that need the state or the configuration are the handlers'.

mod body;
mod drain;
mod headers;
mod query;

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};

pub use body::{Body, LateBody, MAX_BODY};
pub use drain::drain;
pub use headers::{BasicAuth, ETag, IdempotencyKey, IfNoneMatch, Prefer, Preferred, Reason};
pub use query::{Faults, Query};

use super::problem::{ApiError, Constraint, FieldError};
use crate::ids::{CampaignId, ClusterId, CredentialId, RevocationId, RotationId};

/// The cluster in the path; a malformed id is `400 VAL-005`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster(pub ClusterId);

impl FromRequest for Cluster {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("cluster_id").unwrap_or_default();
        ready(text.parse().map(Self).map_err(|error: crate::ids::IdError| {
            let rule = Constraint::Pattern { pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" };
            let fault = FieldError::new("cluster_id", rule, error.to_string()).value(text);
            ApiError::Path(Box::new(fault))
        }))
    }
}

/// The campaign in the path; only the canonical spelling of an id is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CampaignInPath(pub CampaignId);

impl FromRequest for CampaignInPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("campaign_id").unwrap_or_default();
        let id = uuid::Uuid::try_parse(text).ok();
        let id = id.filter(|id| id.hyphenated().to_string() == text);
        ready(id.map(|id| Self(CampaignId(id))).ok_or_else(ApiError::no_campaign))
    }
}

/// The rotation in the path; a malformed id is no rotation's, hence `404 NTF-001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationInPath(pub RotationId);

impl FromRequest for RotationInPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("rotation_id").unwrap_or_default();
        let cluster = request.match_info().get("cluster_id").and_then(|id| id.parse().ok());
        ready(text.parse().map(Self).map_err(|_| ApiError::no_rotation(cluster)))
    }
}

/// The break-glass credential in the path; a malformed id is no credential's, hence `404`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialInPath(pub CredentialId);

impl FromRequest for CredentialInPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("credential_id").unwrap_or_default();
        let cluster = request.match_info().get("cluster_id").and_then(|id| id.parse().ok());
        ready(text.parse().map(Self).map_err(|_| ApiError::no_credential(cluster)))
    }
}

/// The revocation in the path; a malformed id is no revocation's, hence `404`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationInPath(pub RevocationId);

impl FromRequest for RevocationInPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("revocation_id").unwrap_or_default();
        let cluster = request.match_info().get("cluster_id").and_then(|id| id.parse().ok());
        ready(text.parse().map(Self).map_err(|_| ApiError::no_revocation(cluster)))
    }
}
