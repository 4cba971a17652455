//! POST, GET and DELETE of a cluster's pull secret.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::Deserialize;

use super::backend::{Backend, Work, caller, store, wait};
use crate::actors::audit;
use crate::actors::credential::Snapshot;
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::edge::Edge;
use crate::http::extract::{Body, Cluster, ETag, IfNoneMatch, Prefer, Query, Reason};
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::http::resource::{self, Show};
use crate::http::routes::Permission;
use crate::ids::{ClusterId, RegistryId};
use crate::state::pull_secret::{Command, PullSecret, RecordState, StateName};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssueBody {
    registries: Option<Vec<String>>,
    cluster_id: Option<String>,
}

/// `POST`: there shall be a pull secret.
#[expect(clippy::too_many_arguments, reason = "one argument per part of the request")]
pub async fn issue(
    backend: Data<Backend>,
    edge: Data<Edge>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    prefer: Prefer,
    reason: Reason,
    body: Body<IssueBody>,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let registries = checked(work, &cluster_id, body.0)?;
    let wanted = registries.clone().unwrap_or_default();
    let command = Command::Issue { cluster_id: cluster_id.clone(), registries };
    let asks = caller(&who, &context, reason);
    let done = work.execute(&cluster_id, command, asks.clone()).await?;
    let snapshot = wait(&edge, done.watch, prefer.wait, is_decided).await;
    match snapshot.0.record.as_ref().map(|record| &record.state) {
        Some(RecordState::Denied(refusal)) => Err(Conflict {
            detail: format!("{} refused the account: {}", refusal.registry_id, refusal.message),
            cluster_id: Some(cluster_id),
            state: Some(StateName::Denied),
            registries: vec![refusal.registry_id.to_string()],
            retryable: Some(false),
            ..Conflict::default()
        }
        .into()),
        Some(RecordState::Failed(refusal)) => Err(ApiError::Upstream {
            detail: format!("{} did not do it in time: {}", refusal.registry_id, refusal.message),
            cluster_id,
            registries: vec![refusal.registry_id.to_string()],
            retryable: true,
        }),
        Some(RecordState::Active { .. } | RecordState::Rotating { .. }) => {
            made(work, &who, asks, &cluster_id, &wanted).await
        }
        Some(RecordState::Issuing { .. } | RecordState::Revoking | RecordState::Revoked) | None => {
            accepted(work, &snapshot, &cluster_id)
        }
    }
}

fn is_decided(snapshot: &Snapshot) -> bool {
    snapshot.0.record.as_ref().is_none_or(|record| match record.state {
        RecordState::Issuing { .. } => false,
        RecordState::Active { .. }
        | RecordState::Rotating { .. }
        | RecordState::Revoking
        | RecordState::Revoked
        | RecordState::Denied(_)
        | RecordState::Failed(_) => true,
    })
}

fn checked(
    work: &Work,
    cluster_id: &ClusterId,
    body: IssueBody,
) -> Result<Option<Vec<RegistryId>>, ApiError> {
    if let Some(named) = body.cluster_id.filter(|named| named != cluster_id.as_str()) {
        let rule = Constraint::Enum { allowed_values: vec![cluster_id.to_string()] };
        let fault = FieldError::new("cluster_id", rule, "must be the one in the path");
        return Err(ApiError::rule(fault.value(&named)));
    }
    let parse = |name: &String| {
        name.parse::<RegistryId>().map_err(|_| {
            let known: Vec<&str> = work.registries.iter().map(RegistryId::as_str).collect();
            ApiError::field(FieldError::not_one_of("registries", name, &known))
        })
    };
    body.registries.map(|names| names.iter().map(parse).collect()).transpose()
}

/// `200`: the complete resource, read after the command. Where registries are wanted that a rotation is still
/// to add, that is the rotation that is told, also while it waits for the running one.
async fn made(
    work: &Work,
    who: &Caller,
    asks: audit::Caller,
    cluster_id: &ClusterId,
    wanted: &[RegistryId],
) -> Answer {
    let described = work.deps.store.described(cluster_id).await.map_err(|e| store(&e))?;
    let Some(record) = described.loaded.record else {
        return Err(ApiError::no_pull_secret(cluster_id.clone()));
    };
    let document = if who.may(Permission::PullSecretsGet).await? {
        work.document(&record, &described.secrets, asks).await?
    } else {
        None
    };
    let show = Show { document, credentials: true, hosts: &work.hosts };
    let mut shown = resource::pull_secret(&record, show);
    let adds = record
        .waiting
        .as_deref()
        .filter(|waiting| wanted.iter().any(|id| waiting.scope.makes(&[]).contains(id)));
    if let Some(waiting) = adds {
        shown.rotation = Some(waiting.into());
    }
    answer::secret(StatusCode::OK, &shown)
}

/// `202`: it goes on by itself.
fn accepted(work: &Work, snapshot: &Snapshot, cluster_id: &ClusterId) -> Answer {
    let Some(record) = &snapshot.0.record else {
        return Err(ApiError::no_pull_secret(cluster_id.clone()));
    };
    let show = Show { document: None, credentials: true, hosts: &work.hosts };
    let response = answer::json(StatusCode::ACCEPTED, &resource::pull_secret(record, show))?;
    let response = answer::with_location(response, &path(cluster_id));
    Ok(answer::with_retry_after(response, work.come_back(record)))
}

fn path(cluster_id: &ClusterId) -> String {
    format!("/v1/clusters/{cluster_id}/pull-secrets")
}

/// `GET`: what is handed out, and what is going on.
pub async fn read(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    query: Query,
    known: IfNoneMatch,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let credentials = query.flag("include_metadata")?.unwrap_or(false);
    let secrets = who.may(Permission::PullSecretsGet).await?;
    let view = match (secrets, credentials) {
        (true, true) => "full",
        (true, false) => "secret",
        (false, true) => "accounts",
        (false, false) => "state",
    };
    let tag = |version| ETag::of_pull_secret(version, work.render_revision, view);
    let missing = || ApiError::no_pull_secret(cluster_id.clone());
    // The version columns alone say whether the caller has it already.
    let current = work.deps.store.version_of(&cluster_id).await.map_err(|e| store(&e))?;
    let (version, state) = current.ok_or_else(missing)?;
    if state == StateName::Revoked {
        return Err(missing());
    }
    if known.has(&tag(version)) {
        return Ok(answer::not_modified(&tag(version)));
    }
    let described = work.deps.store.described(&cluster_id).await.map_err(|e| store(&e))?;
    let live = |record: &PullSecret| record.state.name() != StateName::Revoked;
    let record = described.loaded.record.filter(live).ok_or_else(missing)?;
    let document = if secrets {
        work.document(&record, &described.secrets, caller(&who, &context, Reason(None))).await?
    } else {
        None
    };
    let show = Show { document, credentials, hosts: &work.hosts };
    let response = answer::secret(StatusCode::OK, &resource::pull_secret(&record, show))?;
    Ok(answer::with_etag(response, &tag(described.loaded.version)))
}

/// `DELETE`: there shall be none.
pub async fn revoke(
    backend: Data<Backend>,
    edge: Data<Edge>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    prefer: Prefer,
    reason: Reason,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let done = work.execute(&cluster_id, Command::Revoke, caller(&who, &context, reason)).await?;
    let snapshot = wait(&edge, done.watch, prefer.wait, is_revoked).await;
    match &snapshot.0.record {
        Some(record) if !is_revoked(&snapshot) => {
            let response = answer::json(StatusCode::ACCEPTED, &resource::revocation(record))?;
            Ok(answer::with_retry_after(response, work.come_back(record)))
        }
        Some(_) | None => Ok(answer::no_content()),
    }
}

fn is_revoked(snapshot: &Snapshot) -> bool {
    let state = snapshot.0.record.as_ref().map(|record| record.state.name());
    state.is_none_or(|state| state == StateName::Revoked)
}
