//! What needs a person: one question with eight kinds of answer, each from an index of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::cursor::{Cursor, CursorError, Key};
use crate::ids::{ClusterId, RegistryId, RotationId};
use crate::time::Timestamp;

/// The kinds, in the order in which they are listed.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// The database was restored, and nobody has acknowledged it.
    Restored,
    /// A served account is dead.
    Drifted,
    /// The credential's own code keeps failing.
    Quarantined,
    /// A dual-credential period is past its deadline.
    Overdue,
    /// A call has been failing, or its registry has been blocked, for too long.
    Stuck,
    /// A registry does not let an account go.
    Irrevocable,
    /// A registry refused an account.
    Denied,
    /// Trouble outlasted `retry.give_up_after`.
    Failed,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionFilter {
    /// One kind, or all.
    pub kind: Option<AttentionKind>,
    /// Now.
    pub now: Timestamp,
    /// Trouble older than this counts as stuck.
    pub stuck_after: Duration,
}

/// One thing that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionItem {
    /// Why.
    pub kind: AttentionKind,
    /// Which cluster, unless it is about the whole installation.
    pub cluster_id: Option<ClusterId>,
    /// Which registry, where it is about one.
    pub registry_id: Option<RegistryId>,
    /// Which rotation, where one is running.
    pub rotation_id: Option<RotationId>,
    /// Since when.
    pub since: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// The last failure.
    pub last_error: Option<String>,
    /// When it is tried again.
    pub next_attempt_at: Option<Timestamp>,
    /// What tells it from others of its kind and time: an account, a rotation or a cluster.
    pub(super) subject: String,
}

impl AttentionItem {
    pub(super) fn key(&self) -> Key {
        Key::Attention { kind: self.kind, at: self.since.as_micros(), id: self.subject.clone() }
    }
}

/// How much trouble there is, for the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TroubleCounts {
    /// Items by the word of their kind; every kind is there.
    pub attention: BTreeMap<String, u64>,
    /// Accounts whose name is spoilt and that are not certainly gone yet.
    pub burnt: u64,
}

/// The kinds to read, each with where to begin: `(since, subject)` of the last item before.
pub(super) fn plan(
    filter: &AttentionFilter,
    cursor: Option<&Cursor>,
) -> Result<Vec<(AttentionKind, i64, String)>, CursorError> {
    let from = match cursor.map(|cursor| &cursor.0) {
        None => None,
        Some(Key::Attention { kind, at, id }) => Some((*kind, *at, id.clone())),
        Some(
            Key::Rotation { .. }
            | Key::PullSecret { .. }
            | Key::Audit { .. }
            | Key::Campaign { .. }
            | Key::Member { .. }
            | Key::Revocation { .. },
        ) => {
            return Err(CursorError::OtherList);
        }
    };
    let wanted = |kind: &&AttentionKind| filter.kind.is_none_or(|only| only == **kind);
    let first = from.as_ref().map(|(kind, _, _)| *kind);
    let start = |kind: &AttentionKind| match &from {
        Some((at_kind, at, id)) if at_kind == kind => (*kind, *at, id.clone()),
        _ => (*kind, i64::MIN, String::new()),
    };
    let kinds = AttentionKind::VARIANTS.iter().filter(wanted);
    Ok(kinds.filter(|kind| first.is_none_or(|first| **kind >= first)).map(start).collect())
}

/// The latest `since` that counts.
pub(super) fn latest(kind: AttentionKind, filter: &AttentionFilter) -> Timestamp {
    match kind {
        AttentionKind::Overdue => filter.now,
        AttentionKind::Stuck => filter.now.minus(filter.stuck_after),
        AttentionKind::Restored
        | AttentionKind::Drifted
        | AttentionKind::Quarantined
        | AttentionKind::Irrevocable
        | AttentionKind::Denied
        | AttentionKind::Failed => Timestamp::from_micros(i64::MAX),
    }
}

/// The id of an account or a rotation where a page ended; `None` at the beginning.
pub(super) fn subject_id(subject: &str) -> Result<Option<Uuid>, CursorError> {
    if subject.is_empty() {
        return Ok(None);
    }
    Uuid::try_parse(subject).map(Some).map_err(|_| CursorError::Malformed)
}
