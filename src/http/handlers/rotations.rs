//! Starting, listing and reading rotations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::web::Data;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::backend::{Backend, Work, caller, store};
use super::once::{Asked, Replay, Ticket, once};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, Cluster, Faults, IdempotencyKey, Query, Reason, RotationInPath};
use crate::http::problem::ApiError;
use crate::http::resource::{self, Pagination, RotationList, RotationResource};
use crate::ids::{ClusterId, RegistryId, RotationId};
use crate::registries::{CallContext, Unfenced};
use crate::state::pull_secret::{Command, PullSecret, RotationReason};
use crate::store::{Page, RotationFilter, RotationRow};

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum AskedReason {
    #[default]
    Manual,
    Compromise,
    Scheduled,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StartBody {
    reason: AskedReason,
    force_immediate: bool,
    dry_run: bool,
}

/// `POST .../rotations`: answered at once, whatever phase follows.
pub async fn start(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    (reason, key): (Reason, IdempotencyKey),
    body: Body<StartBody>,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let StartBody { reason: asked, force_immediate, dry_run } = body.0;
    let why = match asked {
        AskedReason::Manual => RotationReason::Manual,
        AskedReason::Compromise => RotationReason::Compromise,
        AskedReason::Scheduled => RotationReason::Scheduled,
    };
    who.require_rotation(why, force_immediate).await?;
    if dry_run {
        return try_registries(work, &cluster_id).await;
    }
    let run = async |ticket: &Ticket| {
        let rotation_id = RotationId(Uuid::now_v7());
        let location = path(&cluster_id, rotation_id);
        let command = Command::Rotate { rotation_id, reason: why, force_immediate };
        let answer = ticket.answer(StatusCode::CREATED, Some(&location), rotation_id);
        work.execute_once(&cluster_id, command, caller(&who, &context, reason), answer).await?;
        let response = show(work, &cluster_id, rotation_id, StatusCode::CREATED).await?;
        Ok(answer::with_location(response, &location))
    };
    let asked = Asked { key, who: &who, context: &context, body: &body.0 };
    once(work, asked, run, async |replay| again(work, &cluster_id, replay).await).await
}

/// A first answer about a rotation, with the rotation as it is now.
pub(super) async fn again(work: &Work, cluster_id: &ClusterId, replay: Replay) -> Answer {
    let rotation_id = replay.resource_id.parse().map_err(ApiError::internal)?;
    let response = show(work, cluster_id, rotation_id, replay.status).await?;
    Ok(match replay.location {
        Some(location) => answer::with_location(response, &location),
        None => response,
    })
}

fn path(cluster_id: &ClusterId, rotation_id: RotationId) -> String {
    format!("/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}")
}

/// `GET .../rotations/{rotation_id}`.
pub async fn read(backend: Data<Backend>, cluster: Cluster, rotation: RotationInPath) -> Answer {
    show(backend.get()?, &cluster.0, rotation.0, StatusCode::OK).await
}

/// The rotation as it is in the database.
pub(super) async fn show(
    work: &Work,
    cluster_id: &ClusterId,
    rotation_id: RotationId,
    status: StatusCode,
) -> Answer {
    match described(work, cluster_id, rotation_id).await? {
        Some(shown) => answer::json(status, &shown),
        None => Err(ApiError::no_rotation(Some(cluster_id.clone()))),
    }
}

async fn described(
    work: &Work,
    cluster_id: &ClusterId,
    rotation_id: RotationId,
) -> Result<Option<RotationResource>, ApiError> {
    // The record comes first: a rotation that ends in between is then shown as ended.
    let record = recorded(work, cluster_id).await?;
    let stored = work.deps.store.rotation(cluster_id, rotation_id);
    let detail = stored.await.map_err(|error| store(&error))?;
    let (policy, now) = (&work.deps.policy, work.deps.clock.now());
    let shown = |detail| resource::rotation(cluster_id, &detail, record.as_ref(), policy, now);
    Ok(detail.map(shown))
}

async fn recorded(work: &Work, cluster_id: &ClusterId) -> Result<Option<PullSecret>, ApiError> {
    let loaded = work.deps.store.load(cluster_id).await.map_err(|error| store(&error))?;
    Ok(loaded.record)
}

/// `GET .../rotations`.
pub async fn list(backend: Data<Backend>, cluster: Cluster, query: Query) -> Answer {
    list_of(backend.get()?, Some(cluster.0), &query).await
}

/// Rotations of one cluster or of all, newest first.
pub(super) async fn list_of(work: &Work, cluster_id: Option<ClusterId>, query: &Query) -> Answer {
    let now = work.deps.clock.now();
    let mut faults = Faults::default();
    let filter = RotationFilter {
        cluster_id,
        statuses: faults.take(query.words("status")),
        since: faults.take(query.time("since")),
        history_since: Some(now.minus(work.deps.policy.history_after)),
        overdue: faults.take(query.flag("overdue")).unwrap_or(false),
        now,
    };
    let (from, limit) = (faults.take(query.cursor()), faults.take(query.limit()));
    faults.none()?;
    let listed = work.deps.store.list_rotations(&filter, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let mut rotations = Vec::with_capacity(items.len());
    for RotationRow { cluster_id, rotation } in &items {
        // One that was removed from the history in between is left out.
        rotations.extend(described(work, cluster_id, rotation.id).await?);
    }
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &RotationList { rotations, pagination })
}

#[derive(Debug, Serialize)]
struct DryRun {
    dry_run: bool,
    registries: BTreeMap<RegistryId, Tried>,
}

#[derive(Debug, Serialize)]
struct Tried {
    reachable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// `dry_run`: reach and rights at each registry of the record, by listing our own accounts.
async fn try_registries(work: &Work, cluster_id: &ClusterId) -> Answer {
    let record = recorded(work, cluster_id).await?.filter(|record| record.served().is_some());
    let record = record.ok_or_else(|| ApiError::no_pull_secret(cluster_id.clone()))?;
    let tried = join_all(record.registries.iter().map(|id| try_one(work, id))).await;
    let registries = record.registries.iter().cloned().zip(tried).collect();
    answer::json(StatusCode::OK, &DryRun { dry_run: true, registries })
}

async fn try_one(work: &Work, id: &RegistryId) -> Tried {
    let failed = |error: String| Tried { reachable: false, error: Some(error) };
    let Some(configured) = work.deps.registries.get(id) else {
        return failed("the registry is not configured any more".to_owned());
    };
    let permit = match configured.lane.permit().await {
        Ok(permit) => permit,
        Err(not_now) => return failed(not_now.reason),
    };
    let call =
        CallContext { deadline: Instant::now() + configured.timeout, fence: Arc::new(Unfenced) };
    let prefix = work.deps.policy.registry(id).prefix;
    let began = Instant::now();
    tracing::debug!(registry = id.as_str(), call = "list", "call announced");
    let listed = configured.registry.list(&call, &prefix);
    let tried = match tokio::time::timeout(configured.timeout, listed).await {
        Ok(listed) => {
            permit.report(&listed);
            match listed {
                Ok(_) => Tried { reachable: true, error: None },
                Err(error) => failed(error.to_string()),
            }
        }
        Err(_) => failed("no answer in time".to_owned()),
    };
    tell(work, id, &tried, began.elapsed());
    tried
}

fn tell(work: &Work, id: &RegistryId, tried: &Tried, took: Duration) {
    let outcome = if tried.reachable { "listed" } else { "failed" };
    work.deps.metrics.effect(id.as_str(), "list", outcome, took);
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (registry, error) = (id.as_str(), tried.error.as_deref());
    tracing::info!(
        registry,
        event_name = "call_ended",
        call = "list",
        outcome,
        duration_ms,
        error,
        "call ended"
    );
}
