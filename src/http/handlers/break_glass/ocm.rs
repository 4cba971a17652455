//! `break_glass_credentials` on both OCM surfaces. Which one it is says the path.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde_json::json;
use uuid::Uuid;

use super::desk::{Desk, DeskError, ListOf, only_all};
use super::why;
use super::wish::{RequestBody, Wish};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::edge::Edge;
use crate::http::extract::{
    Body, Cluster, CredentialInPath, IdempotencyKey, Preferred, Query, Reason,
};
use crate::http::handlers::backend::{Backend, caller};
use crate::http::handlers::once::{Asked, Replay, Ticket, once};
use crate::http::problem::ApiError;
use crate::http::{ocm, resource};
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::state::break_glass::{Command, Surface};

/// The surface that the path is on; each route of these handlers is on one.
fn surface(context: &RequestContext) -> Result<Surface, ApiError> {
    context.surface.ok_or_else(|| ApiError::internal("the path is on no surface"))
}

/// `GET` of the collection.
pub async fn list(
    backend: Data<Backend>,
    context: RequestContext,
    cluster: Cluster,
    query: Query,
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    desk.offer(&cluster_id)?;
    let (page, size) = (query.page()?, query.size()?);
    let of = ListOf {
        surface,
        search: query.text("search")?.map(ToOwned::to_owned),
        order: query.text("order")?.map(ToOwned::to_owned),
        // All are on the first page.
        offset: (page - 1).saturating_mul(size.unwrap_or(u64::MAX)),
        limit: size,
    };
    let listed = desk.break_glass.list(&cluster_id, &of).await;
    let listed = listed.map_err(|error| desk.refused(&cluster_id, &error))?;
    let shown = resource::credential_list(surface, &cluster_id, page, listed.total, &listed.items);
    answer::json(StatusCode::OK, &shown)
}

/// `POST`: asks for a credential.
pub async fn request(
    (backend, edge): (Data<Backend>, Data<Edge>),
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    (reason, key): (Reason, IdempotencyKey),
    (query, preferred): (Query, Preferred),
    body: Body<RequestBody>,
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    desk.offer(&cluster_id)?;
    let time = patience(desk, surface, &query, preferred)?;
    let reason = why::reason(body.0.reason.as_deref(), reason)?;
    let status = accepted(surface);
    let run = async |ticket: &Ticket| {
        let Wish { username, expires_at, signing_request } =
            body.0.clone().check(desk.clock.now(), desk.rules.lifetimes)?;
        let credential_id = CredentialId(Uuid::now_v7());
        let location = ocm::credential(surface, &cluster_id, credential_id);
        let caller = caller(&who, &context, reason);
        let command = Command::Request {
            cluster_id: cluster_id.clone(),
            credential_id,
            username,
            expires_at,
            signing_request,
            by: caller.actor.clone(),
            reason: caller.reason.clone(),
        };
        let answer = ticket.answer(status, Some(&location), credential_id);
        desk.execute(&cluster_id, command, caller, answer).await?;
        desk.wait(&edge, &cluster_id, credential_id, time).await;
        show(desk, surface, &cluster_id, credential_id, status, &location).await
    };
    let again = async |replay: Replay| {
        let credential_id = replay.resource_id.parse().map_err(ApiError::internal)?;
        desk.wait(&edge, &cluster_id, credential_id, time).await;
        let location = replay.location.unwrap_or_default();
        show(desk, surface, &cluster_id, credential_id, replay.status, &location).await
    };
    let asked = Asked { key, who: &who, context: &context, body: &body.0 };
    once(desk, asked, run, again).await
}

const fn accepted(surface: Surface) -> StatusCode {
    match surface {
        Surface::ClustersMgmt => StatusCode::CREATED,
        Surface::AroHcp => StatusCode::ACCEPTED,
    }
}

/// How long a request waits for `issued`. The first `200` ends the poll of the older surface's clients,
/// kubeconfig or not, so they are given time unless they say otherwise.
fn patience(
    desk: &Desk,
    surface: Surface,
    query: &Query,
    preferred: Preferred,
) -> Result<Duration, ApiError> {
    let usual = match surface {
        Surface::ClustersMgmt => desk.rules.wait,
        Surface::AroHcp => Duration::ZERO,
    };
    Ok(query.wait()?.or(preferred.wait).unwrap_or(usual))
}

/// A credential without its kubeconfig, as it is in the database.
async fn show(
    desk: &Desk,
    surface: Surface,
    cluster_id: &ClusterId,
    id: CredentialId,
    status: StatusCode,
    location: &str,
) -> Answer {
    let credential = desk.credential(cluster_id, id).await?;
    let shown = resource::credential(surface, cluster_id, &credential, None);
    Ok(answer::with_location(answer::json(status, &shown)?, location))
}

/// `GET` of one: the only answer with a kubeconfig.
pub async fn read(
    (backend, edge): (Data<Backend>, Data<Edge>),
    who: Caller,
    context: RequestContext,
    (cluster, credential): (Cluster, CredentialInPath),
    (query, preferred): (Query, Preferred),
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    desk.offer(&cluster_id)?;
    let time = patience(desk, surface, &query, preferred)?;
    desk.wait(&edge, &cluster_id, credential.0, time).await;
    // Only a mutation has a reason.
    let caller = caller(&who, &context, Reason(None));
    let opened = desk.break_glass.opened(&cluster_id, credential.0, caller).await;
    let opened = opened.map_err(|error| match error {
        // Nothing that the client could do otherwise; it may come again.
        DeskError::NotConfigured { reason } => ApiError::unavailable(reason.clone(), reason),
        other => desk.refused(&cluster_id, &other),
    })?;
    let opened = opened.filter(|opened| !opened.credential.control);
    let opened = opened.ok_or_else(|| ApiError::no_credential(Some(cluster_id.clone())))?;
    let shown = resource::credential(surface, &cluster_id, &opened.credential, opened.kubeconfig);
    answer::secret(StatusCode::OK, &shown)
}

/// `GET` of one's status: at once.
pub async fn status(
    backend: Data<Backend>,
    context: RequestContext,
    (cluster, credential): (Cluster, CredentialInPath),
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    desk.offer(&cluster_id)?;
    let credential = desk.credential(&cluster_id, credential.0).await?;
    let shown = resource::credential_status(surface, &cluster_id, &credential);
    answer::json(StatusCode::OK, &shown)
}

/// `DELETE` of the collection: revokes all, or joins what does so already.
pub async fn revoke_all(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    reason: Reason,
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    desk.offer(&cluster_id)?;
    let caller = caller(&who, &context, reason);
    let command = Command::RevokeAll {
        cluster_id: cluster_id.clone(),
        revocation_id: RevocationId(Uuid::now_v7()),
        by: caller.actor.clone(),
        reason: caller.reason.clone(),
    };
    desk.execute(&cluster_id, command, caller, None).await?;
    revoking(surface)
}

/// `DELETE` of one, where the signer can. One that has ended is fine.
pub async fn revoke_one(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    (cluster, credential): (Cluster, CredentialInPath),
    reason: Reason,
) -> Answer {
    let (desk, surface, Cluster(cluster_id)) = (backend.desk()?, surface(&context)?, cluster);
    let offer = desk.offer(&cluster_id)?;
    // It is its own signer that counts, which need not be the configured one any more.
    let known = match desk.credential(&cluster_id, credential.0).await {
        Ok(known) if known.signer.revokes_one() => known,
        Err(error) if offer.revokes_one => return Err(error),
        Ok(_) | Err(ApiError::NotFound { .. }) => return Err(only_all()),
        Err(error) => return Err(error),
    };
    if known.state.name().is_ended() {
        return revoking(surface);
    }
    let caller = caller(&who, &context, reason);
    let command = Command::RevokeOne {
        credential_id: credential.0,
        revocation_id: RevocationId(Uuid::now_v7()),
        by: caller.actor.clone(),
        reason: caller.reason.clone(),
    };
    desk.execute(&cluster_id, command, caller, None).await?;
    revoking(surface)
}

/// The revocation is stored; it goes on by itself.
fn revoking(surface: Surface) -> Result<HttpResponse, ApiError> {
    match surface {
        Surface::ClustersMgmt => Ok(answer::no_content()),
        Surface::AroHcp => answer::json(StatusCode::ACCEPTED, &json!({})),
    }
}
