//! Campaigns and their members.

use async_trait::async_trait;

use super::super::campaigns::{MINUTE, Moved, campaign_start, ended_at, is_over, member_start};
use super::super::cursor::Key;
use super::super::{
    Campaign, CampaignChange, CampaignMember, Campaigns, Cursor, MemberResult, NewCampaign, Page,
    RunningMember, Selector, StoreError,
};
use super::lists::number;
use super::{MemoryStore, Record, Tables};
use crate::ids::{CampaignId, ClusterId, RotationId};
use crate::state::campaign::{CampaignState, Load, MemberStatus, Seen};
use crate::state::pull_secret::{AccountPhase, RotationPhase, StateName};
use crate::time::Timestamp;

/// A campaign as the databases have it.
#[derive(Debug, Clone)]
pub(super) struct CampaignEntry {
    campaign: Campaign,
    members: Vec<CampaignMember>,
    driven_until: Option<Timestamp>,
}

impl CampaignEntry {
    /// When it ended, once nothing of it runs any more.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.campaign.completed_at.filter(|_| self.campaign.progress.running == 0)
    }

    fn add(&mut self, cluster_id: ClusterId) {
        let position = u32::try_from(self.members.len() + 1).unwrap_or(u32::MAX);
        self.members.push(CampaignMember {
            position,
            cluster_id,
            status: MemberStatus::Pending,
            rotation_id: None,
            started_at: None,
            ended_at: None,
            detail: None,
        });
    }
}

#[async_trait]
impl Campaigns for MemoryStore {
    async fn create_campaign(&self, new: NewCampaign<'_>) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if let Some(answer) = &new.idempotency {
            tables.answer(answer)?;
        }
        let campaign = new.campaign.clone();
        let driven_until = Some(campaign.created_at);
        let mut entry = CampaignEntry { campaign, members: Vec::new(), driven_until };
        new.members.iter().for_each(|id| entry.add(id.clone()));
        tables.campaigns.insert(new.campaign.id, entry);
        tables.append_audit(&[new.audit], self.seal());
        Ok(())
    }

    async fn campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        Ok(self.tables().campaigns.get(&id).map(|entry| entry.campaign.clone()))
    }

    async fn list_campaigns(
        &self,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Campaign>, StoreError> {
        let start = campaign_start(cursor)?;
        let tables = self.tables();
        let total = number(tables.campaigns.len());
        let rows = tables.campaigns.values().rev().map(|entry| entry.campaign.clone());
        let rows = rows.filter(|campaign| campaign.id.0 < start).collect();
        let key = |campaign: &Campaign| Key::Campaign { id: campaign.id };
        Ok(Page::cut(rows, limit, Some(total), key))
    }

    async fn list_campaign_members(
        &self,
        id: CampaignId,
        status: Option<MemberStatus>,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<CampaignMember>, StoreError> {
        let start = member_start(cursor)?;
        let tables = self.tables();
        let members = tables.campaigns.get(&id).map(|entry| entry.members.as_slice());
        let fits = |member: &&CampaignMember| {
            member.position > start && status.is_none_or(|status| member.status == status)
        };
        let rows = members.unwrap_or_default().iter().filter(fits).cloned().collect();
        let key = |member: &CampaignMember| Key::Member { position: member.position };
        Ok(Page::cut(rows, limit, None, key))
    }

    async fn change_campaign(&self, change: CampaignChange) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let entry = tables.campaigns.get(&change.id);
        if entry.is_none_or(|entry| entry.campaign.state != change.from) {
            return Err(StoreError::Conflict);
        }
        if let Some(answer) = &change.idempotency {
            tables.answer(answer)?;
        }
        if let Some(entry) = tables.campaigns.get_mut(&change.id) {
            let campaign = &mut entry.campaign;
            campaign.state = change.to;
            campaign.message.clone_from(&change.message);
            campaign.state_since = change.at;
            campaign.completed_at = ended_at(&change);
        }
        tables.append_audit(&[change.audit], self.seal());
        Ok(())
    }

    async fn claim_campaigns(
        &self,
        now: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError> {
        let mut tables = self.tables();
        let free = tables.campaigns.values_mut();
        let free = free.filter(|entry| entry.driven_until.is_some_and(|until| until <= now));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = free.take(limit).map(|entry| {
            entry.driven_until = Some(until);
            entry.campaign.clone()
        });
        Ok(taken.collect())
    }

    async fn release_campaign(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let held = |entry: &&mut CampaignEntry| entry.driven_until == Some(taken_until);
        if let Some(entry) = tables.campaigns.get_mut(&id).filter(held) {
            let campaign = &entry.campaign;
            let over = is_over(campaign.state, campaign.progress.running);
            entry.driven_until = (!over).then_some(now);
        }
        Ok(())
    }

    async fn gather_members(&self, campaign: &Campaign, batch: u32) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        if campaign.selector == Selector::ClusterIds {
            return Ok(true);
        }
        let batch = usize::try_from(batch).unwrap_or(usize::MAX);
        let found = tables.found(campaign, batch);
        let last = found.len() < batch;
        let entry = tables.campaigns.get_mut(&campaign.id).ok_or(StoreError::Conflict)?;
        if entry.campaign.gathered || entry.campaign.gathered_to != campaign.gathered_to {
            return Err(StoreError::Conflict);
        }
        if let Some(to) = found.last() {
            entry.campaign.gathered_to = to.to_string();
        }
        let more = u32::try_from(found.len()).unwrap_or(u32::MAX);
        entry.campaign.gathered = last;
        entry.campaign.progress.total += more;
        entry.campaign.progress.pending += more;
        found.into_iter().for_each(|id| entry.add(id));
        Ok(last)
    }

    async fn running_members(
        &self,
        id: CampaignId,
        limit: u32,
    ) -> Result<Vec<RunningMember>, StoreError> {
        let tables = self.tables();
        let Some(entry) = tables.campaigns.get(&id) else { return Ok(Vec::new()) };
        let running = entry.members.iter().filter(|m| m.status == MemberStatus::Running);
        let running = running.filter_map(|member| {
            let (cluster_id, rotation_id) = (member.cluster_id.clone(), member.rotation_id?);
            Some(RunningMember { cluster_id, rotation_id, seen: tables.seen(rotation_id) })
        });
        Ok(running.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
    }

    async fn begin_members(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        rotations: &[RotationId],
        now: Timestamp,
    ) -> Result<Vec<(ClusterId, RotationId)>, StoreError> {
        let mut tables = self.tables();
        let runs = |entry: &&mut CampaignEntry| {
            entry.campaign.state == CampaignState::Running
                && entry.driven_until == Some(taken_until)
        };
        let Some(entry) = tables.campaigns.get_mut(&id).filter(runs) else { return Ok(Vec::new()) };
        let pending = entry.members.iter_mut().filter(|m| m.status == MemberStatus::Pending);
        let begun: Vec<_> = pending
            .zip(rotations)
            .map(|(member, rotation_id)| {
                member.status = MemberStatus::Running;
                member.rotation_id = Some(*rotation_id);
                member.started_at = Some(now);
                (member.cluster_id.clone(), *rotation_id)
            })
            .collect();
        let count = u32::try_from(begun.len()).unwrap_or(u32::MAX);
        entry.campaign.progress.pending -= count;
        entry.campaign.progress.running += count;
        Ok(begun)
    }

    async fn settle_members(
        &self,
        id: CampaignId,
        results: &[MemberResult],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let Some(entry) = tables.campaigns.get_mut(&id) else { return Ok(0) };
        let mut moved = Moved::default();
        for result in results {
            let member = entry.members.iter_mut().find(|member| {
                member.cluster_id == result.cluster_id
                    && member.rotation_id == Some(result.rotation_id)
                    && member.status == MemberStatus::Running
            });
            if let Some(member) = member {
                member.status = result.status;
                member.detail.clone_from(&result.detail);
                member.ended_at = Some(now);
                moved.count(result.status);
            }
        }
        let progress = &mut entry.campaign.progress;
        progress.running -= moved.all();
        progress.succeeded += moved.succeeded;
        progress.failed += moved.failed;
        progress.skipped += moved.skipped;
        Ok(u64::from(moved.all()))
    }

    async fn campaign_load(&self, id: CampaignId, now: Timestamp) -> Result<Load, StoreError> {
        let tables = self.tables();
        let Some(entry) = tables.campaigns.get(&id) else { return Ok(Load::default()) };
        let since = now.minus(MINUTE);
        let begun = |member: &&CampaignMember| member.started_at.is_some_and(|at| at > since);
        let deleting = |member: &&CampaignMember| {
            member.status != MemberStatus::Running && tables.deletes(member, now)
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Load {
            begun: count(entry.members.iter().filter(begun).count()),
            deleting: count(entry.members.iter().filter(deleting).count()),
        })
    }
}

impl Tables {
    fn found(&self, campaign: &Campaign, limit: usize) -> Vec<ClusterId> {
        let fits = |(id, row): &(&ClusterId, &Record)| {
            let state = &row.state;
            let serves = matches!(state.state.name(), StateName::Active | StateName::Rotating);
            let selected = match &campaign.selector {
                Selector::ClusterIds => false,
                Selector::Registry(registry) => state.registries.contains(registry),
                Selector::OlderThan(age) => {
                    let rotated = state.last_rotated_at.unwrap_or(state.created_at);
                    rotated <= campaign.created_at.minus(*age)
                }
            };
            id.as_str() > campaign.gathered_to.as_str() && serves && selected
        };
        self.records.iter().filter(fits).take(limit).map(|(id, _)| id.clone()).collect()
    }

    fn seen(&self, id: RotationId) -> Option<Seen> {
        let rotation = &self.rotations.get(&id)?.rotation;
        let error = match &rotation.phase {
            RotationPhase::RemovingNew { end } | RotationPhase::Ended(end) => end.error(),
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. } => None,
        };
        Some(Seen {
            status: rotation.status(),
            rolling_back: matches!(rotation.phase, RotationPhase::RollingBack { .. }),
            promoted: rotation.promoted_at.is_some(),
            error_code: error.map(|error| error.code.clone()),
        })
    }

    fn deletes(&self, member: &CampaignMember, now: Timestamp) -> bool {
        let Some(record) = self.records.get(&member.cluster_id) else { return false };
        let running = record.state.rotation().map(|rotation| rotation.id);
        running.is_some()
            && running == member.rotation_id
            && record.state.accounts.iter().any(|account| {
                account.phase == AccountPhase::Deleting && account.next_attempt_at <= now
            })
    }
}
