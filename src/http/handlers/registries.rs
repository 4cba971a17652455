//! Registries: how they are, comparing their accounts with ours, and a restore that has to be acknowledged.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use serde::Deserialize;

use super::backend::{Backend, Work, caller, store};
use super::operate::Nothing;
use crate::actors::restored;
use crate::actors::sweeper::{self, SweepError, sweep::Kind};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, Reason};
use crate::http::problem::{ApiError, Conflict, FieldError};
use crate::http::resource::{self, RegistryList, RestoredResource};
use crate::ids::RegistryId;

/// `GET /v1/registries`.
pub async fn list(backend: Data<Backend>) -> Answer {
    let work = backend.get()?;
    let deps = &work.deps;
    let states = deps.store.sweep_states().await.map_err(|error| store(&error))?;
    let restored = deps.store.restored().await.map_err(|error| store(&error))?;
    let now = deps.clock.now();
    let registries = deps.registries.iter().map(|(id, configured)| {
        let sweep = states.iter().find(|state| state.registry_id == *id);
        resource::registry(id, configured, deps.policy.registry(id).enabled, sweep, now)
    });
    let registries = registries.collect();
    let restored = restored.map(RestoredResource::from);
    answer::json(StatusCode::OK, &RegistryList { registries, restored })
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SweepBody {
    delete: bool,
}

/// `POST /v1/registries/{registry_id}/sweeps`: answers when the listing was compared; deletions go on by
/// themselves.
pub async fn sweep(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    path: Path<String>,
    reason: Reason,
    body: Body<SweepBody>,
) -> Answer {
    let work = backend.get()?;
    let registry_id = known(work, &path)?;
    let kind = if body.0.delete { Kind::Asked } else { Kind::Dry };
    let caller = caller(&who, &context, reason);
    let (deps, shards, id) = (work.deps.clone(), work.shards.clone(), registry_id.clone());
    // A client that goes away must not leave the registry taken.
    let swept =
        actix_web::rt::spawn(
            async move { sweeper::sweep(&deps, &shards, &id, kind, &caller).await },
        );
    let report = swept.await.map_err(ApiError::internal)?.map_err(|error| refused(&error))?;
    let shown = resource::sweep_report(registry_id, report, kind == Kind::Dry);
    answer::json(StatusCode::OK, &shown)
}

fn known(work: &Work, text: &str) -> Result<RegistryId, ApiError> {
    let known: Vec<&str> = work.hosts.keys().map(RegistryId::as_str).collect();
    let id = text.parse::<RegistryId>().ok().filter(|id| work.hosts.contains_key(id));
    id.ok_or_else(|| ApiError::Path(Box::new(FieldError::not_one_of("registry_id", text, &known))))
}

fn refused(error: &SweepError) -> ApiError {
    match error {
        SweepError::Running => conflict(error.to_string()),
        SweepError::Unknown => ApiError::internal(error),
        SweepError::Registry(_) => ApiError::busy(error.to_string()),
        SweepError::Store(error) => store(error),
    }
}

fn conflict(detail: String) -> ApiError {
    Conflict { detail, retryable: Some(true), ..Conflict::default() }.into()
}

/// `POST /v1/restored/acknowledge`: an operator has seen that the database was restored.
pub async fn acknowledge(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    reason: Reason,
    _body: Body<Nothing>,
) -> Answer {
    let work = backend.get()?;
    let caller = caller(&who, &context, reason);
    let done = restored::acknowledge(&work.deps, &caller).await.map_err(|error| store(&error))?;
    match done {
        Some(restored) => answer::json(StatusCode::OK, &RestoredResource::from(restored)),
        None => Err(Conflict {
            detail: "no restore waits for an acknowledgement".to_owned(),
            retryable: Some(false),
            ..Conflict::default()
        }
        .into()),
    }
}
