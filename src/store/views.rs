//! What is read: shapes made for one question each, so that a read costs what its answer needs.

use std::fmt;

use uuid::Uuid;

use super::cursor::{Cursor, CursorError, Key};
use super::replicas::OwnedBy;
use crate::ids::{AccountId, ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, Consumer, PullSecret, Quarantine, Refusal, Rotation, RotationStatus,
    Served, StateName,
};
use crate::time::Timestamp;

/// A secret as it is stored: opaque bytes, sealed for one account with one key.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// The key.
    pub key_id: String,
    /// The sealed bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSecret").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// A cluster's working set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// What the machine works on; equals the committed state, compacted.
    pub record: Option<PullSecret>,
    /// For the guard of the next commit; 0 when the cluster was never heard of.
    pub version: u64,
    /// The cluster's counter, which outlives the record.
    pub last_generation: Generation,
    /// Who may run the record's effects.
    pub ownership: OwnedBy,
}

/// A cluster's working set with the secrets of what is handed out, read at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// The working set.
    pub loaded: Loaded,
    /// The secrets of the served accounts.
    pub secrets: Vec<(AccountId, SealedSecret)>,
}

/// What a GET without metadata needs, read at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedView {
    /// The row version.
    pub version: u64,
    /// The state.
    pub state: StateName,
    /// Since when.
    pub state_since: Timestamp,
    /// What is handed out, where something is.
    pub served: Option<Served>,
    /// Why it is denied or failed.
    pub refusal: Option<Refusal>,
    /// Set while its own code keeps failing.
    pub quarantine: Option<Quarantine>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When a rotation last put a new generation into service.
    pub last_rotated_at: Option<Timestamp>,
    /// When the schedule wants the next one.
    pub next_rotation_at: Option<Timestamp>,
    /// The running rotation.
    pub rotation: Option<RotationBrief>,
    /// The served accounts; empty unless something is handed out.
    pub credentials: Vec<ServedCredential>,
}

/// One served account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedCredential {
    /// Which account; the secret was sealed for it.
    pub account_id: AccountId,
    /// Where it lives.
    pub registry_id: RegistryId,
    /// The full login name.
    pub username: String,
    /// Its secret.
    pub secret: SealedSecret,
}

/// The running rotation, in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationBrief {
    /// Which.
    pub rotation_id: RotationId,
    /// Its status.
    pub status: RotationStatus,
    /// Its phase's word.
    pub phase: String,
    /// Its deadline.
    pub deadline: Option<Timestamp>,
}

/// An account that somebody presented, by user name; gone ones included while their secret is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// Which account; the secret was sealed for it.
    pub account_id: AccountId,
    /// Where it lives.
    pub registry_id: RegistryId,
    /// Where it is in its life.
    pub phase: AccountPhase,
    /// The last generation that it was part of.
    pub generation: Generation,
    /// When it went.
    pub gone_at: Option<Timestamp>,
    /// Its secret.
    pub secret: SealedSecret,
    /// The record's state; `None` after the record was removed.
    pub state: Option<StateName>,
    /// What is handed out now.
    pub served: Option<Served>,
    /// The named consumer's latest heartbeat, to keep writes few.
    pub last_seen: Option<Consumer>,
}

/// A rotation and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationRow {
    /// Whose.
    pub cluster_id: ClusterId,
    /// The rotation.
    pub rotation: Rotation,
}

impl RotationRow {
    pub(super) fn key(&self) -> Key {
        Key::Rotation { at: self.rotation.created_at.as_micros(), id: self.rotation.id }
    }
}

/// A rotation with what its progress is made of, read at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationDetail {
    /// The rotation.
    pub rotation: Rotation,
    /// The cluster's accounts that are not gone, and those born in the new generation even when gone.
    pub accounts: Vec<Account>,
    /// The cluster's consumers.
    pub consumers: Vec<Consumer>,
    /// What is handed out now.
    pub served: Option<Served>,
}

/// Which rotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationFilter {
    /// Of one cluster, or of all.
    pub cluster_id: Option<ClusterId>,
    /// In one of these statuses; empty: in any.
    pub statuses: Vec<RotationStatus>,
    /// Asked for at or after this.
    pub since: Option<Timestamp>,
    /// Ended ones that ended before this are not shown.
    pub history_since: Option<Timestamp>,
    /// Only those past their deadline.
    pub overdue: bool,
    /// Now.
    pub now: Timestamp,
}

impl RotationFilter {
    /// All rotations.
    #[must_use]
    pub const fn all(now: Timestamp) -> Self {
        Self {
            cluster_id: None,
            statuses: Vec::new(),
            since: None,
            history_since: None,
            overdue: false,
            now,
        }
    }
}

/// A record in a list, without accounts and secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSecretRow {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The row version.
    pub version: u64,
    /// The state.
    pub state: StateName,
    /// Since when.
    pub state_since: Timestamp,
    /// What is handed out, where something is.
    pub served: Option<Served>,
    /// Why it is denied or failed.
    pub refusal: Option<Refusal>,
    /// Set while its own code keeps failing.
    pub quarantine: Option<Quarantine>,
    /// The recorded set.
    pub registries: Vec<RegistryId>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When a rotation last put a new generation into service.
    pub last_rotated_at: Option<Timestamp>,
    /// When the schedule wants the next one.
    pub next_rotation_at: Option<Timestamp>,
    /// The running rotation.
    pub rotation: Option<RotationBrief>,
}

/// Which records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSecretFilter {
    /// In this state.
    pub state: Option<StateName>,
    /// With this registry in their set.
    pub registry_id: Option<RegistryId>,
    /// Only those whose running rotation is past its deadline.
    pub overdue: bool,
    /// Now.
    pub now: Timestamp,
}

impl PullSecretFilter {
    /// The whole fleet.
    #[must_use]
    pub const fn all(now: Timestamp) -> Self {
        Self { state: None, registry_id: None, overdue: false, now }
    }
}

/// One secret sealed anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseal {
    /// Whose.
    pub account_id: AccountId,
    /// The bytes that it was opened from; a secret that changed meanwhile is left alone.
    pub from: SealedSecret,
    /// The same secret, sealed with another key.
    pub to: SealedSecret,
}

/// What passes with time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeBefore {
    /// Ended rotations and campaigns that ended before this.
    pub rotations: Timestamp,
    /// Secrets of accounts that went before this.
    pub secrets: Timestamp,
    /// Idempotency keys from before this.
    pub idempotency_keys: Timestamp,
    /// At most so many rows of each in one transaction.
    pub batch: u32,
}

/// How many rows passed. Full batches mean that there may be more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in PurgeBefore")]
pub struct Purged {
    pub rotations: u64,
    pub secrets: u64,
    pub idempotency_keys: u64,
    pub campaigns: u64,
}

/// Where a list of rotations begins, newest first.
pub(super) fn rotation_start(cursor: Option<&Cursor>) -> Result<(i64, Uuid), CursorError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok((i64::MAX, Uuid::max())),
        Some(Key::Rotation { at, id }) => Ok((*at, id.0)),
        Some(
            Key::PullSecret { .. }
            | Key::Attention { .. }
            | Key::Audit { .. }
            | Key::Campaign { .. }
            | Key::Member { .. }
            | Key::Revocation { .. },
        ) => Err(CursorError::OtherList),
    }
}

/// Where a list of records begins; no cluster id sorts before the empty text.
pub(super) fn pull_secret_start(cursor: Option<&Cursor>) -> Result<String, CursorError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok(String::new()),
        Some(Key::PullSecret { id }) => Ok(id.to_string()),
        Some(
            Key::Rotation { .. }
            | Key::Attention { .. }
            | Key::Audit { .. }
            | Key::Campaign { .. }
            | Key::Member { .. }
            | Key::Revocation { .. },
        ) => Err(CursorError::OtherList),
    }
}

/// Where the audit begins, newest first.
pub(super) fn audit_start(cursor: Option<&Cursor>) -> Result<i64, CursorError> {
    match cursor.map(|cursor| &cursor.0) {
        None => Ok(i64::MAX),
        Some(Key::Audit { id }) => Ok(*id),
        Some(
            Key::Rotation { .. }
            | Key::PullSecret { .. }
            | Key::Attention { .. }
            | Key::Campaign { .. }
            | Key::Member { .. }
            | Key::Revocation { .. },
        ) => Err(CursorError::OtherList),
    }
}
