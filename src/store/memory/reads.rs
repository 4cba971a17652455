//! The reads of one cluster.

use super::super::{
    Described, Loaded, Presented, RotationBrief, RotationDetail, ServedCredential, ServedView,
    StoreError,
};
use super::{AccountRow, Tables};
use crate::ids::{ClusterId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, Consumer, EvidenceSource, PullSecret, RecordState, Refusal, Rotation,
};
use crate::time::Timestamp;

pub(super) fn brief(rotation: &Rotation) -> RotationBrief {
    RotationBrief {
        rotation_id: rotation.id,
        status: rotation.status(),
        phase: rotation.phase.name().to_owned(),
        deadline: rotation.deadline(),
    }
}

pub(super) const fn refusal(record: &PullSecret) -> Option<&Refusal> {
    match &record.state {
        RecordState::Denied(refusal) | RecordState::Failed(refusal) => Some(refusal),
        RecordState::Issuing { .. }
        | RecordState::Active { .. }
        | RecordState::Rotating { .. }
        | RecordState::Revoking
        | RecordState::Revoked => None,
    }
}

impl Tables {
    pub(super) fn load(&self, cluster_id: &ClusterId) -> Loaded {
        let Some(row) = self.clusters.get(cluster_id) else { return Loaded::default() };
        let stored = self.records.get(cluster_id);
        Loaded {
            record: stored.map(|record| record.state.clone()),
            version: row.version,
            last_generation: row.last_generation,
            ownership: stored.map(|record| record.ownership).unwrap_or_default(),
        }
    }

    /// What is due, the oldest first.
    pub(super) fn due(&self, now: Timestamp) -> Vec<(Timestamp, ClusterId)> {
        let due = self.records.iter().filter_map(|(id, record)| Some((record.due_at?, id.clone())));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort();
        due
    }

    pub(super) fn served(&self, cluster_id: &ClusterId) -> Result<Option<ServedView>, StoreError> {
        let loaded = self.load(cluster_id);
        let Some(record) = loaded.record else { return Ok(None) };
        let credential = |account: &Account| {
            let what = "a served account without user name or secret";
            let parts = account.username.clone().zip(self.secrets.get(&account.id).cloned());
            let (username, secret) = parts.ok_or_else(|| StoreError::corrupt(what))?;
            let registry_id = account.registry_id.clone();
            Ok(ServedCredential { account_id: account.id, registry_id, username, secret })
        };
        let credentials = serving(&record).map(credential).collect::<Result<_, StoreError>>()?;
        Ok(Some(ServedView {
            version: loaded.version,
            state: record.state.name(),
            state_since: record.state_since,
            served: record.served(),
            refusal: refusal(&record).cloned(),
            quarantine: record.quarantine,
            created_at: record.created_at,
            last_rotated_at: record.last_rotated_at,
            next_rotation_at: record.next_rotation_at,
            rotation: record.rotation().map(brief),
            credentials,
        }))
    }

    pub(super) fn described(&self, cluster_id: &ClusterId) -> Described {
        let loaded = self.load(cluster_id);
        let secret = |account: &Account| {
            self.secrets.get(&account.id).map(|secret| (account.id, secret.clone()))
        };
        let secrets = loaded.record.iter().flat_map(serving).filter_map(secret).collect();
        Described { loaded, secrets }
    }

    fn accounts_of<'a>(
        &'a self,
        cluster_id: &'a ClusterId,
    ) -> impl Iterator<Item = &'a AccountRow> {
        let mut rows: Vec<_> =
            self.accounts.values().filter(|row| row.cluster_id == *cluster_id).collect();
        rows.sort_by_key(|row| row.position);
        rows.into_iter()
    }

    pub(super) fn presented(
        &self,
        cluster_id: &ClusterId,
        username: &str,
        consumer: &str,
    ) -> Vec<Presented> {
        let record = self.load(cluster_id).record;
        let seen =
            |known: &&Consumer| known.source == EvidenceSource::Heartbeat && known.name == consumer;
        let last_seen =
            record.as_ref().and_then(|record| record.consumers.iter().find(seen)).cloned();
        let presented = |row: &AccountRow| {
            let account = &row.account;
            Some(Presented {
                account_id: account.id,
                registry_id: account.registry_id.clone(),
                phase: account.phase,
                generation: account.presented_as(),
                gone_at: account.gone_at,
                secret: self.secrets.get(&account.id)?.clone(),
                state: record.as_ref().map(|record| record.state.name()),
                served: record.as_ref().and_then(PullSecret::served),
                last_seen: last_seen.clone(),
            })
        };
        let named = |row: &&AccountRow| row.account.username.as_deref() == Some(username);
        self.accounts_of(cluster_id).filter(named).filter_map(presented).collect()
    }

    pub(super) fn rotation(
        &self,
        cluster_id: &ClusterId,
        rotation_id: RotationId,
    ) -> Option<RotationDetail> {
        let row = self.rotations.get(&rotation_id).filter(|row| row.cluster_id == *cluster_id)?;
        let rotation = row.rotation.clone();
        let is_gone = |row: &AccountRow| row.account.phase == AccountPhase::Gone;
        let live = self.accounts_of(cluster_id).filter(|row| !is_gone(row));
        let gone = self
            .accounts_of(cluster_id)
            .filter(|row| is_gone(row) && row.account.born_generation == rotation.to);
        let accounts = live.chain(gone).map(|row| row.account.clone()).collect();
        let record = self.load(cluster_id).record;
        let served = record.as_ref().and_then(PullSecret::served);
        let consumers = record.map(|record| record.consumers).unwrap_or_default();
        Some(RotationDetail { rotation, accounts, consumers, served })
    }
}

/// What is handed out; nothing while the record hands out nothing.
fn serving(record: &PullSecret) -> impl Iterator<Item = &Account> {
    let handed_out = record.served().is_some();
    let serving = move |account: &&Account| handed_out && account.phase == AccountPhase::Serving;
    record.accounts.iter().filter(serving)
}
