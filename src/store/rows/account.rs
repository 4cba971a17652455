//! A row of `accounts`: its columns, what they mean, and in which order they are bound.

use std::time::Duration;

use sqlx::FromRow;
use uuid::Uuid;

use super::super::StoreError;
use super::decode::{generation, maybe_word, small, word};
use crate::ids::{AccountId, CallToken};
use crate::state::pull_secret::{Account, Announcement, Call, Trouble};
use crate::time::Timestamp;

macro_rules! account_columns {
    () => {
        "account_id, registry_id, name, born_generation, phase, remote_id, username, call, \
         call_token, call_at, unanswered_create_at, trouble_since, trouble_attempts, \
         trouble_spent, trouble_counting_since, trouble_blocked, trouble_last_error, \
         trouble_refused, next_attempt_at, planned_at, created_at, verified_at, last_used_at, \
         gone_at, served_in, check_at, dead_looks"
    };
}
pub(in crate::store) use account_columns;

/// What a later write changes: what an account *is* never does, only how it fares.
macro_rules! account_changes {
    () => {
        "ON CONFLICT (account_id) DO UPDATE SET phase = excluded.phase, \
         gone_how = coalesce(excluded.gone_how, accounts.gone_how), drifted_since = CASE WHEN \
         excluded.drifted_since IS NULL THEN NULL ELSE coalesce(accounts.drifted_since, \
         excluded.drifted_since) END, remote_id = excluded.remote_id, \
         username = excluded.username, call = excluded.call, call_token = excluded.call_token, \
         call_at = excluded.call_at, unanswered_create_at = excluded.unanswered_create_at, \
         trouble_since = excluded.trouble_since, trouble_attempts = excluded.trouble_attempts, \
         trouble_spent = excluded.trouble_spent, \
         trouble_counting_since = excluded.trouble_counting_since, \
         trouble_blocked = excluded.trouble_blocked, \
         trouble_last_error = excluded.trouble_last_error, \
         trouble_refused = excluded.trouble_refused, next_attempt_at = excluded.next_attempt_at, \
         created_at = excluded.created_at, verified_at = excluded.verified_at, \
         last_used_at = excluded.last_used_at, gone_at = excluded.gone_at, \
         served_in = excluded.served_in, check_at = excluded.check_at, \
         dead_looks = excluded.dead_looks"
    };
}
pub(in crate::store) use account_changes;

/// Binds `cluster_id, gone_how, drifted_since` and then [`account_columns`].
macro_rules! bind_account {
    ($query:expr, $cluster_id:expr, $change:expr) => {{
        let account = $change.account.as_ref();
        let trouble = &account.trouble;
        let call = account.call.as_ref();
        $query
            .bind($cluster_id.as_str())
            .bind($change.how.map(<&'static str>::from))
            .bind($change.drifted_at)
            .bind(account.id.0)
            .bind(account.registry_id.as_str())
            .bind(account.name.as_str())
            .bind(i64::from(account.born_generation.0))
            .bind(account.phase.as_ref())
            .bind(account.remote_id.as_deref())
            .bind(account.username.as_deref())
            .bind(call.map(|running| <&'static str>::from(running.call)))
            .bind(call.map(|running| running.token.0))
            .bind(call.map(|running| running.at))
            .bind(account.unanswered_create_at)
            .bind(trouble.since)
            .bind(i64::from(trouble.attempts))
            .bind(i64::try_from(trouble.spent.as_micros()).unwrap_or(i64::MAX))
            .bind(trouble.counting_since)
            .bind(trouble.blocked)
            .bind(trouble.last_error.as_deref())
            .bind(trouble.refused)
            .bind(account.next_attempt_at)
            .bind(account.planned_at)
            .bind(account.created_at)
            .bind(account.verified_at)
            .bind(account.last_used_at)
            .bind(account.gone_at)
            .bind(account.served_in.map(|generation| i64::from(generation.0)))
            .bind(account.check_at)
            .bind(i64::from(account.dead_looks))
    }};
}
pub(in crate::store) use bind_account;

#[derive(FromRow)]
pub(in crate::store) struct AccountRow {
    account_id: Uuid,
    registry_id: String,
    name: String,
    born_generation: i64,
    phase: String,
    remote_id: Option<String>,
    username: Option<String>,
    call: Option<String>,
    call_token: Option<Uuid>,
    call_at: Option<Timestamp>,
    unanswered_create_at: Option<Timestamp>,
    trouble_since: Option<Timestamp>,
    trouble_attempts: i64,
    trouble_spent: i64,
    trouble_counting_since: Option<Timestamp>,
    trouble_blocked: bool,
    trouble_last_error: Option<String>,
    trouble_refused: bool,
    next_attempt_at: Timestamp,
    planned_at: Timestamp,
    created_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    gone_at: Option<Timestamp>,
    served_in: Option<i64>,
    check_at: Option<Timestamp>,
    dead_looks: i64,
}

impl TryFrom<AccountRow> for Account {
    type Error = StoreError;
    fn try_from(row: AccountRow) -> Result<Self, StoreError> {
        let call: Option<Call> = maybe_word(row.call.as_deref(), "a call")?;
        let call = match (call, row.call_token, row.call_at) {
            (Some(call), Some(token), Some(at)) => {
                Some(Announcement { call, token: CallToken(token), at })
            }
            (None, None, None) => None,
            _ => return Err(StoreError::corrupt("half an announcement")),
        };
        let spent = u64::try_from(row.trouble_spent)
            .map_err(|_| StoreError::corrupt("a negative duration"))?;
        Ok(Self {
            id: AccountId(row.account_id),
            registry_id: word(&row.registry_id, "a registry id")?,
            name: word(&row.name, "an account name")?,
            born_generation: generation(row.born_generation)?,
            phase: word(&row.phase, "an account's phase")?,
            remote_id: row.remote_id,
            username: row.username,
            call,
            unanswered_create_at: row.unanswered_create_at,
            trouble: Trouble {
                since: row.trouble_since,
                attempts: small(row.trouble_attempts)?,
                spent: Duration::from_micros(spent),
                counting_since: row.trouble_counting_since,
                blocked: row.trouble_blocked,
                last_error: row.trouble_last_error,
                refused: row.trouble_refused,
            },
            next_attempt_at: row.next_attempt_at,
            planned_at: row.planned_at,
            created_at: row.created_at,
            verified_at: row.verified_at,
            last_used_at: row.last_used_at,
            gone_at: row.gone_at,
            served_in: row.served_in.map(generation).transpose()?,
            check_at: row.check_at,
            dead_looks: small(row.dead_looks)?,
        })
    }
}

pub(in crate::store) fn accounts(rows: Vec<AccountRow>) -> Result<Vec<Account>, StoreError> {
    rows.into_iter().map(Account::try_from).collect()
}
