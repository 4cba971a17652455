//! What a cluster's API servers have to trust, and an adapter's word that they do.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Data;
use serde::Deserialize;

use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, Cluster, ETag, IfNoneMatch, Reason};
use crate::http::handlers::backend::{Backend, caller};
use crate::http::problem::{ApiError, Constraint, FieldError, word};
use crate::http::resource::BundleConfirmation;
use crate::state::break_glass::{Command, Rejection};

use super::desk::DeskError;

/// RFC 8555 section 9.1 registers it for chains of certificates in PEM.
const PEM: &str = "application/pem-certificate-chain";
const LONGEST_ETAG: usize = 200;

/// `GET .../break-glass/trust-bundle`: what a kube-apiserver's client CA file must hold.
pub async fn read(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    known: IfNoneMatch,
) -> Answer {
    let (desk, Cluster(cluster_id)) = (backend.desk()?, cluster);
    desk.offer(&cluster_id)?;
    let caller = caller(&who, &context, Reason(None));
    let bundle = desk.break_glass.bundle(&cluster_id, caller).await;
    let bundle = bundle.map_err(|error| desk.refused(&cluster_id, &error))?;
    let tag = ETag(bundle.etag);
    if known.has(&tag) {
        return Ok(answer::not_modified(&tag));
    }
    let response = HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, PEM))
        // An adapter that acts on an old one would keep alive what was revoked.
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(bundle.pem);
    Ok(answer::with_etag(response, &tag))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBody {
    etag: String,
}

/// `POST .../break-glass/trust-bundle/confirm`: the API servers run with this version.
pub async fn confirm(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    reason: Reason,
    body: Body<ConfirmBody>,
) -> Answer {
    let (desk, Cluster(cluster_id)) = (backend.desk()?, cluster);
    desk.offer(&cluster_id)?;
    let etag = bare(&body.0.etag)?;
    let version = desk.break_glass.bundle_version(&cluster_id, etag);
    let unknown = || desk.refused(&cluster_id, &DeskError::Rejected(Rejection::UnknownBundle));
    let version = version.ok_or_else(unknown)?;
    let caller = caller(&who, &context, reason);
    let command = Command::ConfirmBundle { version };
    let done = desk.execute(&cluster_id, command, caller, None).await?;
    let confirmed = BundleConfirmation { etag: etag.to_owned(), settled: done.settled };
    answer::json(StatusCode::OK, &confirmed)
}

/// The tag as the header had it, or without what a header needs.
fn bare(etag: &str) -> Result<&str, ApiError> {
    let text = etag.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let visible = text.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
    if visible && (1..=LONGEST_ETAG).contains(&text.len()) {
        return Ok(text);
    }
    let rule = Constraint::Format { format: "etag" };
    let fault = FieldError::new("etag", rule, "must be the ETag of a trust bundle");
    Err(ApiError::field(match word(text) {
        Some(text) => fault.value(text),
        None => fault,
    }))
}
