//! Whose turn it is to rotate.

use async_trait::async_trait;

use super::super::turns::leaves_line;
use super::super::{Commit, StoreError, Turn, TurnRank, Turns};
use super::lists::number;
use super::{MemoryStore, Tables};
use crate::ids::ClusterId;
use crate::state::pull_secret::{AccountPhase, PullSecret, Rotation, RotationPhase};
use crate::time::Timestamp;

/// A cluster in the line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    rank: TurnRank,
    since: Timestamp,
    called_until: Option<Timestamp>,
}

#[async_trait]
impl Turns for MemoryStore {
    async fn has_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        max: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().has_turn(cluster_id, rank, max, now))
    }

    async fn wait_for_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.tables().wait_for_turn(cluster_id, rank, now);
        Ok(())
    }

    async fn call_turns(
        &self,
        max: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<u64, StoreError> {
        Ok(self.tables().call_turns(max, now, until))
    }
}

impl Tables {
    pub(super) fn check_turn(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        match commit.turn {
            Some(Turn::Take { rank, max }) => {
                let turn = self.has_turn(commit.cluster_id, rank, max, commit.at);
                if turn { Ok(()) } else { Err(StoreError::NoTurn) }
            }
            Some(Turn::Wait { .. }) | None => Ok(()),
        }
    }

    pub(super) fn write_turn(&mut self, commit: &Commit<'_>) {
        if leaves_line(commit) {
            self.line.remove(commit.cluster_id);
        }
        if let Some(Turn::Wait { rank }) = commit.turn {
            self.wait_for_turn(commit.cluster_id, rank, commit.at);
        }
    }

    fn has_turn(&self, cluster_id: &ClusterId, rank: TurnRank, max: u32, now: Timestamp) -> bool {
        let called = self.line.get(cluster_id).is_some_and(|row| row.called_until.is_some());
        let ahead = |(id, row): &(&ClusterId, &Waiting)| row.rank <= rank && *id != cluster_id;
        let ahead = if called { 0 } else { self.line.iter().filter(ahead).count() };
        number(ahead) + self.at_work(now) < u64::from(max)
    }

    fn at_work(&self, now: Timestamp) -> u64 {
        let works = |record: &PullSecret| {
            let deletion = record.accounts.iter().any(|account| {
                account.phase == AccountPhase::Deleting && account.next_attempt_at <= now
            });
            record.rotation().is_some_and(|rotation| makes(rotation) || deletion)
        };
        number(self.records.values().filter(|row| works(&row.state)).count())
    }

    fn wait_for_turn(&mut self, cluster_id: &ClusterId, rank: TurnRank, now: Timestamp) {
        let new = Waiting { rank, since: now, called_until: None };
        self.line.entry(cluster_id.clone()).or_insert(new).called_until = None;
    }

    fn call_turns(&mut self, max: u32, now: Timestamp, until: Timestamp) -> u64 {
        for row in self.line.values_mut() {
            if row.called_until.is_some_and(|until| until <= now) {
                row.called_until = None;
                row.since = now;
            }
        }
        let called = number(self.line.values().filter(|row| row.called_until.is_some()).count());
        let room = u64::from(max).saturating_sub(self.at_work(now)).saturating_sub(called);
        let waiting = self.line.iter().filter(|(_, row)| row.called_until.is_none());
        let mut waiting: Vec<_> =
            waiting.map(|(id, row)| (row.rank, row.since, id.clone())).collect();
        waiting.sort();
        waiting.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        for (_, _, cluster_id) in &waiting {
            if let Some(row) = self.line.get_mut(cluster_id) {
                row.called_until = Some(until);
            }
            if let Some(record) = self.records.get_mut(cluster_id) {
                record.due_at = Some(record.due_at.map_or(now, |due| due.min(now)));
            }
        }
        number(waiting.len())
    }
}

const fn makes(rotation: &Rotation) -> bool {
    match rotation.phase {
        RotationPhase::CreatingCredentials | RotationPhase::VerifyingCredentials => true,
        RotationPhase::Pending
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}
