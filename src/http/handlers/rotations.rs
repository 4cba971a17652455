//! Starting, listing and reading rotations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::web::Data;
use async_trait::async_trait;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::backend::{Backend, Work, caller, store};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, Cluster, Query, Reason, RotationInPath};
use crate::http::problem::ApiError;
use crate::http::resource::{self, Pagination, RotationList};
use crate::ids::{ClusterId, RegistryId, RotationId};
use crate::registries::{CallContext, Fence};
use crate::state::pull_secret::{Command, PullSecret, RotationReason};
use crate::store::{Page, RotationFilter, RotationRow};

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AskedReason {
    #[default]
    Manual,
    Compromise,
    Scheduled,
}

#[derive(Debug, Default, Deserialize)]
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
    reason: Reason,
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
    let rotation_id = RotationId(Uuid::now_v7());
    let command = Command::Rotate { rotation_id, reason: why, force_immediate };
    work.execute(&cluster_id, command, caller(&who, &context, reason)).await?;
    let response = show(work, &cluster_id, rotation_id, StatusCode::CREATED).await?;
    Ok(answer::with_location(response, &path(&cluster_id, rotation_id)))
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
    let stored = work.deps.store.rotation(cluster_id, rotation_id);
    let detail = stored.await.map_err(|error| store(&error))?;
    let detail = detail.ok_or_else(|| ApiError::no_rotation(Some(cluster_id.clone())))?;
    let record = running(work, cluster_id, detail.rotation.completed_at.is_none()).await?;
    let now = work.deps.clock.now();
    let shown =
        resource::rotation(cluster_id, &detail.rotation, record.as_ref(), &work.deps.policy, now);
    answer::json(status, &shown)
}

async fn running(
    work: &Work,
    cluster_id: &ClusterId,
    runs: bool,
) -> Result<Option<PullSecret>, ApiError> {
    if !runs {
        return Ok(None);
    }
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
    let filter = RotationFilter {
        cluster_id,
        statuses: query.words("status")?,
        since: query.time("since")?,
        history_since: Some(now.minus(work.deps.policy.history_after)),
        overdue: query.flag("overdue")?.unwrap_or(false),
        now,
    };
    let (from, limit) = (query.cursor()?, query.limit()?);
    let listed = work.deps.store.list_rotations(&filter, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let mut rotations = Vec::with_capacity(items.len());
    for RotationRow { cluster_id, rotation } in &items {
        // Progress in detail is the single resource's; a list costs one query.
        rotations.push(resource::rotation(cluster_id, rotation, None, &work.deps.policy, now));
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

/// A dry run announces nothing, because it changes nothing.
struct Free;

#[async_trait]
impl Fence for Free {
    async fn is_current(&self) -> bool {
        true
    }
}

/// `dry_run`: reach and rights at each registry of the record, by listing our own accounts.
async fn try_registries(work: &Work, cluster_id: &ClusterId) -> Answer {
    let record = running(work, cluster_id, true).await?.filter(|record| record.served().is_some());
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
    let call = CallContext { deadline: Instant::now() + configured.timeout, fence: Arc::new(Free) };
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
