//! The operator's hand on a rotation: complete, extend, rollback, cancel.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::Deserialize;

use super::backend::{Backend, Work, caller, store, wait};
use super::rotations::show;
use crate::actors::audit;
use crate::actors::credential::Snapshot;
use crate::http::answer::Answer;
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::edge::Edge;
use crate::http::extract::{Body, Cluster, Prefer, Reason, RotationInPath};
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::ids::{ClusterId, RotationId};
use crate::state::pull_secret::{Command, PullSecret, RotationPhase};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `/complete`: without proof, but never without one more verification.
pub async fn complete(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    path: (Cluster, RotationInPath),
    reason: Reason,
    _body: Body<Nothing>,
) -> Answer {
    let (Cluster(cluster_id), RotationInPath(rotation_id)) = path;
    let command = Command::Complete { rotation_id };
    run(backend.get()?, &cluster_id, rotation_id, command, caller(&who, &context, reason)).await
}

/// `/cancel`: before anything was switched.
pub async fn cancel(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    path: (Cluster, RotationInPath),
    reason: Reason,
    _body: Body<Nothing>,
) -> Answer {
    let (Cluster(cluster_id), RotationInPath(rotation_id)) = path;
    let command = Command::Cancel { rotation_id };
    run(backend.get()?, &cluster_id, rotation_id, command, caller(&who, &context, reason)).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    by: String,
}

/// `/extend`: moves the deadline.
pub async fn extend(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    path: (Cluster, RotationInPath),
    reason: Reason,
    body: Body<ExtendBody>,
) -> Answer {
    let (Cluster(cluster_id), RotationInPath(rotation_id)) = path;
    let command = Command::Extend { rotation_id, by: duration(&body.0.by)? };
    run(backend.get()?, &cluster_id, rotation_id, command, caller(&who, &context, reason)).await
}

/// Longer than a year is a slip of the pen.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

fn duration(text: &str) -> Result<Duration, ApiError> {
    let parsed = humantime::parse_duration(text).ok();
    parsed.filter(|by| !by.is_zero() && *by <= LONGEST).ok_or_else(|| {
        let rule = Constraint::Format { format: "duration" };
        let message = "must be a duration like 48h, at most 366 days";
        ApiError::field(FieldError::new("by", rule, message).value(text))
    })
}

/// `/rollback`: `200` once the old accounts were found alive, `409` when they are dead, `202` until the
/// verification has answered.
pub async fn rollback(
    backend: Data<Backend>,
    edge: Data<Edge>,
    who: Caller,
    context: RequestContext,
    path: (Cluster, RotationInPath),
    (prefer, reason): (Prefer, Reason),
    _body: Body<Nothing>,
) -> Answer {
    let work = backend.get()?;
    let (Cluster(cluster_id), RotationInPath(rotation_id)) = path;
    known(work, &cluster_id, rotation_id).await?;
    let command = Command::Rollback { rotation_id };
    let done = work.execute(&cluster_id, command, caller(&who, &context, reason)).await?;
    let verified = |snapshot: &Snapshot| asked_at(snapshot, rotation_id) != Asked::Verifying;
    let snapshot = wait(&edge, done.watch, prefer.wait, verified).await;
    match asked_at(&snapshot, rotation_id) {
        Asked::Verifying => show(work, &cluster_id, rotation_id, StatusCode::ACCEPTED).await,
        Asked::Accepted => show(work, &cluster_id, rotation_id, StatusCode::OK).await,
        Asked::Refused => Err(Conflict {
            detail: "drifted: an account of the old generation no longer works".to_owned(),
            cluster_id: Some(cluster_id),
            rotation_id: Some(rotation_id),
            retryable: Some(false),
            ..Conflict::default()
        }
        .into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Verifying,
    Accepted,
    Refused,
}

fn asked_at(snapshot: &Snapshot, rotation_id: RotationId) -> Asked {
    let rotation = snapshot.0.record.as_ref().and_then(PullSecret::rotation);
    match rotation.filter(|rotation| rotation.id == rotation_id).map(|rotation| &rotation.phase) {
        Some(RotationPhase::DualCredentialPeriod { rollback_at: Some(_), .. }) => Asked::Verifying,
        Some(RotationPhase::DualCredentialPeriod { rollback_at: None, .. }) => Asked::Refused,
        Some(
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_),
        )
        | None => Asked::Accepted,
    }
}

/// A rotation of another cluster is not there.
async fn known(
    work: &Work,
    cluster_id: &ClusterId,
    rotation_id: RotationId,
) -> Result<(), ApiError> {
    let found = work.deps.store.rotation(cluster_id, rotation_id).await.map_err(|e| store(&e))?;
    match found {
        Some(_) => Ok(()),
        None => Err(ApiError::no_rotation(Some(cluster_id.clone()))),
    }
}

async fn run(
    work: &Work,
    cluster_id: &ClusterId,
    rotation_id: RotationId,
    command: Command,
    caller: audit::Caller,
) -> Answer {
    known(work, cluster_id, rotation_id).await?;
    work.execute(cluster_id, command, caller).await?;
    show(work, cluster_id, rotation_id, StatusCode::OK).await
}
