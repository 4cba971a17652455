//! Sweeps, as the databases keep them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::super::attention::Source;
use super::super::rows::sweep::standing;
use super::super::sweep::{range_of, slug_range};
use super::super::{
    AttentionItem, AuditRow, AuditSeal, Deletion, DeletionAnswer, DeletionCall, Restored,
    StoreError, SweepCommit, SweepState, SweepStore, SweepStored, SweepSummary, UnknownAccount,
};
use super::lists::bare;
use super::{ClusterRow, MemoryStore, Tables};
use crate::ids::{CallToken, ClusterId, Generation, RegistryId};
use crate::state::pull_secret::AccountPhase;
use crate::state::sweep::{Beyond, Named, Serving, Standing, Whose};
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Sweeps {
    states: BTreeMap<RegistryId, (SweepState, Option<Uuid>)>,
    unknown: BTreeMap<(RegistryId, String), UnknownAccount>,
    restored: Option<Restored>,
    timeline: Option<String>,
}

fn free(state: &SweepState, now: Timestamp) -> bool {
    state.lease_until.is_none_or(|until| until <= now)
}

const fn fresh(registry_id: RegistryId, due_at: Timestamp) -> SweepState {
    SweepState { registry_id, due_at, lease_until: None, last: None, failed: None }
}

impl Tables {
    pub(super) fn restored_item(&self) -> Option<AttentionItem> {
        let restored = self.sweeps.restored.as_ref().filter(|restored| restored.is_latched())?;
        let last_error = Some(restored.reason.clone());
        let item = bare(Source::Restored, None, restored.restored_at, String::new());
        Some(AttentionItem { last_error, ..item })
    }

    /// What the rows say of a name; those of other registries only say that it is wanted.
    fn standings_of(&self, registry_id: &RegistryId, name: &str) -> Vec<(ClusterId, Standing)> {
        let of_name = self.accounts.values().filter(|row| row.account.name.as_str() == name);
        let said = of_name.map(|row| {
            let account = &row.account;
            let here = account.registry_id == *registry_id;
            (here, row.cluster_id.clone(), standing(account.phase, row.how, account.gone_at))
        });
        let counts = |(here, _, standing): &(bool, ClusterId, Standing)| match standing {
            Standing::Wanted | Standing::Foreign => true,
            Standing::Gone { .. } => *here,
        };
        said.filter(counts).map(|(_, cluster_id, standing)| (cluster_id, standing)).collect()
    }

    /// What the databases check in the transaction that decides or announces.
    fn may_delete(&self, registry_id: &RegistryId, name: &str) -> bool {
        let wanted = |(_, standing): &(ClusterId, Standing)| match standing {
            Standing::Wanted | Standing::Foreign => true,
            Standing::Gone { .. } => false,
        };
        !self.standings_of(registry_id, name).iter().any(wanted)
            && !self.sweeps.restored.as_ref().is_some_and(Restored::is_latched)
    }

    fn end_sweep(
        &mut self,
        commit: &SweepCommit<'_>,
        seal: Option<&dyn AuditSeal>,
    ) -> Result<SweepStored, StoreError> {
        let held = self.sweeps.states.get_mut(commit.registry_id);
        let Some((state, holder)) = held.filter(|(_, held)| *held == Some(commit.holder)) else {
            return Err(StoreError::LeaseLost);
        };
        state.due_at = commit.due_at;
        state.lease_until = None;
        state.last = Some(SweepSummary::of(commit.found, commit.started_at, commit.at));
        state.failed = None;
        *holder = None;
        self.remember(commit);
        self.raise(&commit.found.beyond);
        let mut stored = SweepStored::default();
        if let Some((reason, row)) = &commit.restored {
            stored.latched = self.latch(commit.at, reason, row, seal);
        }
        self.append_audit(&commit.audit, seal);
        for (name, row) in &commit.decisions {
            if !self.may_delete(commit.registry_id, name) {
                continue;
            }
            let key = (commit.registry_id.clone(), name.clone());
            let Some(unknown) = self.sweeps.unknown.get_mut(&key) else { continue };
            if unknown.deletion.is_some() {
                continue;
            }
            unknown.deletion = Some(Deletion {
                decided_at: commit.at,
                call: None,
                attempts: 0,
                next_attempt_at: commit.at,
                last_error: None,
            });
            stored.decided.push(name.clone());
            self.append_audit(std::slice::from_ref(row), seal);
        }
        Ok(stored)
    }

    fn remember(&mut self, commit: &SweepCommit<'_>) {
        let key = |name: &str| (commit.registry_id.clone(), name.to_owned());
        let calling =
            |it: &UnknownAccount| it.deletion.as_ref().is_some_and(|it| it.call.is_some());
        for name in &commit.found.settled {
            if self.sweeps.unknown.get(&key(name)).is_some_and(|known| !calling(known)) {
                self.sweeps.unknown.remove(&key(name));
            }
        }
        let new = commit.found.unknown.iter().filter(|new| new.first_seen_at == commit.at);
        for unknown in new {
            self.sweeps.unknown.entry(key(unknown.name.as_str())).or_insert_with(|| {
                UnknownAccount {
                    registry_id: commit.registry_id.clone(),
                    name: unknown.name.to_string(),
                    remote_id: unknown.remote_id.clone(),
                    cluster_id: unknown.cluster_id.clone(),
                    generation: unknown.generation,
                    first_seen_at: unknown.first_seen_at,
                    deletion: None,
                }
            });
        }
    }

    fn raise(&mut self, beyond: &[Beyond]) {
        for one in beyond {
            if let Whose::Cluster(cluster_id) = &one.whose
                && !self.clusters.contains_key(cluster_id)
            {
                let row = ClusterRow { version: 1, last_generation: one.generation };
                self.clusters.insert(cluster_id.clone(), row);
            }
            let (first, last) = range_of(one);
            for (cluster_id, row) in &mut self.clusters {
                let within = (first.as_str()..=last.as_str()).contains(&cluster_id.as_str());
                if within && row.last_generation < one.generation {
                    row.last_generation = one.generation;
                    row.version += 1;
                    if let Some(record) = self.records.get_mut(cluster_id) {
                        record.state.last_generation = one.generation;
                    }
                }
            }
        }
    }

    fn latch(
        &mut self,
        at: Timestamp,
        reason: &str,
        row: &AuditRow,
        seal: Option<&dyn AuditSeal>,
    ) -> bool {
        if self.sweeps.restored.as_ref().is_some_and(Restored::is_latched) {
            return false;
        }
        let reason = reason.to_owned();
        self.sweeps.restored = Some(Restored {
            restored_at: at,
            reason,
            acknowledged_at: None,
            acknowledged_by: None,
        });
        for record in self.records.values_mut() {
            record.due_at = Some(record.due_at.map_or(at, |due| due.min(at)));
        }
        self.hurry(at);
        self.append_audit(std::slice::from_ref(row), seal);
        true
    }

    fn hurry(&mut self, at: Timestamp) {
        for (state, _) in self.sweeps.states.values_mut() {
            state.due_at = state.due_at.min(at);
        }
    }

    fn deletion_mut(&mut self, call: &DeletionCall) -> Option<&mut Deletion> {
        let key = (call.registry_id.clone(), call.name.clone());
        self.sweeps.unknown.get_mut(&key)?.deletion.as_mut()
    }
}

fn page(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[async_trait]
impl SweepStore for MemoryStore {
    async fn plan_sweeps(&self, plans: &[(RegistryId, Timestamp)]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for (id, due_at) in plans {
            let plan = || (fresh(id.clone(), *due_at), None);
            tables.sweeps.states.entry(id.clone()).or_insert_with(plan);
        }
        Ok(())
    }

    async fn due_sweeps(&self, now: Timestamp) -> Result<Vec<RegistryId>, StoreError> {
        let tables = self.tables();
        let states = tables.sweeps.states.values().map(|(state, _)| state);
        let mut due: Vec<_> = states
            .filter(|state| state.due_at <= now && free(state, now))
            .map(|state| (state.due_at, state.registry_id.clone()))
            .collect();
        due.sort();
        Ok(due.into_iter().map(|(_, id)| id).collect())
    }

    async fn begin_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        until: Timestamp,
        only_due: bool,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let entry = tables.sweeps.states.entry(registry_id.clone());
        let (state, held) = entry.or_insert_with(|| (fresh(registry_id.clone(), now), None));
        if !free(state, now) || (only_due && state.due_at > now) {
            return Ok(false);
        }
        state.lease_until = Some(until);
        *held = Some(holder);
        Ok(true)
    }

    async fn abandon_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        failure: Option<(Timestamp, &str)>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let held = tables.sweeps.states.get_mut(registry_id);
        let Some((state, held)) = held.filter(|(_, held)| *held == Some(holder)) else {
            return Ok(());
        };
        state.lease_until = None;
        *held = None;
        if let Some((due_at, error)) = failure {
            state.due_at = due_at;
            state.failed = Some((now, error.to_owned()));
        }
        Ok(())
    }

    async fn end_sweep(&self, commit: &SweepCommit<'_>) -> Result<SweepStored, StoreError> {
        self.tables().end_sweep(commit, self.seal())
    }

    async fn sweep_states(&self) -> Result<Vec<SweepState>, StoreError> {
        Ok(self.tables().sweeps.states.values().map(|(state, _)| state.clone()).collect())
    }

    async fn named_accounts(
        &self,
        registry_id: &RegistryId,
        names: &[String],
    ) -> Result<Vec<Named>, StoreError> {
        let tables = self.tables();
        let named = names.iter().flat_map(|name| {
            let rows = tables.standings_of(registry_id, name).into_iter();
            rows.map(|(cluster_id, standing)| Named { name: name.clone(), cluster_id, standing })
        });
        Ok(named.collect())
    }

    async fn serving_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Serving>, StoreError> {
        let tables = self.tables();
        let rows = tables.accounts.values().filter(|row| {
            row.account.registry_id == *registry_id
                && row.account.phase == AccountPhase::Serving
                && row.account.name.as_str() > after
        });
        let mut serving: Vec<_> = rows
            .map(|row| Serving {
                account_id: row.account.id,
                cluster_id: row.cluster_id.clone(),
                name: row.account.name.to_string(),
                created_at: row.account.created_at,
                verified_at: row.account.verified_at,
            })
            .collect();
        serving.sort_by(|a, b| a.name.cmp(&b.name));
        serving.truncate(page(limit));
        Ok(serving)
    }

    async fn generation_counters(
        &self,
        clusters: &[ClusterId],
    ) -> Result<Vec<(ClusterId, Generation)>, StoreError> {
        let tables = self.tables();
        let counter = |id: &ClusterId| Some((id.clone(), tables.clusters.get(id)?.last_generation));
        Ok(clusters.iter().filter_map(counter).collect())
    }

    async fn slug_counters(
        &self,
        slugs: &[String],
    ) -> Result<Vec<(String, Generation)>, StoreError> {
        let tables = self.tables();
        let counter = |slug: &String| {
            let (first, last) = slug_range(slug);
            let within = |id: &ClusterId| (first.as_str()..=last.as_str()).contains(&id.as_str());
            let found = tables.clusters.iter().filter(|(id, _)| within(id));
            let highest = found.map(|(_, row)| row.last_generation).max()?;
            Some((slug.clone(), highest))
        };
        Ok(slugs.iter().filter_map(counter).collect())
    }

    async fn unknown_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError> {
        let tables = self.tables();
        let of = tables.sweeps.unknown.values();
        let of = of.filter(|it| it.registry_id == *registry_id && it.name.as_str() > after);
        Ok(of.take(page(limit)).cloned().collect())
    }

    async fn due_deletions(
        &self,
        registry_id: &RegistryId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError> {
        let tables = self.tables();
        let due = |it: &&UnknownAccount| {
            it.registry_id == *registry_id
                && it.deletion.as_ref().is_some_and(|deletion| deletion.next_attempt_at <= now)
        };
        let mut due: Vec<_> = tables.sweeps.unknown.values().filter(due).cloned().collect();
        due.sort_by_key(|it| it.deletion.as_ref().map(|deletion| deletion.next_attempt_at));
        due.truncate(page(limit));
        Ok(due)
    }

    async fn announce_deletion(
        &self,
        call: &DeletionCall,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let may = tables.may_delete(&call.registry_id, &call.name);
        let Some(deletion) = tables.deletion_mut(call).filter(|it| it.call.is_none()) else {
            return Ok(false);
        };
        let due = deletion.next_attempt_at <= call.at;
        deletion.next_attempt_at = call.lost_at;
        if !may || !due {
            return Ok(false);
        }
        deletion.call = Some((call.token, call.at));
        deletion.attempts += 1;
        tables.append_audit(std::slice::from_ref(audit), self.seal());
        Ok(true)
    }

    async fn is_deletion_current(
        &self,
        registry_id: &RegistryId,
        name: &str,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        let tables = self.tables();
        let unknown = tables.sweeps.unknown.get(&(registry_id.clone(), name.to_owned()));
        let call = unknown.and_then(|it| it.deletion.as_ref()).and_then(|it| it.call);
        let current = call.is_some_and(|(current, _)| current == token);
        Ok(current && tables.may_delete(registry_id, name))
    }

    async fn answer_deletion(
        &self,
        call: &DeletionCall,
        answer: &DeletionAnswer,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let current =
            |it: &&mut Deletion| it.call.is_some_and(|(current, _)| current == call.token);
        let Some(deletion) = tables.deletion_mut(call).filter(current) else { return Ok(false) };
        match answer {
            DeletionAnswer::Gone => {
                tables.sweeps.unknown.remove(&(call.registry_id.clone(), call.name.clone()));
            }
            DeletionAnswer::Again { at, error } => {
                deletion.call = None;
                deletion.next_attempt_at = *at;
                deletion.last_error = Some(error.clone());
            }
        }
        tables.append_audit(std::slice::from_ref(audit), self.seal());
        Ok(true)
    }

    async fn restored(&self) -> Result<Option<Restored>, StoreError> {
        Ok(self.tables().sweeps.restored.clone())
    }

    async fn latch_restored(
        &self,
        at: Timestamp,
        reason: &str,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().latch(at, reason, audit, self.seal()))
    }

    async fn acknowledge_restore(
        &self,
        at: Timestamp,
        by: &str,
        audit: &AuditRow,
    ) -> Result<Option<Restored>, StoreError> {
        let mut tables = self.tables();
        let waiting = tables.sweeps.restored.as_mut().filter(|restored| restored.is_latched());
        let Some(restored) = waiting else { return Ok(None) };
        restored.acknowledged_at = Some(at);
        restored.acknowledged_by = Some(by.to_owned());
        let acknowledged = restored.clone();
        tables.hurry(at);
        tables.append_audit(std::slice::from_ref(audit), self.seal());
        Ok(Some(acknowledged))
    }

    async fn noted_timeline(&self) -> Result<Option<String>, StoreError> {
        Ok(self.tables().sweeps.timeline.clone())
    }

    async fn note_timeline(
        &self,
        timeline: &str,
        sweep_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.sweeps.timeline = Some(timeline.to_owned());
        if let Some(at) = sweep_at {
            tables.hurry(at);
        }
        Ok(())
    }
}
