//! Break-glass credentials: the committed states as values, and what hangs on them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::MemoryStore;
use super::lists::bare;
use crate::ids::{CallToken, ClusterId, CredentialId, ReplicaId, RevocationId};
use crate::state::break_glass::{BreakGlass, Credential, Revocation, StateName, Subject};
use crate::state::shared::Trouble;
use crate::store::attention::Source;
use crate::store::break_glass::{
    BreakGlassCommit, BreakGlassPurge, BreakGlassStore, CertificateKind, Changes, CredentialList,
    CredentialQuery, KeyPurpose, LoadedBreakGlass, OwnedKey, revocation_page, revocation_start,
};
use crate::store::search::{Order, OrderField, word_rank};
use crate::store::{AttentionItem, Claimed, Cursor, OwnedBy, Page, SealedSecret, StoreError};
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Tables {
    clusters: BTreeMap<ClusterId, Row>,
    credentials: BTreeMap<CredentialId, (ClusterId, Credential)>,
    revocations: BTreeMap<RevocationId, (ClusterId, Revocation)>,
    certificates: BTreeMap<Uuid, BTreeMap<CertificateKind, String>>,
    keys: BTreeMap<(Uuid, KeyPurpose), SealedSecret>,
}

fn about(source: Source, cluster: &ClusterId, one: &Credential, since: Timestamp) -> AttentionItem {
    AttentionItem {
        credential_id: Some(one.id),
        attempts: one.trouble.attempts,
        ..bare(source, cluster.clone(), since, one.id.0.to_string())
    }
}

#[derive(Debug)]
struct Row {
    /// The committed state, compacted.
    record: BreakGlass,
    version: u64,
    due_at: Option<Timestamp>,
    ownership: OwnedBy,
}

impl Tables {
    /// What needs a person.
    pub(super) fn attention(&self, source: Source) -> Vec<AttentionItem> {
        let credentials = self.credentials.iter();
        match source {
            Source::BreakGlassQuarantined => {
                let item = |(id, row): (&ClusterId, &Row)| {
                    let quarantine = row.record.quarantine?;
                    let item = bare(source, id.clone(), quarantine.since, id.to_string());
                    Some(AttentionItem { next_attempt_at: Some(quarantine.retry_at), ..item })
                };
                self.clusters.iter().filter_map(item).collect()
            }
            Source::CredentialStuck => credentials
                .filter(|(_, (_, one))| !one.state.name().is_ended())
                .filter_map(|(_, (cluster, one))| {
                    let last_error = one.trouble.last_error.clone();
                    let item = about(source, cluster, one, one.trouble.since?);
                    let next_attempt_at = Some(one.next_attempt_at);
                    Some(AttentionItem { last_error, next_attempt_at, ..item })
                })
                .collect(),
            Source::CredentialDenied => self.over(source, StateName::Denied),
            Source::CredentialFailed => self.over(source, StateName::Failed),
            Source::RevocationStuck => {
                let running = self.revocations.values().filter(|(_, one)| one.is_running());
                let item = |(cluster, one): &(ClusterId, Revocation)| {
                    let item =
                        bare(source, cluster.clone(), one.trouble.since?, one.id.0.to_string());
                    Some(AttentionItem {
                        revocation_id: Some(one.id),
                        attempts: one.trouble.attempts,
                        last_error: one.trouble.last_error.clone(),
                        next_attempt_at: Some(one.next_attempt_at),
                        ..item
                    })
                };
                running.filter_map(item).collect()
            }
            Source::Restored
            | Source::Drifted
            | Source::Quarantined
            | Source::Overdue
            | Source::Stuck
            | Source::Irrevocable
            | Source::Denied
            | Source::Failed => Vec::new(),
        }
    }

    fn over(&self, source: Source, state: StateName) -> Vec<AttentionItem> {
        let ours = |one: &Credential| one.state.name() == state && !one.control;
        let all = self.credentials.values().filter(|(_, one)| ours(one));
        all.map(|(cluster, one)| AttentionItem {
            last_error: Some(one.message.clone()),
            ..about(source, cluster, one, one.state_since)
        })
        .collect()
    }

    fn write(&mut self, commit: &BreakGlassCommit<'_>, changes: &Changes<'_>) -> u64 {
        let cluster = || commit.cluster_id.clone();
        for credential in &changes.credentials {
            self.credentials.insert(credential.id, (cluster(), Credential::clone(credential)));
        }
        for revocation in &changes.revocations {
            self.revocations.insert(revocation.id, (cluster(), Revocation::clone(revocation)));
        }
        for one in &commit.material {
            self.certificates.entry(one.owner).or_default().insert(one.kind, one.pem.clone());
        }
        for (owner, purpose, sealed) in &commit.keys {
            self.keys.insert((*owner, *purpose), sealed.clone());
        }
        for owner in changes.spent.iter().chain(&changes.dropped) {
            self.forget_keys(*owner);
        }
        for owner in &changes.dropped {
            self.certificates.remove(owner);
        }
        let version = commit.expected_version + 1;
        let mut record = commit.after.clone().compact();
        record.credentials.sort_by_key(|credential| credential.id);
        record.revocations.sort_by_key(|revocation| revocation.id);
        record.authorities.sort_by_key(|authority| authority.id);
        let ownership = commit.ownership.passed_to(commit.owner);
        self.clusters.insert(cluster(), Row { record, version, due_at: commit.due_at, ownership });
        version
    }

    pub(super) fn give_back(&mut self, replica_id: ReplicaId, now: Timestamp) {
        for row in self.clusters.values_mut() {
            let open = row.record.calls().next().is_some();
            if row.ownership.owner == Some(replica_id) && !open {
                row.ownership.owner = None;
                row.due_at = Some(now);
            }
        }
    }

    pub(super) fn owned(&self, replica_id: ReplicaId) -> usize {
        self.clusters.values().filter(|row| row.ownership.owner == Some(replica_id)).count()
    }

    pub(super) fn due(&self, now: Timestamp) -> Vec<(Timestamp, ClusterId)> {
        let due = self.clusters.iter().filter_map(|(id, row)| Some((row.due_at?, id.clone())));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        due
    }

    pub(super) fn wake(&mut self, now: Timestamp) -> u64 {
        let mut woken = 0;
        for row in self.clusters.values_mut().filter(|row| row.due_at.is_some_and(|at| at > now)) {
            row.due_at = Some(now);
            woken += 1;
        }
        woken
    }

    fn take(
        &mut self,
        found: impl Iterator<Item = ClusterId>,
        (limit, push_until): (u32, Timestamp),
        taker: ReplicaId,
    ) -> Vec<Claimed> {
        let take = |cluster_id: ClusterId| {
            let row = self.clusters.get_mut(&cluster_id)?;
            let before = row.ownership;
            (row.ownership, row.due_at) = (before.passed_to(Some(taker)), Some(push_until));
            let from = before.owner.filter(|owner| *owner != taker);
            Some(Claimed { cluster_id, version: row.version, ownership: row.ownership, from })
        };
        found.take(at_most(limit)).filter_map(take).collect()
    }

    fn forget_keys(&mut self, owner: Uuid) {
        self.keys.retain(|(of, _), _| *of != owner);
    }

    fn remove(&mut self, state: StateName, end: Timestamp, batch: usize) -> usize {
        let over = |credential: &Credential| {
            let created = credential.created_at.is_some_and(|at| at <= end);
            let state_is = credential.state.name() == state && credential.call.is_none();
            state_is && created && credential.state_since <= end
        };
        let mut gone: Vec<(Timestamp, CredentialId)> = self
            .credentials
            .values()
            .filter(|(_, credential)| over(credential))
            .map(|(_, credential)| (credential.state_since, credential.id))
            .collect();
        gone.sort_unstable();
        gone.truncate(batch);
        for (_, id) in &gone {
            self.credentials.remove(id);
            self.certificates.remove(&id.0);
            self.forget_keys(id.0);
        }
        gone.len()
    }
}

fn compare(
    a: &Credential,
    b: &Credential,
    order: Order,
    query: &CredentialQuery,
) -> std::cmp::Ordering {
    let rank = |credential: &Credential| word_rank(credential.state.name(), query.surface);
    let ordering = match order.field {
        OrderField::Id => a.id.cmp(&b.id),
        OrderField::Username => a.username.cmp(&b.username),
        OrderField::Status => rank(a).cmp(&rank(b)),
        OrderField::CreationTimestamp => a.created_at.cmp(&b.created_at),
        OrderField::ExpirationTimestamp => a.expires_at.cmp(&b.expires_at),
        OrderField::RevocationTimestamp => a.revoked_at.cmp(&b.revoked_at),
    };
    if order.descending { ordering.reverse() } else { ordering }
}

fn at_most(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[async_trait]
impl BreakGlassStore for MemoryStore {
    async fn load_break_glass(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<LoadedBreakGlass, StoreError> {
        let tables = self.tables();
        let row = tables.break_glass.clusters.get(cluster_id);
        Ok(row.map_or_else(LoadedBreakGlass::default, |row| LoadedBreakGlass {
            record: Some(row.record.clone()),
            version: row.version,
            ownership: row.ownership,
        }))
    }

    async fn commit_break_glass(&self, commit: BreakGlassCommit<'_>) -> Result<u64, StoreError> {
        let changes = Changes::between(&commit)?;
        let mut tables = self.tables();
        let row = tables.break_glass.clusters.get(commit.cluster_id);
        let stands = row.map_or((0, 0), |row| (row.version, row.ownership.epoch));
        if stands != (commit.expected_version, commit.ownership.epoch) {
            return Err(StoreError::Conflict);
        }
        if let Some(answer) = &commit.idempotency {
            tables.answer(answer)?;
        }
        let version = tables.break_glass.write(&commit, &changes);
        tables.append_audit(&commit.audit, self.seal());
        tables.outbox.extend(commit.outbox.iter().cloned());
        Ok(version)
    }

    async fn break_glass_due(
        &self,
        now: Timestamp,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut guard = self.tables();
        let tables = &mut *guard;
        let replicas = &tables.replicas;
        let mine = |owner: Option<ReplicaId>| {
            owner.is_none_or(|owner| owner == taker || !replicas.contains_key(&owner))
        };
        let due = tables.break_glass.due(now).into_iter().map(|(_, id)| id);
        let rows = &tables.break_glass.clusters;
        let found: Vec<_> = due.filter(|id| mine(rows[id].ownership.owner)).collect();
        Ok(tables.break_glass.take(found.into_iter(), (limit, push_until), taker))
    }

    async fn break_glass_orphans(
        &self,
        limit: u32,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut guard = self.tables();
        let tables = &mut *guard;
        let replicas = &tables.replicas;
        let dead = |owner: &ReplicaId| !replicas.contains_key(owner);
        let rows = tables.break_glass.clusters.iter();
        let owned =
            rows.filter_map(|(id, row)| Some((row.ownership.owner.filter(&dead)?, id.clone())));
        let mut owned: Vec<_> = owned.collect();
        owned.sort();
        let found = owned.into_iter().map(|(_, id)| id);
        Ok(tables.break_glass.take(found, (limit, push_until), taker))
    }

    async fn reschedule_break_glass(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let row = tables.break_glass.clusters.get_mut(cluster_id);
        let stands =
            |row: &&mut Row| (row.version, row.ownership.epoch) == (version, ownership.epoch);
        let Some(row) = row.filter(stands) else { return Ok(false) };
        row.due_at = due_at;
        row.ownership.owner = ownership.owner;
        Ok(true)
    }

    async fn break_glass_version(&self, cluster_id: &ClusterId) -> Result<Option<u64>, StoreError> {
        Ok(self.tables().break_glass.clusters.get(cluster_id).map(|row| row.version))
    }

    async fn is_current_break_glass(
        &self,
        subject: Subject,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        let tables = self.tables();
        let current = |row: &Row| row.record.call_of(subject).is_some_and(|c| c.token == token);
        Ok(tables.break_glass.clusters.values().any(current))
    }

    async fn credential(
        &self,
        cluster_id: &ClusterId,
        credential_id: CredentialId,
    ) -> Result<Option<Credential>, StoreError> {
        let tables = self.tables();
        let row = tables.break_glass.credentials.get(&credential_id);
        let found = row.filter(|(cluster, row)| cluster == cluster_id && !row.control);
        Ok(found.map(|(_, credential)| credential.clone()))
    }

    async fn list_credentials(
        &self,
        query: &CredentialQuery,
    ) -> Result<CredentialList, StoreError> {
        let tables = self.tables();
        let matching = |row: &Credential| query.search.as_ref().is_none_or(|s| s.matches(row));
        let mut items: Vec<Credential> = tables
            .break_glass
            .credentials
            .values()
            .filter(|(cluster, row)| *cluster == query.cluster_id && !row.control && matching(row))
            .map(|(_, credential)| credential.clone())
            .collect();
        items.sort_by(|a, b| {
            let orders = query.order.iter().map(|order| compare(a, b, *order, query));
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then(a.id.cmp(&b.id))
        });
        let total = u64::try_from(items.len()).unwrap_or(u64::MAX);
        let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
        let limit = query.limit.map_or(usize::MAX, at_most);
        let items = items.into_iter().skip(offset).take(limit).collect();
        Ok(CredentialList { items, total })
    }

    async fn revocation(
        &self,
        cluster_id: &ClusterId,
        revocation_id: RevocationId,
    ) -> Result<Option<Revocation>, StoreError> {
        let tables = self.tables();
        let row = tables.break_glass.revocations.get(&revocation_id);
        Ok(row.filter(|(cluster, _)| cluster == cluster_id).map(|(_, row)| row.clone()))
    }

    async fn list_revocations(
        &self,
        cluster_id: &ClusterId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, StoreError> {
        let start = revocation_start(cursor)?;
        let tables = self.tables();
        let rows = tables.break_glass.revocations.values();
        let mut items: Vec<Revocation> =
            rows.filter(|(cluster, _)| cluster == cluster_id).map(|(_, row)| row.clone()).collect();
        let total = u64::try_from(items.len()).unwrap_or(u64::MAX);
        items.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.id)));
        items.retain(|row| (row.created_at, row.id.0) < start);
        items.truncate(at_most(limit).saturating_add(1));
        Ok(revocation_page(items, limit, total))
    }

    async fn certificates(
        &self,
        owner: Uuid,
    ) -> Result<BTreeMap<CertificateKind, String>, StoreError> {
        Ok(self.tables().break_glass.certificates.get(&owner).cloned().unwrap_or_default())
    }

    async fn sealed_key(
        &self,
        owner: Uuid,
        purpose: KeyPurpose,
    ) -> Result<Option<SealedSecret>, StoreError> {
        Ok(self.tables().break_glass.keys.get(&(owner, purpose)).cloned())
    }

    async fn credential_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let tables = self.tables();
        let mut counts = BTreeMap::new();
        for (_, row) in tables.break_glass.credentials.values().filter(|(_, row)| !row.control) {
            *counts.entry(row.state.name().to_string()).or_default() += 1;
        }
        Ok(counts)
    }

    async fn stuck_break_glass(&self, before: Timestamp) -> Result<u64, StoreError> {
        let tables = self.tables();
        let old = |trouble: &Trouble| trouble.since.is_some_and(|since| since <= before);
        let stuck = |row: &Row| {
            let record = &row.record;
            let credentials = record.live().filter(|it| old(&it.trouble)).count();
            let running = record.revocations.iter().filter(|it| it.is_running());
            let authorities = record.authorities.iter().filter(|it| old(&it.trouble)).count();
            credentials
                + running.filter(|it| old(&it.trouble)).count()
                + authorities
                + usize::from(record.quarantine.is_some())
        };
        let count: usize = tables.break_glass.clusters.values().map(stuck).sum();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn break_glass_key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let tables = self.tables();
        let mut counts = BTreeMap::new();
        for sealed in tables.break_glass.keys.values() {
            *counts.entry(sealed.key_id.clone()).or_default() += 1;
        }
        Ok(counts)
    }

    async fn break_glass_sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<(Uuid, KeyPurpose)>,
        limit: u32,
    ) -> Result<Vec<OwnedKey>, StoreError> {
        let tables = self.tables();
        // In the order of the databases, which know a purpose by its word.
        let key = |(owner, purpose): (Uuid, KeyPurpose)| (owner, <&'static str>::from(purpose));
        let after = after.map(key);
        let mut keys: Vec<OwnedKey> = tables
            .break_glass
            .keys
            .iter()
            .filter(|(of, sealed)| sealed.key_id != key_id && after.is_none_or(|a| key(**of) > a))
            .map(|((owner, purpose), sealed)| OwnedKey {
                owner: *owner,
                purpose: *purpose,
                sealed: sealed.clone(),
            })
            .collect();
        keys.sort_by_key(|owned| key((owned.owner, owned.purpose)));
        keys.truncate(at_most(limit));
        Ok(keys)
    }

    async fn break_glass_reseal(
        &self,
        old: &OwnedKey,
        new: &SealedSecret,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let row = tables.break_glass.keys.get_mut(&(old.owner, old.purpose));
        let Some(row) = row.filter(|row| **row == old.sealed) else { return Ok(false) };
        row.clone_from(new);
        Ok(true)
    }

    async fn purge_break_glass(&self, before: BreakGlassPurge) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let batch = at_most(before.batch);
        let mut removed = 0;
        for (state, end) in before.states() {
            removed += tables.break_glass.remove(state, end, batch);
        }
        let over = |row: &Revocation| {
            row.call.is_none() && row.ended_at.is_some_and(|at| at <= before.history_before)
        };
        let rows = &mut tables.break_glass.revocations;
        let mut gone: Vec<(Option<Timestamp>, RevocationId)> = rows
            .values()
            .filter(|(_, row)| over(row))
            .map(|(_, row)| (row.ended_at, row.id))
            .collect();
        gone.sort_unstable();
        gone.truncate(batch);
        for (_, id) in &gone {
            rows.remove(id);
        }
        removed += gone.len();
        Ok(u64::try_from(removed).unwrap_or(u64::MAX))
    }
}
