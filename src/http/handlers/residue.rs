//! Giving up what a registry does not let go. Only by force: whoever does it vouches for what is left there.

use actix_web::http::StatusCode;
use actix_web::web::Data;

use super::backend::{Backend, caller, store};
use crate::actors::shard::CommandError;
use crate::actors::step::StepError;
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Cluster, Query, Reason};
use crate::http::problem::{ApiError, FieldError};
use crate::http::resource::{GivenUp, GivenUpList};
use crate::ids::RegistryId;
use crate::state::pull_secret::{AccountPhase, Command, Rejection, StateName};

/// `DELETE .../pull-secrets/residue`: the accounts stay at their registry, and their names stay known for ever.
/// `X-Reason` is required, because nothing else will tell why.
pub async fn give_up(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    reason: Reason,
    query: Query,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    if reason.0.is_none() {
        return Err(ApiError::field(FieldError::required("X-Reason")));
    }
    // Also one that is not configured any more: that is when it is needed most.
    let registry: Option<RegistryId> = query.parsed("registry")?;
    let loaded = work.deps.store.load(&cluster_id).await.map_err(|error| store(&error))?;
    let record = loaded.record.filter(|record| record.state.name() != StateName::Revoked);
    let record = record.ok_or_else(|| ApiError::no_pull_secret(cluster_id.clone()))?;
    let caller = caller(&who, &context, reason);
    let mut given_up = Vec::new();
    for account in &record.accounts {
        let wanted = registry.as_ref().is_none_or(|id| account.registry_id == *id);
        if account.phase != AccountPhase::Residue || !wanted {
            continue;
        }
        let command = Command::ForceGone { account_id: account.id };
        match work.shards.execute(&cluster_id, command, caller.clone()).await {
            Ok(_) => given_up.push(GivenUp::of(account)),
            // Its registry, or somebody else, was quicker.
            Err(CommandError::Step(StepError::Rejected(
                Rejection::NotInUse | Rejection::State { .. } | Rejection::NoRecord,
            ))) => {}
            Err(error) => return Err(work.refused(&cluster_id, &error)),
        }
    }
    answer::json(StatusCode::OK, &GivenUpList { cluster_id, given_up })
}
