//! One step: everything is checked before anything is written.

use std::collections::BTreeSet;

use super::super::commit::{AccountChange, Changes, RecordChange, RotationChange};
use super::super::{AuditSeal, Commit, PurgeBefore, Purged, RotationRow, StoreError};
use super::campaigns::CampaignEntry;
use super::lists::number;
use super::{AccountRow, ClusterRow, Record, Tables};
use crate::ids::{ClusterId, Generation};
use crate::state::pull_secret::{PullSecret, Rotation, RotationPhase, RotationStatus};

impl Tables {
    pub(super) fn commit(
        &mut self,
        commit: &Commit<'_>,
        seal: Option<&dyn AuditSeal>,
    ) -> Result<u64, StoreError> {
        let changes = Changes::between(commit)?;
        let known = self.clusters.get(commit.cluster_id).copied();
        let (version, last) =
            known.map_or((0, Generation::NONE), |row| (row.version, row.last_generation));
        if version != commit.expected_version {
            return Err(StoreError::Conflict);
        }
        let stored = self.records.get(commit.cluster_id).map(|record| record.ownership.epoch);
        if let (RecordChange::Write(_), Some(epoch)) = (&changes.record, stored)
            && epoch != commit.ownership.epoch
        {
            return Err(StoreError::Conflict);
        }
        self.check(commit, &changes)?;
        self.check_turn(commit)?;
        if let Some(answer) = &commit.idempotency {
            self.answer(answer)?;
        }
        let last_generation = last.max(changes.last_generation);
        let row = ClusterRow { version: version + 1, last_generation };
        self.clusters.insert(commit.cluster_id.clone(), row);
        self.write(commit, &changes);
        self.write_turn(commit);
        self.append_audit(&commit.audit, seal);
        self.outbox.extend(commit.outbox.iter().cloned());
        Ok(version + 1)
    }

    /// What the databases' constraints say.
    fn check(&self, commit: &Commit<'_>, changes: &Changes<'_>) -> Result<(), StoreError> {
        let duplicate = |what: &str| Err(StoreError::Duplicate { what: what.to_owned() });
        let mut names = BTreeSet::new();
        for AccountChange { account, .. } in &changes.accounts {
            let name = (account.registry_id.clone(), account.name.clone());
            let new = !self.accounts.contains_key(&account.id);
            if (new && self.names.contains(&name)) || !names.insert(name) {
                return duplicate("accounts.registry_id, accounts.name");
            }
        }
        for RotationChange { rotation, .. } in &changes.rotations {
            let known = self.rotations.get(&rotation.id);
            if known.is_some_and(|row| row.rotation.completed_at.is_some()) {
                return duplicate("rotations.rotation_id");
            }
            if self.slot_is_taken(commit.cluster_id, rotation) {
                return duplicate("rotations.cluster_id, rotations.slot");
            }
        }
        let told = |id| self.outbox.iter().any(|row| row.event_id == id);
        if commit.outbox.iter().any(|row| told(row.event_id)) {
            return duplicate("outbox.event_id");
        }
        let made = |id| changes.accounts.iter().any(|change| change.account.id == id);
        if commit.secrets.iter().any(|(id, _)| !self.accounts.contains_key(id) && !made(*id)) {
            return Err(StoreError::corrupt("a secret of no account"));
        }
        Ok(())
    }

    fn slot_is_taken(&self, cluster_id: &ClusterId, new: &Rotation) -> bool {
        let completed = |rotation: &Rotation| rotation.status() == RotationStatus::Completed;
        let same = |row: &RotationRow| {
            row.cluster_id == *cluster_id
                && row.rotation.id != new.id
                && row.rotation.slot == new.slot
                && completed(&row.rotation)
        };
        completed(new) && new.slot.is_some() && self.rotations.values().any(same)
    }

    fn write(&mut self, commit: &Commit<'_>, changes: &Changes<'_>) {
        let cluster_id = commit.cluster_id;
        match changes.record {
            RecordChange::Write(record) => {
                let state = PullSecret::clone(record).compact();
                let ownership = commit.ownership.passed_to(commit.owner);
                let record = Record { state, due_at: commit.due_at, ownership };
                self.records.insert(cluster_id.clone(), record);
            }
            RecordChange::Remove => {
                self.records.remove(cluster_id);
            }
            RecordChange::Nothing => {}
        }
        for change in &changes.accounts {
            self.write_account(cluster_id, change);
        }
        for RotationChange { rotation, .. } in &changes.rotations {
            let row =
                RotationRow { cluster_id: cluster_id.clone(), rotation: Rotation::clone(rotation) };
            self.rotations.insert(rotation.id, row);
        }
        self.secrets.extend(commit.secrets.iter().cloned());
    }

    fn write_account(&mut self, cluster_id: &ClusterId, change: &AccountChange<'_>) {
        let account = change.account.as_ref();
        self.names.insert((account.registry_id.clone(), account.name.clone()));
        let old = self.accounts.get(&account.id);
        let row = AccountRow {
            position: old.map_or(self.accounts.len(), |row| row.position),
            cluster_id: cluster_id.clone(),
            account: account.clone(),
            how: change.how,
            drifted_since: change
                .drifted_at
                .map(|now| old.and_then(|row| row.drifted_since).unwrap_or(now)),
        };
        self.accounts.insert(account.id, row);
    }

    pub(super) fn purge(&mut self, before: PurgeBefore) -> Purged {
        let batch = usize::try_from(before.batch).unwrap_or(usize::MAX);
        let ended = |row: &RotationRow| match row.rotation.phase {
            RotationPhase::Ended(_) => row.rotation.completed_at,
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::RemovingNew { .. } => None,
        };
        let rotations = self.rotations.iter().map(|(id, row)| (ended(row), *id));
        let rotations = oldest(rotations, before.rotations, batch);
        let gone = |id| self.accounts.get(&id).and_then(|row| row.account.gone_at);
        let secrets = self.secrets.keys().map(|id| (gone(*id), *id));
        let secrets = oldest(secrets, before.secrets, batch);
        let requests = self.requests.iter().map(|(key, row)| (Some(row.created_at), key.clone()));
        let requests = oldest(requests, before.idempotency_keys, batch);
        self.rotations.retain(|id, _| !rotations.contains(id));
        self.secrets.retain(|id, _| !secrets.contains(id));
        self.requests.retain(|key, _| !requests.contains(key));
        let ended = |entry: &CampaignEntry| entry.ended_at();
        let campaigns = self.campaigns.iter().map(|(id, entry)| (ended(entry), *id));
        let campaigns = oldest(campaigns, before.rotations, batch.min(4));
        self.campaigns.retain(|id, _| !campaigns.contains(id));
        Purged {
            campaigns: number(campaigns.len()),
            rotations: number(rotations.len()),
            secrets: number(secrets.len()),
            idempotency_keys: number(requests.len()),
        }
    }
}

/// The oldest rows from before a time, at most a batch.
fn oldest<K: Ord>(
    rows: impl Iterator<Item = (Option<crate::time::Timestamp>, K)>,
    before: crate::time::Timestamp,
    batch: usize,
) -> BTreeSet<K> {
    let mut rows: Vec<_> = rows.filter_map(|(at, key)| at.map(|at| (at, key))).collect();
    rows.retain(|(at, _)| *at < before);
    rows.sort();
    rows.into_iter().take(batch).map(|(_, key)| key).collect()
}
