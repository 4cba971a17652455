//! The audit's streams: appended to, anchored, pruned, walked.

use std::collections::BTreeMap;

use super::super::audit::Link;
use super::super::{AuditCheckpoint, AuditEvent, AuditRow, AuditSeal, AuditStream};
use super::Tables;
use super::lists::number;
use crate::time::Timestamp;

impl Tables {
    pub(super) fn append_audit(&mut self, rows: &[AuditRow], seal: Option<&dyn AuditSeal>) {
        for row in rows {
            let link = Link::after(self.heads.get(&row.stream).cloned(), row, seal);
            self.heads.insert(row.stream.clone(), (link.sequence, link.hash.clone()));
            self.last_event += 1;
            self.audit.push(AuditEvent {
                event_id: self.last_event,
                sequence: link.sequence,
                previous_hash: link.previous_hash,
                hash: link.hash,
                row: row.clone(),
            });
        }
    }

    pub(super) fn checkpoint_audit(
        &mut self,
        now: Timestamp,
        limit: u32,
        seal: Option<&dyn AuditSeal>,
    ) -> Vec<AuditCheckpoint> {
        let anchored = |stream: &str| self.anchored.get(stream).copied().unwrap_or(0);
        let moved = self.heads.iter().filter(|(stream, head)| anchored(stream) < head.0);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let made: Vec<_> = moved
            .take(limit)
            .map(|(stream, head)| AuditCheckpoint::new(stream, false, head.clone(), now, seal))
            .collect();
        for checkpoint in &made {
            self.anchored.insert(checkpoint.stream.clone(), checkpoint.sequence);
            self.checkpoints.insert((checkpoint.stream.clone(), false), checkpoint.clone());
        }
        made
    }

    pub(super) fn prune_audit(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        batch: u32,
        seal: Option<&dyn AuditSeal>,
    ) -> u64 {
        let mut old: Vec<_> = self.audit.iter().filter(|event| event.row.at < before).collect();
        old.sort_by_key(|event| (event.row.at, event.event_id));
        old.truncate(usize::try_from(batch).unwrap_or(usize::MAX));
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        for event in old {
            let end = ends.entry(event.row.stream.clone()).or_default();
            *end = event.sequence.max(*end);
        }
        let count = self.audit.len();
        for (stream, end) in ends {
            self.prune_stream(&stream, end, before, now, seal);
        }
        number(count - self.audit.len())
    }

    fn prune_stream(
        &mut self,
        stream: &str,
        end: u64,
        before: Timestamp,
        now: Timestamp,
        seal: Option<&dyn AuditSeal>,
    ) {
        let here = |event: &&AuditEvent| event.row.stream == stream && event.sequence <= end;
        let young = self.audit.iter().filter(here).filter(|event| event.row.at >= before);
        let end = young.map(|event| event.sequence - 1).min().unwrap_or(end);
        let last =
            self.audit.iter().find(|event| event.row.stream == stream && event.sequence == end);
        let Some(hash) = last.map(|event| event.hash.clone()) else { return };
        let base = AuditCheckpoint::new(stream, true, (end, hash), now, seal);
        self.checkpoints.insert((stream.to_owned(), true), base);
        self.audit.retain(|event| event.row.stream != stream || event.sequence > end);
        let anchor = (stream.to_owned(), false);
        if self.checkpoints.get(&anchor).is_some_and(|anchor| anchor.sequence < end) {
            self.checkpoints.remove(&anchor);
        }
    }

    pub(super) fn next_audit_stream(&self, after: &str) -> Option<String> {
        let rows = self.audit.iter().map(|event| &event.row.stream);
        let names = self.heads.keys().chain(rows).filter(|name| name.as_str() > after);
        names.min().cloned()
    }

    pub(super) fn audit_stream(&self, stream: &str) -> AuditStream {
        let checkpoints = self.checkpoints.values().filter(|it| it.stream == stream);
        AuditStream::of(self.heads.get(stream).cloned(), checkpoints.cloned().collect())
    }

    pub(super) fn walk_audit(&self, stream: &str, after: u64, limit: u32) -> Vec<AuditEvent> {
        let rows = self.audit.iter().filter(|it| it.row.stream == stream && it.sequence > after);
        rows.take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect()
    }
}
