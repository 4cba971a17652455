//! A campaign and its members as clients see them.

use serde::Serialize;

use super::Pagination;
use crate::config::format_duration;
use crate::ids::{CampaignId, ClusterId, RegistryId, RotationId};
use crate::state::campaign::{CampaignState, MemberStatus, Progress, Wave};
use crate::state::pull_secret::RotationReason;
use crate::store::{Campaign, CampaignMember, Selector};
use crate::time::Timestamp;

/// A campaign. Members are listed apart: there may be many.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CampaignResource {
    pub campaign_id: CampaignId,
    pub state: CampaignState,
    pub message: String,
    pub reason: RotationReason,
    pub selector: SelectorResource,
    pub max_in_flight: u32,
    pub max_per_minute: u32,
    pub canary: u32,
    pub abort_failure_ratio: f64,
    pub wave: Wave,
    pub progress: Progress,
    pub created_by: String,
    pub created_at: Timestamp,
    pub state_since: Timestamp,
    pub completed_at: Option<Timestamp>,
}

/// What was selected by; of named clusters only how many, because they are listed apart.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the members of the contract")]
pub enum SelectorResource {
    ClusterCount(u32),
    Registry(RegistryId),
    OlderThan(String),
}

impl From<Campaign> for CampaignResource {
    fn from(campaign: Campaign) -> Self {
        let (rules, progress) = (campaign.rules, campaign.progress);
        let selector = match campaign.selector {
            Selector::ClusterIds => SelectorResource::ClusterCount(progress.total),
            Selector::Registry(id) => SelectorResource::Registry(id),
            Selector::OlderThan(age) => SelectorResource::OlderThan(format_duration(age)),
        };
        Self {
            campaign_id: campaign.id,
            state: campaign.state,
            message: campaign.message.unwrap_or_default(),
            reason: campaign.reason,
            selector,
            max_in_flight: rules.max_in_flight,
            max_per_minute: rules.max_per_minute,
            canary: rules.canary,
            abort_failure_ratio: rules.abort_failure_ratio,
            wave: progress.wave(&rules),
            progress,
            created_by: campaign.created_by,
            created_at: campaign.created_at,
            state_since: campaign.state_since,
            completed_at: campaign.completed_at,
        }
    }
}

/// `GET /v1/rotation-campaigns`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CampaignList {
    pub campaigns: Vec<CampaignResource>,
    pub pagination: Pagination,
}

/// One cluster of a campaign.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CampaignMemberResource {
    pub cluster_id: ClusterId,
    pub status: MemberStatus,
    pub rotation_id: Option<RotationId>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub detail: Option<String>,
}

impl From<CampaignMember> for CampaignMemberResource {
    fn from(member: CampaignMember) -> Self {
        Self {
            cluster_id: member.cluster_id,
            status: member.status,
            rotation_id: member.rotation_id,
            started_at: member.started_at,
            ended_at: member.ended_at,
            detail: member.detail,
        }
    }
}

/// `GET /v1/rotation-campaigns/{campaign_id}/clusters`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CampaignMemberList {
    pub clusters: Vec<CampaignMemberResource>,
    pub pagination: Pagination,
}
