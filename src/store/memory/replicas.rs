//! Replicas, and what they own.

use super::super::{Claimed, OwnedBy, ReplicaRow};
use super::Tables;
use crate::ids::{ClusterId, ReplicaId};
use crate::time::Timestamp;

impl Tables {
    pub(super) fn join(&mut self, replica_id: ReplicaId, key_ids: &[String]) {
        let counter = self.replicas.get(&replica_id).map_or(1, |(counter, _)| counter + 1);
        self.replicas.insert(replica_id, (counter, key_ids.to_vec()));
    }

    pub(super) fn beat(
        &mut self,
        replica_id: ReplicaId,
        key_ids: &[String],
    ) -> Option<Vec<ReplicaRow>> {
        self.replicas.get(&replica_id)?;
        self.join(replica_id, key_ids);
        let row = |(id, (counter, key_ids)): (&ReplicaId, &(u64, Vec<String>))| ReplicaRow {
            replica_id: *id,
            counter: *counter,
            key_ids: key_ids.clone(),
        };
        Some(self.replicas.iter().map(row).collect())
    }

    pub(super) fn bury(&mut self, replica_id: ReplicaId, counter: u64) -> bool {
        let stands = self.replicas.get(&replica_id).is_some_and(|(now, _)| *now == counter);
        stands && self.replicas.remove(&replica_id).is_some()
    }

    pub(super) fn give_back(&mut self, replica_id: ReplicaId, now: Timestamp) {
        let open = |id: &ClusterId| {
            self.accounts.values().any(|row| row.cluster_id == *id && row.account.call.is_some())
        };
        for (id, record) in &mut self.records {
            if record.ownership.owner == Some(replica_id) && !open(id) {
                record.ownership.owner = None;
                record.due_at = Some(now);
            }
        }
        self.break_glass.give_back(replica_id, now);
    }

    /// Due, and for nobody else who lives.
    pub(super) fn claimable(&self, now: Timestamp, taker: ReplicaId) -> Vec<ClusterId> {
        let mine = |owner: Option<ReplicaId>| {
            owner.is_none_or(|owner| owner == taker || !self.replicas.contains_key(&owner))
        };
        let due = self.due(now).into_iter().map(|(_, id)| id);
        due.filter(|id| mine(self.records[id].ownership.owner)).collect()
    }

    pub(super) fn orphaned(&self) -> Vec<ClusterId> {
        let orphan = |owner: ReplicaId| (!self.replicas.contains_key(&owner)).then_some(owner);
        let owned = self.records.iter().filter_map(|(id, record)| {
            Some((record.ownership.owner.and_then(orphan)?, id.clone()))
        });
        let mut owned: Vec<_> = owned.collect();
        owned.sort();
        owned.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn take(
        &mut self,
        mut found: Vec<ClusterId>,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Vec<Claimed> {
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let take = |cluster_id: ClusterId| {
            let version = self.clusters.get(&cluster_id)?.version;
            let record = self.records.get_mut(&cluster_id)?;
            let before: OwnedBy = record.ownership;
            record.ownership = before.passed_to(Some(taker));
            record.due_at = Some(push_until);
            let from = before.owner.filter(|owner| *owner != taker);
            Some(Claimed { cluster_id, version, ownership: record.ownership, from })
        };
        found.into_iter().filter_map(take).collect()
    }
}
