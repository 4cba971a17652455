//! The lists: a filter, an order and a cut.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use strum::VariantArray;
use uuid::Uuid;

use super::super::attention::{Source, latest, plan};
use super::super::columns::awaits_deadline;
use super::super::cursor::Key;
use super::super::views::{audit_start, pull_secret_start, rotation_start};
use super::super::{
    AttentionFilter, AttentionItem, AuditEvent, AuditFilter, Cursor, CursorError, Page,
    PullSecretFilter, PullSecretRow, RotationFilter, RotationRow, StoreError, StuckAfter,
    TroubleCounts,
};
use super::reads::{brief, refusal};
use super::{AccountRow, Record, Tables};
use crate::ids::ClusterId;
use crate::state::pull_secret::{AccountPhase, PullSecret, Rotation, StateName};
use crate::time::Timestamp;

pub(super) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

pub(super) fn tally(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for word in words {
        *tally.entry(word).or_default() += 1;
    }
    tally
}

fn is_overdue(rotation: &Rotation, now: Timestamp) -> bool {
    awaits_deadline(&rotation.phase) && rotation.deadline().is_some_and(|at| at <= now)
}

impl Tables {
    pub(super) fn list_rotations(
        &self,
        filter: &RotationFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RotationRow>, StoreError> {
        let (at, id) = rotation_start(cursor)?;
        let matches = |row: &&RotationRow| {
            let rotation = &row.rotation;
            let ended = |since| rotation.completed_at.is_none_or(|at| at >= since);
            filter.cluster_id.as_ref().is_none_or(|id| row.cluster_id == *id)
                && (filter.statuses.is_empty() || filter.statuses.contains(&rotation.status()))
                && filter.since.is_none_or(|since| rotation.created_at >= since)
                && filter.history_since.is_none_or(ended)
                && (!filter.overdue || is_overdue(rotation, filter.now))
        };
        let mut rows: Vec<_> = self.rotations.values().filter(matches).cloned().collect();
        let total = number(rows.len());
        rows.retain(|row| (row.rotation.created_at.as_micros(), row.rotation.id.0) < (at, id));
        rows.sort_by_key(|row| Reverse((row.rotation.created_at, row.rotation.id)));
        Ok(Page::cut(rows, limit, Some(total), RotationRow::key))
    }

    pub(super) fn list_pull_secrets(
        &self,
        filter: &PullSecretFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PullSecretRow>, StoreError> {
        let start = pull_secret_start(cursor)?;
        let matches = |record: &&Record| {
            let state = &record.state;
            let overdue = || state.rotation().is_some_and(|it| is_overdue(it, filter.now));
            filter.state.is_none_or(|wanted| state.state.name() == wanted)
                && filter.registry_id.as_ref().is_none_or(|id| state.registries.contains(id))
                && (!filter.overdue || overdue())
        };
        let rows: Vec<_> = self.records.values().filter(matches).collect();
        let total = number(rows.len());
        let rows = rows.into_iter().filter(|row| row.state.cluster_id.as_str() > start.as_str());
        let rows = rows.map(|row| self.row(&row.state)).collect();
        let key = |row: &PullSecretRow| Key::PullSecret { id: row.cluster_id.clone() };
        Ok(Page::cut(rows, limit, Some(total), key))
    }

    fn row(&self, record: &PullSecret) -> PullSecretRow {
        PullSecretRow {
            cluster_id: record.cluster_id.clone(),
            version: self.clusters.get(&record.cluster_id).map_or(0, |row| row.version),
            state: record.state.name(),
            state_since: record.state_since,
            served: record.served(),
            refusal: refusal(record).cloned(),
            quarantine: record.quarantine,
            registries: record.registries.clone(),
            created_at: record.created_at,
            last_rotated_at: record.last_rotated_at,
            next_rotation_at: record.next_rotation_at,
            rotation: record.rotation().map(brief),
        }
    }

    pub(super) fn attention(
        &self,
        filter: &AttentionFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AttentionItem>, StoreError> {
        let total = plan(filter, None)?;
        let total = total.iter().map(|(source, _, _)| number(self.of(*source, filter).len()));
        let total = total.sum();
        let mut items = Vec::new();
        for (source, since, subject) in plan(filter, cursor)? {
            let by_uuid = source.subject().is_uuid();
            if by_uuid && !subject.is_empty() && Uuid::try_parse(&subject).is_err() {
                return Err(CursorError::Malformed.into());
            }
            let start = (since, subject);
            let later =
                |item: &AttentionItem| (item.since.as_micros(), item.subject.clone()) > start;
            let mut of_source = self.of(source, filter);
            of_source.retain(later);
            of_source.sort_by_key(|item| (item.since, item.subject.clone()));
            items.extend(of_source);
        }
        Ok(Page::cut(items, limit, Some(total), AttentionItem::key))
    }

    pub(super) fn trouble_counts(&self, now: Timestamp, stuck_after: StuckAfter) -> TroubleCounts {
        let filter = AttentionFilter { kind: None, now, stuck_after };
        let burnt = |row: &&AccountRow| row.account.phase == AccountPhase::Burnt;
        let burnt = number(self.accounts.values().filter(burnt).count());
        let mut counts = TroubleCounts { burnt, ..TroubleCounts::default() };
        for source in Source::VARIANTS {
            counts.add(*source, number(self.of(*source, &filter).len()));
        }
        counts
    }

    fn of(&self, source: Source, filter: &AttentionFilter) -> Vec<AttentionItem> {
        let mut items = self.all_of(source, filter);
        items.retain(|item| item.since <= latest(source, filter));
        items
    }

    fn all_of(&self, source: Source, filter: &AttentionFilter) -> Vec<AttentionItem> {
        let accounts = self.accounts.values();
        let records = self.records.values();
        match source {
            Source::Restored => self.restored_item().into_iter().collect(),
            Source::Drifted => accounts
                .filter_map(|row| Some(self.item(source, row, row.drifted_since?)))
                .collect(),
            Source::Stuck => {
                let done = [AccountPhase::Gone, AccountPhase::Residue];
                let rows = accounts.filter(|row| !done.contains(&row.account.phase));
                let rows = rows.filter_map(|row| Some((row, row.account.trouble.since?)));
                rows.map(|(row, since)| self.item(source, row, since)).collect()
            }
            Source::Irrevocable => {
                let rows = accounts.filter(|row| row.account.phase == AccountPhase::Residue);
                rows.filter_map(|row| Some(self.item(source, row, row.account.trouble.since?)))
                    .collect()
            }
            Source::Quarantined => {
                let since = |record: &Record| record.state.quarantine.map(|it| it.since);
                records.filter_map(|row| Some(of_record(source, &row.state, since(row)?))).collect()
            }
            Source::Denied => self.refused(source, StateName::Denied),
            Source::Failed => self.refused(source, StateName::Failed),
            Source::Overdue => {
                let overdue = |row: &&RotationRow| is_overdue(&row.rotation, filter.now);
                let item = |row: &RotationRow| {
                    let since = row.rotation.deadline()?;
                    let subject = row.rotation.id.0.to_string();
                    let mut item = bare(source, row.cluster_id.clone(), since, subject);
                    item.rotation_id = Some(row.rotation.id);
                    Some(item)
                };
                self.rotations.values().filter(overdue).filter_map(item).collect()
            }
            Source::BreakGlassQuarantined
            | Source::CredentialStuck
            | Source::RevocationStuck
            | Source::CredentialDenied
            | Source::CredentialFailed => self.break_glass.attention(source),
        }
    }

    fn refused(&self, source: Source, state: StateName) -> Vec<AttentionItem> {
        let rows = self.records.values().filter(|record| record.state.state.name() == state);
        rows.map(|record| of_record(source, &record.state, record.state.state_since)).collect()
    }

    fn item(&self, source: Source, row: &AccountRow, since: Timestamp) -> AttentionItem {
        let running = self.records.get(&row.cluster_id).and_then(|row| row.state.rotation());
        let account = &row.account;
        AttentionItem {
            registry_id: Some(account.registry_id.clone()),
            rotation_id: running.map(|rotation| rotation.id),
            attempts: account.trouble.attempts,
            last_error: account.trouble.last_error.clone(),
            next_attempt_at: Some(account.next_attempt_at),
            ..bare(source, row.cluster_id.clone(), since, account.id.to_string())
        }
    }

    pub(super) fn list_audit(
        &self,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEvent>, StoreError> {
        let start = audit_start(cursor)?;
        let matches = |event: &&AuditEvent| {
            let row = &event.row;
            event.event_id < start
                && filter.cluster_id.as_ref().is_none_or(|id| row.cluster_id.as_ref() == Some(id))
                && filter.actor.as_ref().is_none_or(|actor| row.actor == *actor)
                && filter.action.as_ref().is_none_or(|action| row.action == *action)
                && filter.since.is_none_or(|since| row.at >= since)
        };
        let items = self.audit.iter().rev().filter(matches).cloned().collect();
        Ok(Page::cut(items, limit, None, |event| Key::Audit { id: event.event_id }))
    }
}

pub(super) fn bare(
    source: Source,
    cluster_id: impl Into<Option<ClusterId>>,
    since: Timestamp,
    subject: String,
) -> AttentionItem {
    let cluster_id = cluster_id.into();
    AttentionItem {
        kind: source.kind(),
        cluster_id,
        registry_id: None,
        rotation_id: None,
        credential_id: None,
        revocation_id: None,
        since,
        attempts: 0,
        last_error: None,
        next_attempt_at: None,
        subject,
        source,
    }
}

fn of_record(source: Source, record: &PullSecret, since: Timestamp) -> AttentionItem {
    let refusal = refusal(record);
    AttentionItem {
        registry_id: refusal.map(|refusal| refusal.registry_id.clone()),
        last_error: refusal.map(|refusal| refusal.message.clone()),
        next_attempt_at: record.quarantine.map(|quarantine| quarantine.retry_at),
        ..bare(source, record.cluster_id.clone(), since, record.cluster_id.to_string())
    }
}
