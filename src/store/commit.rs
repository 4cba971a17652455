//! What one step writes, and what differs between the state before and after it.
//!
//! Pure: the backends only turn [`Changes`] into rows, so both write the same.

use std::borrow::Cow;

use super::audit::AuditRow;
use super::idempotency::IdempotencyAnswer;
use super::turns::Turn;
use super::{OwnedBy, SealedSecret, StoreError};
use crate::ids::{AccountId, ClusterId, Generation, ReplicaId};
use crate::state::pull_secret::{
    Account, AccountPhase, Consumer, Event, EvidenceSource, GoneHow, PullSecret, Rotation,
};
use crate::time::Timestamp;

/// Everything that one step writes, in one transaction.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// The cluster.
    pub cluster_id: &'a ClusterId,
    /// The version that [`Loaded`](super::Loaded) named.
    pub expected_version: u64,
    /// The state that was loaded.
    pub before: Option<&'a PullSecret>,
    /// The state after the step, *not* compacted: accounts that went and rotations that ended are written
    /// as rows and read back only as history.
    pub after: Option<&'a PullSecret>,
    /// Who owned the record when it was loaded; a guard beside the version.
    pub ownership: OwnedBy,
    /// Who owns it from now on.
    pub owner: Option<ReplicaId>,
    /// The time of the step.
    pub at: Timestamp,
    /// When the state wants to be looked at again.
    pub due_at: Option<Timestamp>,
    /// How the accounts that went in this step went; see [`gone_how`].
    pub gone_how: Vec<(AccountId, GoneHow)>,
    /// Secrets that are new, each sealed for its account. One that is stored already is replaced.
    pub secrets: Vec<(AccountId, SealedSecret)>,
    /// What the audit tells of it.
    pub audit: Vec<AuditRow>,
    /// What others are told of it.
    pub outbox: Vec<OutboxRow>,
    /// The answer that a repeated request gets.
    pub idempotency: Option<IdempotencyAnswer>,
    /// What becomes of the cluster's turn, where its rotation begins or waits. `NoTurn` when it may not begin.
    pub turn: Option<Turn>,
}

impl<'a> Commit<'a> {
    /// A commit that writes the state and nothing else.
    #[must_use]
    pub const fn new(
        cluster_id: &'a ClusterId,
        expected_version: u64,
        before: Option<&'a PullSecret>,
        after: Option<&'a PullSecret>,
        at: Timestamp,
    ) -> Self {
        Self {
            cluster_id,
            expected_version,
            before,
            after,
            ownership: OwnedBy { owner: None, epoch: 0 },
            owner: None,
            at,
            due_at: None,
            gone_how: Vec::new(),
            secrets: Vec::new(),
            audit: Vec::new(),
            outbox: Vec::new(),
            idempotency: None,
            turn: None,
        }
    }
}

/// An event for others, to be delivered at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The event's own id, by which a receiver knows a repetition.
    pub event_id: uuid::Uuid,
    /// What happened.
    pub kind: String,
    /// To whom.
    pub subject: String,
    /// When.
    pub at: Timestamp,
    /// The rest; never a secret.
    pub data: serde_json::Value,
}

/// How the accounts that these events end went.
#[must_use]
pub fn gone_how(events: &[Event]) -> Vec<(AccountId, GoneHow)> {
    let gone = |event: &Event| {
        let Event::AccountGone { account_id, how, .. } = event else { return None };
        Some((*account_id, *how))
    };
    events.iter().filter_map(gone).collect()
}

/// The rows that differ, in the order in which they have to be written.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    pub record: RecordChange<'a>,
    pub last_generation: Generation,
    pub accounts: Vec<AccountChange<'a>>,
    /// Ended ones first: at most one runs.
    pub rotations: Vec<RotationChange<'a>>,
    pub forgotten: Vec<(EvidenceSource, &'a str)>,
    pub consumers: Vec<&'a Consumer>,
}

#[derive(Debug)]
pub(super) enum RecordChange<'a> {
    /// Written whole, whether it differs or not: its due time is part of the row.
    Write(&'a PullSecret),
    Remove,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RotationChange<'a> {
    pub rotation: &'a Rotation,
    /// It waits for the running one.
    pub waits: bool,
}

#[derive(Debug)]
pub(super) struct AccountChange<'a> {
    pub account: Cow<'a, Account>,
    pub how: Option<GoneHow>,
    /// The time to note, where nothing is noted yet, for a served account whose verification is void.
    pub drifted_at: Option<Timestamp>,
}

impl<'a> Changes<'a> {
    /// Compares the two states.
    ///
    /// # Errors
    /// `Corrupt` when rows would get lost: an account that vanished without being gone, a running rotation
    /// that vanished without having ended.
    pub(super) fn between(commit: &'a Commit<'_>) -> Result<Self, StoreError> {
        let (before, after) = (commit.before, commit.after);
        let other = |record: &PullSecret| record.cluster_id != *commit.cluster_id;
        if before.is_some_and(other) || after.is_some_and(other) {
            return Err(StoreError::corrupt("a commit that names two clusters"));
        }
        let counter = |record: Option<&PullSecret>| record.map(|record| record.last_generation);
        let record = match (before, after) {
            (_, Some(after)) => RecordChange::Write(after),
            (Some(_), None) => RecordChange::Remove,
            (None, None) => RecordChange::Nothing,
        };
        Ok(Self {
            record,
            last_generation: counter(before).max(counter(after)).unwrap_or(Generation::NONE),
            accounts: accounts(commit)?,
            rotations: rotations(before, after)?,
            forgotten: forgotten(before, after),
            consumers: consumers(before, after),
        })
    }
}

fn accounts<'a>(commit: &'a Commit<'_>) -> Result<Vec<AccountChange<'a>>, StoreError> {
    let (old, new) = (account_rows(commit.before), account_rows(commit.after));
    let how = |id| commit.gone_how.iter().find(|(gone, _)| *gone == id).map(|(_, how)| *how);
    let known = |rows: &[Account], id| rows.iter().any(|account| account.id == id);
    let vanished = |row: &&Account| row.phase != AccountPhase::Gone && !known(new, row.id);
    let mut changes = Vec::new();
    for account in old.iter().filter(vanished) {
        // The last account may go in the very step that removes the record, and is in neither state then.
        let how = how(account.id).filter(|_| commit.after.is_none());
        if how.is_none() {
            return Err(StoreError::corrupt("an account that vanished without being gone"));
        }
        let gone = gone(account, commit.at);
        changes.push(AccountChange { account: Cow::Owned(gone), how, drifted_at: None });
    }
    let was = |account: &Account| old.iter().find(|row| row.id == account.id);
    let changed = new.iter().filter(|account| was(account) != Some(*account));
    let change = |account: &'a Account| AccountChange {
        account: Cow::Borrowed(account),
        how: how(account.id),
        drifted_at: is_drifted(account).then_some(commit.at),
    };
    changes.extend(changed.map(change));
    Ok(changes)
}

fn gone(account: &Account, at: Timestamp) -> Account {
    Account { phase: AccountPhase::Gone, call: None, gone_at: Some(at), ..account.clone() }
}

fn account_rows(record: Option<&PullSecret>) -> &[Account] {
    record.map_or(&[], |record| record.accounts.as_slice())
}

/// An account is promoted only when verified, and only a failed verification takes that back.
const fn is_drifted(account: &Account) -> bool {
    matches!(account.phase, AccountPhase::Serving) && account.verified_at.is_none()
}

fn rotations<'a>(
    before: Option<&PullSecret>,
    after: Option<&'a PullSecret>,
) -> Result<Vec<RotationChange<'a>>, StoreError> {
    let ended = after.map_or(&[][..], |record| record.ended.as_slice());
    let (old, waited) = open(before);
    let (new, waits) = open(after);
    let goes_on = |old: &Rotation| {
        let mut after = ended.iter().chain(new).chain(waits);
        after.any(|rotation| rotation.id == old.id)
    };
    if !old.into_iter().chain(waited).all(goes_on) {
        return Err(StoreError::corrupt("a rotation that vanished without having ended"));
    }
    let running = new.filter(|rotation| old != Some(*rotation));
    let waiting = waits.filter(|rotation| waited != Some(*rotation));
    let done =
        ended.iter().chain(running).map(|rotation| RotationChange { rotation, waits: false });
    let waiting = waiting.map(|rotation| RotationChange { rotation, waits: true });
    Ok(done.chain(waiting).collect())
}

/// The running rotation, and the one that waits for it.
fn open(record: Option<&PullSecret>) -> (Option<&Rotation>, Option<&Rotation>) {
    (record.and_then(PullSecret::rotation), record.and_then(|record| record.waiting.as_deref()))
}

fn consumer_rows(record: Option<&PullSecret>) -> &[Consumer] {
    record.map_or(&[], |record| record.consumers.as_slice())
}

/// Removal of the record takes its consumers along, so it names none.
fn forgotten<'a>(
    before: Option<&'a PullSecret>,
    after: Option<&PullSecret>,
) -> Vec<(EvidenceSource, &'a str)> {
    if after.is_none() {
        return Vec::new();
    }
    let new = consumer_rows(after);
    let kept = |old: &Consumer| new.iter().any(|c| c.source == old.source && c.name == old.name);
    let old = consumer_rows(before).iter();
    old.filter(|consumer| !kept(consumer)).map(|c| (c.source, c.name.as_str())).collect()
}

fn consumers<'a>(before: Option<&PullSecret>, after: Option<&'a PullSecret>) -> Vec<&'a Consumer> {
    let old = consumer_rows(before);
    consumer_rows(after).iter().filter(|consumer| !old.contains(consumer)).collect()
}
