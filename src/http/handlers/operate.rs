//! The operator's hand on a rotation: complete, extend, rollback, cancel.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::{Deserialize, Serialize};

use super::backend::{Backend, Work, caller, store, wait};
use super::once::{self, Ticket, once};
use super::rotations::{again, show};
use crate::actors::credential::Snapshot;
use crate::http::answer::Answer;
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::edge::Edge;
use crate::http::extract::{Body, Cluster, IdempotencyKey, Prefer, Reason, RotationInPath};
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::ids::{ClusterId, RotationId};
use crate::state::pull_secret::{Command, PullSecret, RotationPhase};

/// Who wants what done to which rotation.
type Order = (Caller, RequestContext, Cluster, RotationInPath, Reason, IdempotencyKey);

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `/complete`: without proof, but never without one more verification.
pub async fn complete(backend: Data<Backend>, order: Order, body: Body<Nothing>) -> Answer {
    let rotation_id = order.3.0;
    run(backend.get()?, order, &body.0, Command::Complete { rotation_id }).await
}

/// `/cancel`: before anything was switched.
pub async fn cancel(backend: Data<Backend>, order: Order, body: Body<Nothing>) -> Answer {
    let rotation_id = order.3.0;
    run(backend.get()?, order, &body.0, Command::Cancel { rotation_id }).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    by: String,
}

/// `/extend`: moves the deadline.
pub async fn extend(backend: Data<Backend>, order: Order, body: Body<ExtendBody>) -> Answer {
    let (rotation_id, by) = (order.3.0, duration(&body.0.by)?);
    run(backend.get()?, order, &body.0, Command::Extend { rotation_id, by }).await
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
    order: Order,
    prefer: Prefer,
    body: Body<Nothing>,
) -> Answer {
    let work = backend.get()?;
    let (who, context, Cluster(cluster_id), RotationInPath(rotation_id), reason, key) = order;
    let run = async |ticket: &Ticket| {
        known(work, &cluster_id, rotation_id).await?;
        let command = Command::Rollback { rotation_id };
        // What is known when it is committed; the verification's answer may still come in time.
        let answer = ticket.answer(StatusCode::ACCEPTED, None, rotation_id);
        let caller = caller(&who, &context, reason);
        let done = work.execute_once(&cluster_id, command, caller, answer).await?;
        let verified = |snapshot: &Snapshot| asked_at(snapshot, rotation_id) != Asked::Verifying;
        let snapshot = wait(&edge, done.watch, prefer.wait, verified).await;
        match asked_at(&snapshot, rotation_id) {
            Asked::Verifying => show(work, &cluster_id, rotation_id, StatusCode::ACCEPTED).await,
            Asked::Accepted => {
                ticket.correct(work, Some(StatusCode::OK)).await;
                show(work, &cluster_id, rotation_id, StatusCode::OK).await
            }
            Asked::Refused => {
                ticket.correct(work, None).await;
                Err(drifted(&cluster_id, rotation_id))
            }
        }
    };
    let asked = once::Asked { key, who: &who, context: &context, body: &body.0 };
    once(work, asked, run, async |replay| again(work, &cluster_id, replay).await).await
}

fn drifted(cluster_id: &ClusterId, rotation_id: RotationId) -> ApiError {
    Conflict {
        detail: "drifted: an account of the old generation no longer works".to_owned(),
        cluster_id: Some(cluster_id.clone()),
        rotation_id: Some(rotation_id),
        retryable: Some(false),
        ..Conflict::default()
    }
    .into()
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

async fn run<B: Serialize>(work: &Work, order: Order, body: &B, command: Command) -> Answer {
    let (who, context, Cluster(cluster_id), RotationInPath(rotation_id), reason, key) = order;
    let run = async |ticket: &Ticket| {
        known(work, &cluster_id, rotation_id).await?;
        let answer = ticket.answer(StatusCode::OK, None, rotation_id);
        work.execute_once(&cluster_id, command, caller(&who, &context, reason), answer).await?;
        show(work, &cluster_id, rotation_id, StatusCode::OK).await
    };
    let asked = once::Asked { key, who: &who, context: &context, body };
    once(work, asked, run, async |replay| again(work, &cluster_id, replay).await).await
}
