//! Evidence of use: heartbeats of the cluster itself, confirmations of adapters.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::Deserialize;

use super::backend::{Backend, Work, caller, store, unreadable};
use crate::actors::log::Cause;
use crate::actors::read::{self, HeartbeatError};
use crate::actors::shard::CommandError;
use crate::actors::step::StepError;
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{BasicAuth, Body, Cluster, LateBody, Reason, RotationInPath};
use crate::http::problem::{ApiError, Constraint, FieldError, Refused, Scheme};
use crate::http::resource::{Confirmation, HeartbeatResource, PresentedCredential};
use crate::ids::{ClusterId, Generation};
use crate::state::pull_secret::{
    Command, Evidence, EvidenceSource, EvidenceSubject, Rejection, StateName,
};
use crate::time::Timestamp;

/// A consumer's name is at most so long.
const MAX_CONSUMER: usize = 63;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBody {
    consumer: Option<String>,
}

/// The cluster presents its own credential.
pub async fn heartbeat(
    backend: Data<Backend>,
    context: RequestContext,
    cluster: Cluster,
    presented: BasicAuth,
    body: LateBody<HeartbeatBody>,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let refused = |error: HeartbeatError| match &error {
        HeartbeatError::Unauthorized => ApiError::BadCredentials(Scheme::Basic),
        HeartbeatError::Command(error) => work.refused(&cluster_id, error),
        HeartbeatError::Read(error) => unreadable(error),
    };
    let BasicAuth { username, password: secret } = presented;
    let beat = read::Heartbeat { username, secret };
    let known = read::recognised(&work.deps, &cluster_id, &beat).await.map_err(refused)?;
    // Only now: a stranger's body is not even read.
    let named = body.read().await?.consumer;
    let consumer = consumer(named.unwrap_or_else(|| read::DEFAULT_CONSUMER.to_owned()))?;
    let cause = Cause {
        request_id: Some(context.request_id.clone()),
        trace_id: Some(context.trace_id.clone()),
        ..Cause::default()
    };
    let seen = read::heartbeat(&work.deps, &work.shards, &cluster_id, known, &consumer, &cause);
    let seen = seen.await.map_err(refused)?;
    let credential =
        if seen.current { PresentedCredential::Current } else { PresentedCredential::Previous };
    let shown = HeartbeatResource::new(cluster_id, seen.registry_id, seen.generation, credential);
    answer::json(StatusCode::OK, &shown)
}

fn consumer(name: String) -> Result<String, ApiError> {
    let visible = name.chars().all(|c| !c.is_control());
    if (1..=MAX_CONSUMER).contains(&name.chars().count()) && visible {
        return Ok(name);
    }
    let rule = Constraint::MaxLength { max_length: MAX_CONSUMER };
    let message = "must have 1 to 63 characters, none of them a control character";
    Err(ApiError::rule(FieldError::new("consumer", rule, message)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBody {
    generation: Generation,
    consumer: String,
    observed_at: Option<Timestamp>,
}

/// `POST .../pull-secrets/confirm`: the adapter's call after every apply.
pub async fn confirm_generation(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    reason: Reason,
    body: Body<ConfirmBody>,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let generation = body.0.generation;
    let command = Command::Observe(evidence(work, body.0)?);
    let caller = caller(&who, &context, reason);
    let served = match work.shards.execute(&cluster_id, command, caller).await {
        Ok(done) => {
            let record = done.snapshot.0.record.as_ref();
            record.map_or(Generation::NONE, crate::state::pull_secret::PullSecret::generation)
        }
        // A number that was never given out confirms nothing, and is nobody's word.
        Err(CommandError::Step(StepError::Rejected(Rejection::NotServed { served }))) => served,
        // There is a record, and nothing of it is served.
        Err(CommandError::Step(StepError::Rejected(Rejection::State { state })))
            if state != StateName::Revoked =>
        {
            Generation::NONE
        }
        Err(error) => return Err(work.refused(&cluster_id, &error)),
    };
    answer::json(StatusCode::OK, &Confirmation::of(generation, served))
}

/// `POST .../rotations/{rotation_id}/confirm`: the same, named by rotation; also on an ended one.
pub async fn confirm_rotation(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    path: (Cluster, RotationInPath),
    reason: Reason,
    body: Body<ConfirmBody>,
) -> Answer {
    let work = backend.get()?;
    let (Cluster(cluster_id), RotationInPath(rotation_id)) = path;
    let found = work.deps.store.rotation(&cluster_id, rotation_id).await;
    let Some(detail) = found.map_err(|error| store(&error))? else {
        return Err(ApiError::no_rotation(Some(cluster_id)));
    };
    let served = detail.served.map_or(Generation::NONE, |served| served.generation);
    let generation = body.0.generation;
    if generation != served {
        return Err(refused(work, &cluster_id, &Rejection::NotServed { served }));
    }
    let command = Command::Observe(evidence(work, body.0)?);
    work.execute(&cluster_id, command, caller(&who, &context, reason)).await?;
    answer::json(StatusCode::OK, &Confirmation::of(generation, served))
}

fn refused(work: &Work, cluster_id: &ClusterId, rejection: &Rejection) -> ApiError {
    let now = work.deps.clock.now();
    Refused { cluster_id, registries: &work.registries, now }.because(rejection)
}

fn evidence(work: &Work, body: ConfirmBody) -> Result<Evidence, ApiError> {
    if body.generation == Generation::NONE {
        let rule = Constraint::Min { min_value: 1 };
        return Err(ApiError::field(FieldError::new("generation", rule, "must be at least 1")));
    }
    Ok(Evidence {
        source: EvidenceSource::Adapter,
        consumer: consumer(body.consumer)?,
        subject: EvidenceSubject::Generation(body.generation),
        observed_at: body.observed_at.unwrap_or_else(|| work.deps.clock.now()),
    })
}
