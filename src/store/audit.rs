//! The audit's rows and the chain that binds them.
//!
//! Each stream is a chain of its own: a row's hash covers the row and the hash before it. The key is not
//! known here; whoever opens the store brings an [`AuditSeal`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::time::Timestamp;

/// One thing that somebody did or that happened. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRow {
    /// The chain that it belongs to: one per cluster's credential, one per replica for reads.
    pub stream: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// Of which cluster.
    pub cluster_id: Option<ClusterId>,
    /// Of which rotation.
    pub rotation_id: Option<RotationId>,
    /// Of which account, by name.
    pub account: Option<String>,
    /// At which registry.
    pub registry_id: Option<RegistryId>,
    /// Of which generation.
    pub generation: Option<Generation>,
    /// The rest.
    pub detail: serde_json::Value,
    /// The caller's own words.
    pub reason: Option<String>,
    /// The request that it came with.
    pub request_id: Option<String>,
}

/// A stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Its place in the whole table.
    pub event_id: i64,
    /// Its place in its stream, from 1.
    pub sequence: u64,
    /// The hash of the row before it; `None` on the first one and where no key is set.
    pub previous_hash: Option<Vec<u8>>,
    /// The keyed hash; `None` where no key is set.
    pub hash: Option<Vec<u8>>,
    /// What it says.
    pub row: AuditRow,
}

/// Which rows of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Of this cluster.
    pub cluster_id: Option<ClusterId>,
    /// By this actor.
    pub actor: Option<String>,
    /// This action.
    pub action: Option<String>,
    /// Not before this.
    pub since: Option<Timestamp>,
}

/// Makes the keyed hash of a row.
pub trait AuditSeal: Send + Sync + std::fmt::Debug {
    /// The keyed hash of these bytes.
    fn seal(&self, message: &[u8]) -> Vec<u8>;
}

/// The bytes that a row's hash covers. They can be made again from what is stored.
#[must_use]
pub fn canonical(row: &AuditRow, sequence: u64, previous_hash: Option<&[u8]>) -> Vec<u8> {
    let hex = previous_hash.map(|hash| data_encoding::HEXLOWER.encode(hash));
    // A tuple of strings, numbers and maps with ordered keys has one spelling, and serialising it to
    // memory cannot fail; an empty message would never verify.
    serde_json::to_vec(&("audit/1", sequence, hex, row)).unwrap_or_default()
}

/// The last row of a stream: its sequence and its hash.
pub type StreamHead = (u64, Option<Vec<u8>>);

/// Says that a stream had this row at this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCheckpoint {
    /// Which stream.
    pub stream: String,
    /// The rows up to here were pruned; else they are to be found, and this is an anchor.
    pub pruned: bool,
    /// Of which row.
    pub sequence: u64,
    /// Its hash.
    pub hash: Option<Vec<u8>>,
    /// When this was said.
    pub at: Timestamp,
    /// The keyed hash of all this; `None` where no key is set.
    pub seal: Option<Vec<u8>>,
}

impl AuditCheckpoint {
    pub(super) fn new(
        stream: &str,
        pruned: bool,
        (sequence, hash): StreamHead,
        at: Timestamp,
        key: Option<&dyn AuditSeal>,
    ) -> Self {
        let mut made = Self { stream: stream.to_owned(), pruned, sequence, hash, at, seal: None };
        made.seal = key.map(|key| key.seal(&made.canonical()));
        made
    }

    /// The bytes that the seal covers.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let hash = self.hash.as_deref().map(|hash| data_encoding::HEXLOWER.encode(hash));
        let said = ("checkpoint/1", &self.stream, self.pruned, self.sequence, hash, self.at);
        serde_json::to_vec(&said).unwrap_or_default()
    }
}

/// What is known of a stream besides its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditStream {
    /// Its last row.
    pub head: Option<StreamHead>,
    /// Where its rows begin, when some were pruned.
    pub base: Option<AuditCheckpoint>,
    /// Its latest anchor.
    pub anchor: Option<AuditCheckpoint>,
}

impl AuditStream {
    pub(super) fn of(head: Option<StreamHead>, checkpoints: Vec<AuditCheckpoint>) -> Self {
        let (base, anchor): (Vec<_>, Vec<_>) = checkpoints.into_iter().partition(|it| it.pruned);
        Self { head, base: base.into_iter().next(), anchor: anchor.into_iter().next() }
    }
}

/// The place and the hashes of the next row of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub sequence: u64,
    pub previous_hash: Option<Vec<u8>>,
    pub hash: Option<Vec<u8>>,
}

impl Link {
    /// Goes on where the stream's head is.
    pub(super) fn after(
        head: Option<StreamHead>,
        row: &AuditRow,
        seal: Option<&dyn AuditSeal>,
    ) -> Self {
        let (last, previous_hash) = head.unwrap_or((0, None));
        let sequence = last.saturating_add(1);
        let message =
            |seal: &dyn AuditSeal| seal.seal(&canonical(row, sequence, previous_hash.as_deref()));
        let hash = seal.map(message);
        Self { sequence, previous_hash, hash }
    }
}

/// The links of these rows. The heads of their streams, where they have one, move along.
pub(super) fn links<'a>(
    rows: &'a [AuditRow],
    heads: &mut BTreeMap<&'a str, StreamHead>,
    seal: Option<&dyn AuditSeal>,
) -> Vec<Link> {
    let link = |row: &'a AuditRow| {
        let link = Link::after(heads.remove(row.stream.as_str()), row, seal);
        heads.insert(&row.stream, (link.sequence, link.hash.clone()));
        link
    };
    rows.iter().map(link).collect()
}
