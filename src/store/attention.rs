//! What needs a person: one question with eight kinds of answer, from several tables, each from an index of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::cursor::{Cursor, CursorError, Key};
use crate::ids::{ClusterId, CredentialId, RegistryId, RevocationId, RotationId};
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
    /// A call has been failing, its registry has been blocked, or an API server's word has been missing, for too
    /// long.
    Stuck,
    /// A registry does not let an account go.
    Irrevocable,
    /// A registry refused an account; a person or the signer refused a break-glass credential.
    Denied,
    /// Trouble outlasted `retry.give_up_after` or `break_glass.issue_deadline`.
    Failed,
}

/// The tables that the kinds are from, in the order in which they are listed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    Restored,
    Drifted,
    Quarantined,
    BreakGlassQuarantined,
    Overdue,
    Stuck,
    CredentialStuck,
    RevocationStuck,
    Irrevocable,
    Denied,
    CredentialDenied,
    Failed,
    CredentialFailed,
}

impl Source {
    pub(super) const fn kind(self) -> AttentionKind {
        match self {
            Self::Restored => AttentionKind::Restored,
            Self::Drifted => AttentionKind::Drifted,
            Self::Quarantined | Self::BreakGlassQuarantined => AttentionKind::Quarantined,
            Self::Overdue => AttentionKind::Overdue,
            Self::Stuck | Self::CredentialStuck | Self::RevocationStuck => AttentionKind::Stuck,
            Self::Irrevocable => AttentionKind::Irrevocable,
            Self::Denied | Self::CredentialDenied => AttentionKind::Denied,
            Self::Failed | Self::CredentialFailed => AttentionKind::Failed,
        }
    }

    /// What tells its rows apart.
    pub(super) const fn subject(self) -> SubjectKind {
        match self {
            Self::Restored
            | Self::Quarantined
            | Self::BreakGlassQuarantined
            | Self::Denied
            | Self::Failed => SubjectKind::Cluster,
            Self::Drifted | Self::Stuck | Self::Irrevocable => SubjectKind::Account,
            Self::Overdue => SubjectKind::Rotation,
            Self::CredentialStuck | Self::CredentialDenied | Self::CredentialFailed => {
                SubjectKind::Credential
            }
            Self::RevocationStuck => SubjectKind::Revocation,
        }
    }
}

/// What tells rows of a [`Source`] apart: the cluster's id, or a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectKind {
    Cluster,
    Account,
    Rotation,
    Credential,
    Revocation,
}

impl SubjectKind {
    pub(super) fn is_uuid(self) -> bool {
        self != Self::Cluster
    }
}

/// How old trouble is when it counts as stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckAfter {
    /// That of a pull secret's accounts.
    pub pull_secrets: Duration,
    /// That of break-glass credentials and their revocations.
    pub break_glass: Duration,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionFilter {
    /// One kind, or all.
    pub kind: Option<AttentionKind>,
    /// Now.
    pub now: Timestamp,
    /// Trouble older than this counts as stuck.
    pub stuck_after: StuckAfter,
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
    /// Which break-glass credential, where it is about one.
    pub credential_id: Option<CredentialId>,
    /// Which revocation of break-glass credentials, where it is about one.
    pub revocation_id: Option<RevocationId>,
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
    /// Which table it is from.
    pub(super) source: Source,
}

impl AttentionItem {
    pub(super) fn key(&self) -> Key {
        Key::Attention { source: self.source, at: self.since.as_micros(), id: self.subject.clone() }
    }
}

/// How much trouble there is, for the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TroubleCounts {
    /// Items about pull secrets and the installation by the word of their kind; every kind is there.
    pub attention: BTreeMap<String, u64>,
    /// Items about break-glass credentials, in the same way; every kind that they can have is there.
    pub break_glass: BTreeMap<String, u64>,
    /// Accounts whose name is spoilt and that are not certainly gone yet.
    pub burnt: u64,
}

impl TroubleCounts {
    /// So many more of the kind that this source has.
    pub(super) fn add(&mut self, source: Source, number: u64) {
        let counts = match source {
            Source::Restored
            | Source::Drifted
            | Source::Quarantined
            | Source::Overdue
            | Source::Stuck
            | Source::Irrevocable
            | Source::Denied
            | Source::Failed => &mut self.attention,
            Source::BreakGlassQuarantined
            | Source::CredentialStuck
            | Source::RevocationStuck
            | Source::CredentialDenied
            | Source::CredentialFailed => &mut self.break_glass,
        };
        *counts.entry(source.kind().to_string()).or_default() += number;
    }
}

/// The sources to read, each with where to begin: `(since, subject)` of the last item before.
pub(super) fn plan(
    filter: &AttentionFilter,
    cursor: Option<&Cursor>,
) -> Result<Vec<(Source, i64, String)>, CursorError> {
    let from = match cursor.map(|cursor| &cursor.0) {
        None => None,
        Some(Key::Attention { source, at, id }) => Some((*source, *at, id.clone())),
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
    let wanted = |source: &&Source| filter.kind.is_none_or(|only| only == source.kind());
    let first = from.as_ref().map(|(source, _, _)| *source);
    let start = |source: &Source| match &from {
        Some((at_source, at, id)) if at_source == source => (*source, *at, id.clone()),
        _ => (*source, i64::MIN, String::new()),
    };
    let sources = Source::VARIANTS.iter().filter(wanted);
    Ok(sources.filter(|source| first.is_none_or(|first| **source >= first)).map(start).collect())
}

/// The latest `since` that counts.
pub(super) fn latest(source: Source, filter: &AttentionFilter) -> Timestamp {
    match source {
        Source::Overdue => filter.now,
        Source::Stuck => filter.now.minus(filter.stuck_after.pull_secrets),
        Source::CredentialStuck | Source::RevocationStuck => {
            filter.now.minus(filter.stuck_after.break_glass)
        }
        Source::Restored
        | Source::Drifted
        | Source::Quarantined
        | Source::BreakGlassQuarantined
        | Source::Irrevocable
        | Source::Denied
        | Source::CredentialDenied
        | Source::Failed
        | Source::CredentialFailed => Timestamp::from_micros(i64::MAX),
    }
}

/// The id of an account or a rotation where a page ended; `None` at the beginning.
pub(super) fn subject_id(subject: &str) -> Result<Option<Uuid>, CursorError> {
    if subject.is_empty() {
        return Ok(None);
    }
    Uuid::try_parse(subject).map(Some).map_err(|_| CursorError::Malformed)
}
