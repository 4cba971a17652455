//! The rows of sweeps, of unknown accounts and of restores.

use sqlx::FromRow;
use uuid::Uuid;

use super::super::{Deletion, Restored, StoreError, SweepState, SweepSummary, UnknownAccount};
use super::decode::{count, generation, maybe_word, small, word};
use crate::ids::{AccountId, CallToken};
use crate::state::pull_secret::{AccountPhase, GoneHow};
use crate::state::sweep::{Named, Serving, Standing};
use crate::time::Timestamp;

macro_rules! sweep_columns {
    () => {
        "registry_id, due_at, lease_until, started_at, finished_at, listed, ours, \
         unknown_accounts, foreign_accounts, missing, failed_at, last_error"
    };
}
pub(in crate::store) use sweep_columns;

#[derive(FromRow)]
pub(in crate::store) struct SweepRow {
    registry_id: String,
    due_at: Timestamp,
    lease_until: Option<Timestamp>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    listed: Option<i64>,
    ours: Option<i64>,
    unknown_accounts: Option<i64>,
    foreign_accounts: Option<i64>,
    missing: Option<i64>,
    failed_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl TryFrom<SweepRow> for SweepState {
    type Error = StoreError;
    fn try_from(row: SweepRow) -> Result<Self, StoreError> {
        let number = |value: Option<i64>| count(value.unwrap_or(0));
        let last = match (row.started_at, row.finished_at) {
            (Some(started_at), Some(finished_at)) => Some(SweepSummary {
                started_at,
                finished_at,
                listed: number(row.listed)?,
                ours: number(row.ours)?,
                unknown: number(row.unknown_accounts)?,
                foreign: number(row.foreign_accounts)?,
                missing: number(row.missing)?,
            }),
            (Some(_), None) | (None, Some(_)) => {
                return Err(StoreError::corrupt("half a sweep"));
            }
            (None, None) => None,
        };
        Ok(Self {
            registry_id: word(&row.registry_id, "a registry id")?,
            due_at: row.due_at,
            lease_until: row.lease_until,
            last,
            failed: row.failed_at.zip(row.last_error),
        })
    }
}

macro_rules! unknown_columns {
    () => {
        "registry_id, name, remote_id, cluster_id, generation, first_seen_at, decided_at, \
         call_token, call_at, attempts, next_attempt_at, last_error"
    };
}
pub(in crate::store) use unknown_columns;

#[derive(FromRow)]
pub(in crate::store) struct UnknownRow {
    registry_id: String,
    name: String,
    remote_id: Option<String>,
    cluster_id: Option<String>,
    generation: Option<i64>,
    first_seen_at: Timestamp,
    decided_at: Option<Timestamp>,
    call_token: Option<Uuid>,
    call_at: Option<Timestamp>,
    attempts: i64,
    next_attempt_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl TryFrom<UnknownRow> for UnknownAccount {
    type Error = StoreError;
    fn try_from(row: UnknownRow) -> Result<Self, StoreError> {
        let attempts = small(row.attempts)?;
        let call = row.call_token.map(CallToken).zip(row.call_at);
        let deletion = row.decided_at.map(|decided_at| Deletion {
            decided_at,
            call,
            attempts,
            next_attempt_at: row.next_attempt_at.unwrap_or(decided_at),
            last_error: row.last_error,
        });
        Ok(Self {
            registry_id: word(&row.registry_id, "a registry id")?,
            name: row.name,
            remote_id: row.remote_id,
            cluster_id: maybe_word(row.cluster_id.as_deref(), "a cluster id")?,
            generation: row.generation.map(generation).transpose()?,
            first_seen_at: row.first_seen_at,
            deletion,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct NamedRow {
    name: String,
    cluster_id: String,
    phase: String,
    gone_at: Option<Timestamp>,
    gone_how: Option<String>,
}

impl TryFrom<NamedRow> for Named {
    type Error = StoreError;
    fn try_from(row: NamedRow) -> Result<Self, StoreError> {
        let phase: AccountPhase = word(&row.phase, "an account's phase")?;
        let how: Option<GoneHow> = maybe_word(row.gone_how.as_deref(), "how an account went")?;
        Ok(Self {
            name: row.name,
            cluster_id: word(&row.cluster_id, "a cluster id")?,
            standing: standing(phase, how, row.gone_at),
        })
    }
}

/// What a row says of its name.
pub(in crate::store) const fn standing(
    phase: AccountPhase,
    how: Option<GoneHow>,
    gone_at: Option<Timestamp>,
) -> Standing {
    match (phase, how) {
        (AccountPhase::Gone, Some(GoneHow::Foreign)) => Standing::Foreign,
        (
            AccountPhase::Gone,
            Some(GoneHow::Deleted | GoneHow::NeverCreated | GoneHow::Forced) | None,
        ) => Standing::Gone { at: gone_at },
        (
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Burnt
            | AccountPhase::Residue,
            _,
        ) => Standing::Wanted,
    }
}

#[derive(FromRow)]
pub(in crate::store) struct ServingRow {
    account_id: Uuid,
    cluster_id: String,
    name: String,
    created_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
}

impl TryFrom<ServingRow> for Serving {
    type Error = StoreError;
    fn try_from(row: ServingRow) -> Result<Self, StoreError> {
        Ok(Self {
            account_id: AccountId(row.account_id),
            cluster_id: word(&row.cluster_id, "a cluster id")?,
            name: row.name,
            created_at: row.created_at,
            verified_at: row.verified_at,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct RestoredRow {
    restored_at: Timestamp,
    reason: String,
    acknowledged_at: Option<Timestamp>,
    acknowledged_by: Option<String>,
}

impl From<RestoredRow> for Restored {
    fn from(row: RestoredRow) -> Self {
        Self {
            restored_at: row.restored_at,
            reason: row.reason,
            acknowledged_at: row.acknowledged_at,
            acknowledged_by: row.acknowledged_by,
        }
    }
}
