//! Campaigns: the rotation of many clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::backend::{Backend, Work, caller, store};
use super::fleet::single;
use super::once::{Asked, Replay, Ticket, once};
use super::operate::Nothing;
use crate::actors::campaigns::{audit, tell};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, CampaignInPath, IdempotencyKey, Query, Reason};
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::http::resource::{
    CampaignList, CampaignMemberList, CampaignMemberResource, CampaignResource, Pagination,
};
use crate::ids::{CampaignId, ClusterId, RegistryId};
use crate::state::campaign::{CampaignState, Order, Progress, Rules, ordered};
use crate::state::pull_secret::RotationReason;
use crate::store::{Campaign, CampaignChange, NewCampaign, Page, Selector, StoreError};

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum AskedReason {
    #[default]
    Manual,
    Compromise,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SelectorBody {
    cluster_ids: Option<Vec<ClusterId>>,
    registry: Option<String>,
    older_than: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignBody {
    #[serde(default)]
    reason: AskedReason,
    selector: SelectorBody,
    #[serde(default = "in_flight")]
    max_in_flight: u32,
    #[serde(default = "per_minute")]
    max_per_minute: u32,
    #[serde(default = "canary")]
    canary: u32,
    #[serde(default = "ratio")]
    abort_failure_ratio: f64,
}

const fn in_flight() -> u32 {
    32
}

const fn per_minute() -> u32 {
    60
}

const fn canary() -> u32 {
    5
}

const fn ratio() -> f64 {
    0.1
}

/// No campaign runs more members at once, or begins more per minute.
const MOST: u32 = 1000;
/// See [`MOST`].
const MOST_PER_MINUTE: u32 = 10_000;

impl CampaignBody {
    fn rules(&self) -> Result<Rules, ApiError> {
        let mut errors = Vec::new();
        for (field, value, min, max) in [
            ("max_in_flight", self.max_in_flight, 1, MOST),
            ("max_per_minute", self.max_per_minute, 1, MOST_PER_MINUTE),
            ("canary", self.canary, 0, MOST),
        ] {
            if value < min {
                let rule = Constraint::Min { min_value: i64::from(min) };
                errors.push(FieldError::new(field, rule, format!("must be at least {min}")));
            } else if value > max {
                let rule = Constraint::Max { max_value: i64::from(max) };
                errors.push(FieldError::new(field, rule, format!("must be at most {max}")));
            }
        }
        if !(0.0..=1.0).contains(&self.abort_failure_ratio) {
            let rule = Constraint::Max { max_value: 1 };
            errors.push(FieldError::new("abort_failure_ratio", rule, "must be from 0 to 1"));
        }
        if !errors.is_empty() {
            return Err(ApiError::Fields(errors));
        }
        Ok(Rules {
            max_in_flight: self.max_in_flight,
            max_per_minute: self.max_per_minute,
            canary: self.canary,
            abort_failure_ratio: self.abort_failure_ratio,
        })
    }

    /// The selector, and the members that it names.
    fn selector(&self, work: &Work) -> Result<(Selector, Vec<ClusterId>), ApiError> {
        match (&self.selector.cluster_ids, &self.selector.registry, &self.selector.older_than) {
            (Some(ids), None, None) => named(ids).map(|ids| (Selector::ClusterIds, ids)),
            (None, Some(id), None) => Ok((Selector::Registry(registry(work, id)?), Vec::new())),
            (None, None, Some(age)) => Ok((Selector::OlderThan(duration(age)?), Vec::new())),
            (_, _, _) => {
                let rule = Constraint::Format { format: "see message" };
                let message = "must have exactly one of cluster_ids, registry, older_than";
                Err(ApiError::field(FieldError::new("selector", rule, message)))
            }
        }
    }
}

/// In the order in which they were named, so that whoever asks chooses the canaries.
fn named(ids: &[ClusterId]) -> Result<Vec<ClusterId>, ApiError> {
    if ids.is_empty() {
        let rule = Constraint::MinLength { min_length: 1 };
        let message = "must name at least one cluster";
        return Err(ApiError::field(FieldError::new("selector.cluster_ids", rule, message)));
    }
    let mut seen = BTreeSet::new();
    Ok(ids.iter().filter(|id| seen.insert(*id)).cloned().collect())
}

fn registry(work: &Work, text: &str) -> Result<RegistryId, ApiError> {
    let known: Vec<&str> = work.hosts.keys().map(RegistryId::as_str).collect();
    let found = text.parse::<RegistryId>().ok().filter(|id| work.hosts.contains_key(id));
    found.ok_or_else(|| ApiError::field(FieldError::not_one_of("selector.registry", text, &known)))
}

/// Whole seconds, at least one.
fn duration(text: &str) -> Result<Duration, ApiError> {
    let seconds = humantime::parse_duration(text).map_or(0, |age| age.as_secs());
    if seconds == 0 {
        let rule = Constraint::Format { format: "duration" };
        let message = "must be a duration like 30d, of a second at least";
        return Err(ApiError::field(
            FieldError::new("selector.older_than", rule, message).value(text),
        ));
    }
    Ok(Duration::from_secs(seconds))
}

/// `POST /v1/rotation-campaigns`.
pub async fn create(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    (reason, key): (Reason, IdempotencyKey),
    body: Body<CampaignBody>,
) -> Answer {
    let work = backend.get()?;
    let why = match body.0.reason {
        AskedReason::Manual => RotationReason::Manual,
        AskedReason::Compromise => RotationReason::Compromise,
    };
    let rules = body.0.rules()?;
    let (selector, members) = body.0.selector(work)?;
    let run = async |ticket: &Ticket| {
        let now = work.deps.clock.now();
        let total = u32::try_from(members.len()).map_err(ApiError::internal)?;
        let campaign = Campaign {
            id: CampaignId(Uuid::now_v7()),
            state: CampaignState::Running,
            message: None,
            reason: why,
            gathered: selector == Selector::ClusterIds,
            gathered_to: String::new(),
            selector,
            rules,
            progress: Progress { total, pending: total, ..Progress::default() },
            created_by: who.principal.name.clone(),
            created_at: now,
            state_since: now,
            completed_at: None,
        };
        let location = format!("/v1/rotation-campaigns/{}", campaign.id);
        let caller = caller(&who, &context, reason);
        let new = NewCampaign {
            campaign: &campaign,
            members: &members,
            audit: audit(&campaign, CREATED, &caller, now),
            idempotency: ticket.answer(StatusCode::CREATED, Some(&location), campaign.id),
        };
        work.deps.store.create_campaign(new).await.map_err(|error| store(&error))?;
        tell(&work.deps, &campaign, CREATED, &caller);
        let shown = answer::json(StatusCode::CREATED, &CampaignResource::from(campaign))?;
        Ok(answer::with_location(shown, &location))
    };
    let asked = Asked { key, who: &who, context: &context, body: &body.0 };
    once(work, asked, run, async |replay| again(work, replay).await).await
}

const CREATED: &str = "campaign_created";

async fn again(work: &Work, replay: Replay) -> Answer {
    let id = Uuid::try_parse(&replay.resource_id).map_err(ApiError::internal)?;
    let campaign = known(work, CampaignId(id)).await?;
    let shown = answer::json(replay.status, &CampaignResource::from(campaign))?;
    Ok(match replay.location {
        Some(location) => answer::with_location(shown, &location),
        None => shown,
    })
}

async fn known(work: &Work, id: CampaignId) -> Result<Campaign, ApiError> {
    let found = work.deps.store.campaign(id).await.map_err(|error| store(&error))?;
    found.ok_or_else(ApiError::no_campaign)
}

/// `GET /v1/rotation-campaigns`.
pub async fn list(backend: Data<Backend>, query: Query) -> Answer {
    let work = backend.get()?;
    let (from, limit) = (query.cursor()?, query.limit()?);
    let listed = work.deps.store.list_campaigns(from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let campaigns = items.into_iter().map(Into::into).collect();
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &CampaignList { campaigns, pagination })
}

/// `GET /v1/rotation-campaigns/{campaign_id}`.
pub async fn read(backend: Data<Backend>, campaign: CampaignInPath) -> Answer {
    let campaign = known(backend.get()?, campaign.0).await?;
    answer::json(StatusCode::OK, &CampaignResource::from(campaign))
}

/// `GET /v1/rotation-campaigns/{campaign_id}/clusters`.
pub async fn clusters(backend: Data<Backend>, campaign: CampaignInPath, query: Query) -> Answer {
    let work = backend.get()?;
    let status = single(&query, "status")?;
    let (from, limit) = (query.cursor()?, query.limit()?);
    let CampaignInPath(id) = campaign;
    known(work, id).await?;
    let listed = work.deps.store.list_campaign_members(id, status, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let clusters = items.into_iter().map(CampaignMemberResource::from).collect();
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &CampaignMemberList { clusters, pagination })
}

/// Who wants what of which campaign.
type Wish = (Caller, RequestContext, CampaignInPath, Reason, IdempotencyKey);

/// `/pause`: nothing more begins until somebody says so.
pub async fn pause(backend: Data<Backend>, wish: Wish, body: Body<Nothing>) -> Answer {
    order(backend.get()?, wish, &body.0, Order::Pause).await
}

/// `/resume`.
pub async fn resume(backend: Data<Backend>, wish: Wish, body: Body<Nothing>) -> Answer {
    order(backend.get()?, wish, &body.0, Order::Resume).await
}

/// `/abort`: nothing more begins, ever. What runs goes on by itself.
pub async fn abort(backend: Data<Backend>, wish: Wish, body: Body<Nothing>) -> Answer {
    order(backend.get()?, wish, &body.0, Order::Abort).await
}

async fn order(work: &Work, wish: Wish, body: &Nothing, order: Order) -> Answer {
    let (who, context, CampaignInPath(id), reason, key) = wish;
    let caller = caller(&who, &context, reason);
    let run = async |ticket: &Ticket| {
        let campaign = known(work, id).await?;
        let Some(to) = ordered(campaign.state, order) else { return Err(too_late(&campaign)) };
        let idempotency = ticket.answer(StatusCode::OK, None, id);
        if to == campaign.state {
            if let Some(answer) = &idempotency {
                let stored = work.deps.store.answer_idempotent(answer).await;
                stored.map_err(|error| store(&error))?;
            }
            return answer::json(StatusCode::OK, &CampaignResource::from(campaign));
        }
        let action = action(order);
        let at = work.deps.clock.now();
        let audit = audit(&campaign, action, &caller, at);
        let from = campaign.state;
        let change = CampaignChange { id, from, to, message: None, at, audit, idempotency };
        work.deps.store.change_campaign(change).await.map_err(|error| match error {
            StoreError::Conflict => ApiError::busy("the campaign changed at the same moment"),
            other => store(&other),
        })?;
        tell(&work.deps, &campaign, action, &caller);
        answer::json(StatusCode::OK, &CampaignResource::from(known(work, id).await?))
    };
    let asked = Asked { key, who: &who, context: &context, body };
    once(work, asked, run, async |replay| again(work, replay).await).await
}

const fn action(order: Order) -> &'static str {
    match order {
        Order::Pause => "campaign_paused",
        Order::Resume => "campaign_resumed",
        Order::Abort => "campaign_aborted",
    }
}

fn too_late(campaign: &Campaign) -> ApiError {
    let detail = format!("the campaign is {}", campaign.state);
    Conflict { detail, retryable: Some(false), ..Conflict::default() }.into()
}
