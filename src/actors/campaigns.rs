//! Drives campaigns: settles what came to a result, lets the next ones begin.
//!
//! Level-triggered: everything follows from the rows. A member is `running` with the id of its rotation before
//! that is asked for, so a rotation that is missing is simply asked for again, whoever died in between. Which
//! comes next is decided in `state::campaign`; this only carries it out.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use super::audit::Caller;
use super::deps::Deps;
use super::shard::CommandError;
use super::step::StepError;
use super::system::Shards;
use crate::ids::{CampaignId, ClusterId, RotationId};
use crate::state::campaign::{self, CampaignState, MemberStatus, Next};
use crate::state::pull_secret::{Command, Rejection};
use crate::store::{AuditRow, Campaign, CampaignChange, MemberResult, RunningMember, StoreError};
use crate::time::Timestamp;

/// So many campaigns per look.
const CAMPAIGNS: u32 = 16;
/// So many clusters are looked at per transaction while members are gathered, so often per look.
const PAGE: u32 = 500;
/// See [`PAGE`].
const PAGES: usize = 4;
/// So many members run at most; the API allows no greater `max_in_flight`.
const MEMBERS: u32 = 1000;
/// So many rotations are asked for side by side.
const AT_ONCE: usize = 32;
/// Whoever drives and dies is followed after so many looks of the scheduler, at least.
const PATIENCE: u32 = 4;

/// One look at every campaign that nobody else drives.
///
/// # Errors
/// [`StoreError`] when campaigns cannot be taken. One that fails does not stop the others.
pub async fn drive(deps: &Arc<Deps>, shards: &Shards) -> Result<(), StoreError> {
    let now = deps.clock.now();
    let until = now.plus(deps.tuning.lease.max(deps.tuning.tick * PATIENCE));
    for campaign in deps.store.claim_campaigns(now, until, CAMPAIGNS).await? {
        let id = campaign.id;
        let driver = Driver { deps, shards, campaign, until };
        match driver.run().await {
            // Somebody changed it meanwhile: the next look finds it as it is then.
            Ok(()) | Err(StoreError::Conflict) => {}
            Err(error) => tracing::warn!(campaign_id = %id, %error, "a campaign was not driven"),
        }
        deps.store.release_campaign(id, until, deps.clock.now()).await?;
    }
    Ok(())
}

struct Driver<'a> {
    deps: &'a Arc<Deps>,
    shards: &'a Shards,
    campaign: Campaign,
    /// Until then it is ours.
    until: Timestamp,
}

impl Driver<'_> {
    async fn run(mut self) -> Result<(), StoreError> {
        if self.campaign.progress.running > 0 {
            self.settle().await?;
        }
        if self.campaign.state != CampaignState::Running {
            return Ok(());
        }
        for _ in 0..PAGES {
            if self.campaign.gathered {
                break;
            }
            self.deps.store.gather_members(&self.campaign, PAGE).await?;
            self.reload().await?;
        }
        if !self.campaign.gathered {
            return Ok(());
        }
        let load = self.deps.store.campaign_load(self.campaign.id, self.deps.clock.now()).await?;
        match campaign::next(&self.campaign.rules, &self.campaign.progress, load) {
            Next::Begin(count) => self.begin(count.min(MEMBERS)).await,
            Next::Wait => Ok(()),
            Next::Stop => {
                let progress = &self.campaign.progress;
                let message =
                    format!("{} of {} rotations failed", progress.failed, progress.tested());
                self.change(CampaignState::Aborted, Some(message)).await
            }
            Next::Complete => self.change(CampaignState::Completed, None).await,
        }
    }

    async fn reload(&mut self) -> Result<(), StoreError> {
        let found = self.deps.store.campaign(self.campaign.id).await?;
        self.campaign = found.ok_or(StoreError::Conflict)?;
        Ok(())
    }

    /// What became of those that run; whose rotation is missing is asked for it.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let members = self.deps.store.running_members(self.campaign.id, MEMBERS).await?;
        let mut results = Vec::new();
        let mut missing = Vec::new();
        for RunningMember { cluster_id, rotation_id, seen } in members {
            match seen {
                Some(seen) => results.extend(campaign::result(&seen).map(|(status, detail)| {
                    MemberResult { cluster_id, rotation_id, status, detail }
                })),
                None => missing.push((cluster_id, rotation_id)),
            }
        }
        match self.campaign.state {
            CampaignState::Running => results.extend(self.ask(missing).await),
            CampaignState::Paused => {}
            CampaignState::Aborted | CampaignState::Completed => {
                let skipped =
                    missing.into_iter().map(|(id, rotation)| skipped(id, rotation, "aborted"));
                results.extend(skipped);
            }
        }
        self.store(&results).await
    }

    async fn begin(&mut self, count: u32) -> Result<(), StoreError> {
        let ids: Vec<RotationId> = (0..count).map(|_| RotationId(Uuid::now_v7())).collect();
        let now = self.deps.clock.now();
        let begun = self.deps.store.begin_members(self.campaign.id, self.until, &ids, now).await?;
        let results = self.ask(begun).await;
        self.store(&results).await
    }

    async fn store(&mut self, results: &[MemberResult]) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let now = self.deps.clock.now();
        self.deps.store.settle_members(self.campaign.id, results, now).await?;
        for result in results {
            self.deps.metrics.campaign_cluster(result.status.into());
        }
        self.reload().await
    }

    /// Asks for rotations; answers those that cannot be had.
    async fn ask(&self, members: Vec<(ClusterId, RotationId)>) -> Vec<MemberResult> {
        let mut results = Vec::new();
        for some in members.chunks(AT_ONCE) {
            let asked =
                some.iter().map(|(cluster_id, rotation_id)| self.ask_one(cluster_id, *rotation_id));
            results.extend(join_all(asked).await.into_iter().flatten());
        }
        results
    }

    async fn ask_one(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Option<MemberResult> {
        let reason = self.campaign.reason;
        let command = Command::Rotate { rotation_id, reason, force_immediate: false };
        let caller = Caller {
            reason: Some(format!("campaign {}", self.campaign.id)),
            ..Caller::service("campaign")
        };
        let word = match self.shards.execute(cluster_id, command, caller).await {
            Ok(_) => return None,
            Err(CommandError::Step(StepError::Rejected(rejection))) => {
                why(&rejection, rotation_id)?
            }
            // The next look asks again.
            Err(error) => {
                let campaign_id = self.campaign.id;
                tracing::debug!(%campaign_id, %cluster_id, %error, "a member was not reached");
                return None;
            }
        };
        Some(skipped(cluster_id.clone(), rotation_id, &word))
    }

    async fn change(&self, to: CampaignState, message: Option<String>) -> Result<(), StoreError> {
        let action = match to {
            CampaignState::Aborted => "campaign_stopped",
            CampaignState::Completed => "campaign_completed",
            CampaignState::Running => "campaign_resumed",
            CampaignState::Paused => "campaign_paused",
        };
        let at = self.deps.clock.now();
        let caller = Caller::service("campaign");
        let change = CampaignChange {
            id: self.campaign.id,
            from: self.campaign.state,
            to,
            message,
            at,
            audit: audit(&self.campaign, action, &caller, at),
            idempotency: None,
        };
        self.deps.store.change_campaign(change).await?;
        tell(self.deps, &self.campaign, action, &caller);
        Ok(())
    }
}

fn skipped(cluster_id: ClusterId, rotation_id: RotationId, word: &str) -> MemberResult {
    let (status, detail) = (MemberStatus::Skipped, Some(word.to_owned()));
    MemberResult { cluster_id, rotation_id, status, detail }
}

/// Why a cluster cannot be rotated, in a word; none when it is being rotated as we asked.
fn why(rejection: &Rejection, ours: RotationId) -> Option<String> {
    match rejection {
        Rejection::RotationRunning { rotation_id, .. } if *rotation_id == ours => None,
        Rejection::State { state } => Some(format!("state_{state}")),
        Rejection::RotationRunning { .. }
        | Rejection::NoRecord
        | Rejection::NotThatRotation
        | Rejection::Phase { .. }
        | Rejection::UnknownRegistry(_)
        | Rejection::NoRegistry
        | Rejection::RegistryMissing(_)
        | Rejection::NotServed { .. }
        | Rejection::NotInUse
        | Rejection::TooManyConsumers { .. }
        | Rejection::NotCurrent
        | Rejection::Quarantined { .. }
        | Rejection::TimePassed { .. } => Some(rejection.as_ref().to_owned()),
    }
}

/// What the audit tells of a campaign: a chain of its own.
#[must_use]
pub fn audit(campaign: &Campaign, action: &str, caller: &Caller, at: Timestamp) -> AuditRow {
    AuditRow {
        stream: stream(campaign.id),
        at,
        actor: caller.actor.clone(),
        action: action.to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: None,
        generation: None,
        detail: json!({
            "campaign_id": campaign.id,
            "rotation_reason": campaign.reason.as_ref(),
            "progress": campaign.progress,
            "rules": campaign.rules,
        }),
        reason: caller.reason.clone(),
        request_id: caller.request_id.clone(),
    }
}

fn stream(id: CampaignId) -> String {
    format!("campaign/{id}")
}

/// Counts and logs a change of a campaign's state that was stored.
pub fn tell(deps: &Deps, campaign: &Campaign, action: &'static str, caller: &Caller) {
    deps.metrics.campaign(action);
    let campaign::Progress { total, pending, running, succeeded, failed, skipped } =
        campaign.progress;
    tracing::info!(
        campaign_id = %campaign.id,
        event_name = action,
        actor = caller.actor,
        request_id = caller.request_id.as_deref(),
        total,
        pending,
        running,
        succeeded,
        failed,
        skipped,
        "campaign"
    );
}
