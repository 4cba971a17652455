//! Campaigns: one row each, and one row per member, so that ten thousand of them are paged and never one text.
//!
//! A replica drives a campaign under a lease. What keeps two from doing the same is not the lease but each
//! member's row: it is `running` with the id of its rotation before that rotation is asked for.

use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

use super::audit::AuditRow;
use super::cursor::Key;
use super::idempotency::IdempotencyAnswer;
use super::{Cursor, CursorError, Page, StoreError};
use crate::ids::{CampaignId, ClusterId, RegistryId, RotationId};
use crate::state::campaign::{CampaignState, Load, MemberStatus, Progress, Rules, Seen};
use crate::state::pull_secret::RotationReason;
use crate::time::Timestamp;

/// A campaign, without its members.
#[derive(Debug, Clone, PartialEq)]
pub struct Campaign {
    /// Its identity.
    pub id: CampaignId,
    /// What it is doing.
    pub state: CampaignState,
    /// Why, where it stopped by itself.
    pub message: Option<String>,
    /// The reason of its rotations.
    pub reason: RotationReason,
    /// Who its members are.
    pub selector: Selector,
    /// Its rules.
    pub rules: Rules,
    /// How far it is.
    pub progress: Progress,
    /// Whether all members were found. Until then none begins.
    pub gathered: bool,
    /// The last cluster that was looked at.
    pub gathered_to: String,
    /// Who asked for it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Since when it is in its state.
    pub state_since: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// Who the members of a campaign are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Those that were named.
    ClusterIds,
    /// All with an account at this registry.
    Registry(RegistryId),
    /// All that were last rotated, or made, so long before the campaign.
    OlderThan(Duration),
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignMember {
    /// Its place in the order.
    pub position: u32,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// What became of it.
    pub status: MemberStatus,
    /// Its rotation, from the moment in which it begins.
    pub rotation_id: Option<RotationId>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it came to its result.
    pub ended_at: Option<Timestamp>,
    /// Why it was skipped or failed, in a word.
    pub detail: Option<String>,
}

/// A member that runs, and its rotation, where that was asked for already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningMember {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The id that its rotation has or will have.
    pub rotation_id: RotationId,
    /// What is seen of it.
    pub seen: Option<Seen>,
}

/// The result of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberResult {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Its rotation, by which a late word is told from the right one.
    pub rotation_id: RotationId,
    /// The result.
    pub status: MemberStatus,
    /// Why, in a word.
    pub detail: Option<String>,
}

/// A new campaign and what is written with it.
#[derive(Debug, Clone)]
pub struct NewCampaign<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// The members that were named.
    pub members: &'a [ClusterId],
    /// What the audit tells.
    pub audit: AuditRow,
    /// What a repeated request is answered.
    pub idempotency: Option<IdempotencyAnswer>,
}

/// A change of a campaign's state and what is written with it.
#[derive(Debug, Clone)]
pub struct CampaignChange {
    /// Which.
    pub id: CampaignId,
    /// The state that it was decided on.
    pub from: CampaignState,
    /// The new one.
    pub to: CampaignState,
    /// Why.
    pub message: Option<String>,
    /// When.
    pub at: Timestamp,
    /// What the audit tells.
    pub audit: AuditRow,
    /// What a repeated request is answered.
    pub idempotency: Option<IdempotencyAnswer>,
}

/// Everything about campaigns.
#[async_trait]
pub trait Campaigns {
    /// Stores a campaign.
    async fn create_campaign(&self, new: NewCampaign<'_>) -> Result<(), StoreError>;
    /// One campaign.
    async fn campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError>;
    /// Campaigns, newest first.
    async fn list_campaigns(
        &self,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Campaign>, StoreError>;
    /// Members in their order.
    async fn list_campaign_members(
        &self,
        id: CampaignId,
        status: Option<MemberStatus>,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<CampaignMember>, StoreError>;
    /// Changes the state; `Conflict` when it is another one by now.
    async fn change_campaign(&self, change: CampaignChange) -> Result<(), StoreError>;
    /// Takes campaigns that have something to do and that nobody drives, until then.
    async fn claim_campaigns(
        &self,
        now: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError>;
    /// Gives a campaign back that was taken until then. One that is over is not taken again.
    async fn release_campaign(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Looks at the next clusters and makes those that fit members; true when there are no more.
    async fn gather_members(&self, campaign: &Campaign, batch: u32) -> Result<bool, StoreError>;
    /// Members that run, with what is seen of their rotations.
    async fn running_members(
        &self,
        id: CampaignId,
        limit: u32,
    ) -> Result<Vec<RunningMember>, StoreError>;
    /// Lets the next members begin, one per rotation id, while the campaign runs and whoever took it until then
    /// still has it: what room there is was counted by that one.
    async fn begin_members(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        rotations: &[RotationId],
        now: Timestamp,
    ) -> Result<Vec<(ClusterId, RotationId)>, StoreError>;
    /// Stores results; those of members that do not run any more change nothing. Answers how many did.
    async fn settle_members(
        &self,
        id: CampaignId,
        results: &[MemberResult],
        now: Timestamp,
    ) -> Result<u64, StoreError>;
    /// What else takes a campaign's room.
    async fn campaign_load(&self, id: CampaignId, now: Timestamp) -> Result<Load, StoreError>;
}

/// `begun` in a campaign's load looks back so far.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// Where a list of campaigns begins, newest first.
pub(super) fn campaign_start(cursor: Option<&Cursor>) -> Result<Uuid, CursorError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok(Uuid::max()),
        Some(Key::Campaign { id }) => Ok(id.0),
        Some(
            Key::Rotation { .. }
            | Key::PullSecret { .. }
            | Key::Attention { .. }
            | Key::Audit { .. }
            | Key::Member { .. }
            | Key::Revocation { .. },
        ) => Err(CursorError::OtherList),
    }
}

/// Where a list of members begins; positions count from 1.
pub(super) fn member_start(cursor: Option<&Cursor>) -> Result<u32, CursorError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok(0),
        Some(Key::Member { position }) => Ok(*position),
        Some(
            Key::Rotation { .. }
            | Key::PullSecret { .. }
            | Key::Attention { .. }
            | Key::Audit { .. }
            | Key::Campaign { .. }
            | Key::Revocation { .. },
        ) => Err(CursorError::OtherList),
    }
}

/// Whether nobody has to look at it any more.
pub(super) const fn is_over(state: CampaignState, running: u32) -> bool {
    match state {
        CampaignState::Completed | CampaignState::Aborted => running == 0,
        CampaignState::Running | CampaignState::Paused => false,
    }
}

/// When a change ends the campaign.
pub(super) const fn ended_at(change: &CampaignChange) -> Option<Timestamp> {
    match change.to {
        CampaignState::Completed | CampaignState::Aborted => Some(change.at),
        CampaignState::Running | CampaignState::Paused => None,
    }
}

/// By how much results change the counters: running, succeeded, failed, skipped.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) succeeded: u32,
    pub(super) failed: u32,
    pub(super) skipped: u32,
}

impl Moved {
    /// Counts one result.
    pub(super) fn count(&mut self, status: MemberStatus) {
        match status {
            MemberStatus::Succeeded => self.succeeded += 1,
            MemberStatus::Failed => self.failed += 1,
            MemberStatus::Skipped => self.skipped += 1,
            // Not a result.
            MemberStatus::Pending | MemberStatus::Running => {}
        }
    }

    pub(super) const fn all(&self) -> u32 {
        self.succeeded + self.failed + self.skipped
    }
}
