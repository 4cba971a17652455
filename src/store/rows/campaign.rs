//! A row of `campaigns` and one of `campaign_clusters`: their columns and what they mean.

use std::time::Duration;

use sqlx::FromRow;
use uuid::Uuid;

use super::super::{Campaign, CampaignMember, RunningMember, Selector, StoreError};
use super::decode::{maybe_word, small, word};
use crate::ids::{CampaignId, RotationId};
use crate::state::campaign::{Progress, Rules, Seen};
use crate::time::Timestamp;

macro_rules! campaign_columns {
    () => {
        "campaign_id, state, message, reason, selector, selector_value, max_in_flight, \
         max_per_minute, canary, abort_failure_ratio, total, pending, running, succeeded, failed, \
         skipped, gathered, gathered_to, created_by, created_at, state_since, completed_at"
    };
}
pub(in crate::store) use campaign_columns;

/// Binds [`campaign_columns`].
macro_rules! bind_campaign {
    ($query:expr, $campaign:expr) => {{
        let (kind, value) = $crate::store::rows::campaign::selector_columns(&$campaign.selector);
        let (rules, progress) = ($campaign.rules, $campaign.progress);
        $query
            .bind($campaign.id.0)
            .bind(<&'static str>::from($campaign.state))
            .bind($campaign.message.as_deref())
            .bind(<&'static str>::from($campaign.reason))
            .bind(kind)
            .bind(value)
            .bind(i64::from(rules.max_in_flight))
            .bind(i64::from(rules.max_per_minute))
            .bind(i64::from(rules.canary))
            .bind(rules.abort_failure_ratio)
            .bind(i64::from(progress.total))
            .bind(i64::from(progress.pending))
            .bind(i64::from(progress.running))
            .bind(i64::from(progress.succeeded))
            .bind(i64::from(progress.failed))
            .bind(i64::from(progress.skipped))
            .bind($campaign.gathered)
            .bind($campaign.gathered_to.as_str())
            .bind($campaign.created_by.as_str())
            .bind($campaign.created_at)
            .bind($campaign.state_since)
            .bind($campaign.completed_at)
    }};
}
pub(in crate::store) use bind_campaign;

#[derive(FromRow)]
pub(in crate::store) struct CampaignRow {
    campaign_id: Uuid,
    state: String,
    message: Option<String>,
    reason: String,
    selector: String,
    selector_value: Option<String>,
    max_in_flight: i64,
    max_per_minute: i64,
    canary: i64,
    abort_failure_ratio: f64,
    total: i64,
    pending: i64,
    running: i64,
    succeeded: i64,
    failed: i64,
    skipped: i64,
    gathered: bool,
    gathered_to: String,
    created_by: String,
    created_at: Timestamp,
    state_since: Timestamp,
    completed_at: Option<Timestamp>,
}

/// A selector's word and its value. A duration is whole seconds.
pub(in crate::store) fn selector_columns(selector: &Selector) -> (&'static str, Option<String>) {
    match selector {
        Selector::ClusterIds => ("cluster_ids", None),
        Selector::Registry(id) => ("registry", Some(id.to_string())),
        Selector::OlderThan(age) => ("older_than", Some(age.as_secs().to_string())),
    }
}

fn selector(kind: &str, value: Option<&str>) -> Result<Selector, StoreError> {
    match (kind, value) {
        ("cluster_ids", None) => Ok(Selector::ClusterIds),
        ("registry", Some(id)) => Ok(Selector::Registry(word(id, "a registry")?)),
        ("older_than", Some(seconds)) => {
            Ok(Selector::OlderThan(Duration::from_secs(word(seconds, "a number of seconds")?)))
        }
        (_, _) => Err(StoreError::corrupt("an unknown selector of a campaign")),
    }
}

impl TryFrom<CampaignRow> for Campaign {
    type Error = StoreError;
    fn try_from(row: CampaignRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: CampaignId(row.campaign_id),
            state: word(&row.state, "a campaign's state")?,
            message: row.message,
            reason: word(&row.reason, "a reason")?,
            selector: selector(&row.selector, row.selector_value.as_deref())?,
            rules: Rules {
                max_in_flight: small(row.max_in_flight)?,
                max_per_minute: small(row.max_per_minute)?,
                canary: small(row.canary)?,
                abort_failure_ratio: row.abort_failure_ratio,
            },
            progress: Progress {
                total: small(row.total)?,
                pending: small(row.pending)?,
                running: small(row.running)?,
                succeeded: small(row.succeeded)?,
                failed: small(row.failed)?,
                skipped: small(row.skipped)?,
            },
            gathered: row.gathered,
            gathered_to: row.gathered_to,
            created_by: row.created_by,
            created_at: row.created_at,
            state_since: row.state_since,
            completed_at: row.completed_at,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct MemberRow {
    position: i64,
    cluster_id: String,
    status: String,
    rotation_id: Option<Uuid>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    detail: Option<String>,
}

impl TryFrom<MemberRow> for CampaignMember {
    type Error = StoreError;
    fn try_from(row: MemberRow) -> Result<Self, StoreError> {
        Ok(Self {
            position: small(row.position)?,
            cluster_id: word(&row.cluster_id, "a cluster id")?,
            status: word(&row.status, "a member's status")?,
            rotation_id: row.rotation_id.map(RotationId),
            started_at: row.started_at,
            ended_at: row.ended_at,
            detail: row.detail,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct RunningRow {
    cluster_id: String,
    rotation_id: Uuid,
    status: Option<String>,
    phase: Option<String>,
    promoted_at: Option<Timestamp>,
    error_code: Option<String>,
}

impl TryFrom<RunningRow> for RunningMember {
    type Error = StoreError;
    fn try_from(row: RunningRow) -> Result<Self, StoreError> {
        let status = maybe_word(row.status.as_deref(), "a rotation's status")?;
        let seen = status.map(|status| Seen {
            status,
            rolling_back: row.phase.as_deref() == Some("rolling_back"),
            promoted: row.promoted_at.is_some(),
            error_code: row.error_code,
        });
        let cluster_id = word(&row.cluster_id, "a cluster id")?;
        Ok(Self { cluster_id, rotation_id: RotationId(row.rotation_id), seen })
    }
}
