//! The rows of `accounts` and `account_secrets`.

use std::time::Duration;

use sqlx::{FromRow, SqliteConnection};

use super::super::commit::AccountChange;
use super::super::{SealedSecret, StoreError};
use super::decode::{generation, maybe_word, micros, small, time, uuid, word};
use super::error::map;
use crate::ids::{AccountId, CallToken, ClusterId, Generation};
use crate::state::pull_secret::{Account, Announcement, Call, Trouble};
use crate::time::Timestamp;

macro_rules! account_columns {
    () => {
        "account_id, registry_id, name, born_generation, phase, remote_id, username, call, \
         call_token, call_at, unanswered_create_at, trouble_since, trouble_attempts, \
         trouble_spent, trouble_counting_since, trouble_blocked, trouble_last_error, \
         trouble_refused, next_attempt_at, planned_at, created_at, verified_at, last_used_at, \
         gone_at"
    };
}

#[derive(FromRow)]
struct AccountRow {
    account_id: Vec<u8>,
    registry_id: String,
    name: String,
    born_generation: i64,
    phase: String,
    remote_id: Option<String>,
    username: Option<String>,
    call: Option<String>,
    call_token: Option<Vec<u8>>,
    call_at: Option<i64>,
    unanswered_create_at: Option<i64>,
    trouble_since: Option<i64>,
    trouble_attempts: i64,
    trouble_spent: i64,
    trouble_counting_since: Option<i64>,
    trouble_blocked: bool,
    trouble_last_error: Option<String>,
    trouble_refused: bool,
    next_attempt_at: i64,
    planned_at: i64,
    created_at: Option<i64>,
    verified_at: Option<i64>,
    last_used_at: Option<i64>,
    gone_at: Option<i64>,
}

impl TryFrom<AccountRow> for Account {
    type Error = StoreError;
    fn try_from(row: AccountRow) -> Result<Self, StoreError> {
        let call: Option<Call> = maybe_word(row.call.as_deref(), "a call")?;
        let call = match (call, row.call_token, row.call_at) {
            (Some(call), Some(token), Some(at)) => Some(Announcement {
                call,
                token: CallToken(uuid(&token)?),
                at: Timestamp::from_micros(at),
            }),
            (None, None, None) => None,
            _ => return Err(StoreError::corrupt("half an announcement")),
        };
        let spent = u64::try_from(row.trouble_spent)
            .map_err(|_| StoreError::corrupt("a negative duration"))?;
        Ok(Self {
            id: AccountId(uuid(&row.account_id)?),
            registry_id: word(&row.registry_id, "a registry id")?,
            name: word(&row.name, "an account name")?,
            born_generation: generation(row.born_generation)?,
            phase: word(&row.phase, "an account's phase")?,
            remote_id: row.remote_id,
            username: row.username,
            call,
            unanswered_create_at: time(row.unanswered_create_at),
            trouble: Trouble {
                since: time(row.trouble_since),
                attempts: small(row.trouble_attempts)?,
                spent: Duration::from_micros(spent),
                counting_since: time(row.trouble_counting_since),
                blocked: row.trouble_blocked,
                last_error: row.trouble_last_error,
                refused: row.trouble_refused,
            },
            next_attempt_at: Timestamp::from_micros(row.next_attempt_at),
            planned_at: Timestamp::from_micros(row.planned_at),
            created_at: time(row.created_at),
            verified_at: time(row.verified_at),
            last_used_at: time(row.last_used_at),
            gone_at: time(row.gone_at),
        })
    }
}

fn accounts(rows: Vec<AccountRow>) -> Result<Vec<Account>, StoreError> {
    rows.into_iter().map(Account::try_from).collect()
}

/// Index: `accounts_live`.
pub(super) const SELECT_LIVE: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts WHERE cluster_id = ?1 AND phase <> 'gone' ORDER BY position"
);

/// The accounts that are not gone, in the order in which they were planned.
pub(super) async fn live(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
) -> Result<Vec<Account>, StoreError> {
    let rows = sqlx::query_as(SELECT_LIVE).bind(cluster_id.as_str()).fetch_all(db).await;
    accounts(rows.map_err(map)?)
}

/// Index: `accounts_by_generation`.
pub(super) const SELECT_BORN: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts WHERE cluster_id = ?1 AND born_generation = ?2 ORDER BY position"
);

/// The accounts of one generation, gone ones included.
pub(super) async fn born(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    generation: Generation,
) -> Result<Vec<Account>, StoreError> {
    let query = sqlx::query_as(SELECT_BORN).bind(cluster_id.as_str()).bind(generation.0);
    accounts(query.fetch_all(db).await.map_err(map)?)
}

/// Index: the unique one of `accounts.account_id`. What an account *is* never changes, only how it fares.
const UPSERT: &str = concat!(
    "INSERT INTO accounts (cluster_id, gone_how, drifted_since, ",
    account_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27) \
     ON CONFLICT (account_id) DO UPDATE SET phase = excluded.phase, \
     gone_how = coalesce(excluded.gone_how, gone_how), drifted_since = CASE WHEN \
     excluded.drifted_since IS NULL THEN NULL ELSE coalesce(drifted_since, \
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
     last_used_at = excluded.last_used_at, gone_at = excluded.gone_at"
);

pub(super) async fn write(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    change: &AccountChange<'_>,
) -> Result<(), StoreError> {
    let account = change.account.as_ref();
    let trouble = &account.trouble;
    let spent = i64::try_from(trouble.spent.as_micros()).unwrap_or(i64::MAX);
    let query = sqlx::query(UPSERT)
        .bind(cluster_id.as_str())
        .bind(change.how.map(<&'static str>::from))
        .bind(micros(change.drifted_at))
        .bind(&account.id.0.as_bytes()[..])
        .bind(account.registry_id.as_str())
        .bind(account.name.as_str())
        .bind(account.born_generation.0)
        .bind(account.phase.as_ref())
        .bind(account.remote_id.as_deref())
        .bind(account.username.as_deref())
        .bind(account.call.map(|running| <&'static str>::from(running.call)))
        .bind(account.call.as_ref().map(|running| &running.token.0.as_bytes()[..]))
        .bind(account.call.map(|running| running.at.as_micros()))
        .bind(micros(account.unanswered_create_at))
        .bind(micros(trouble.since))
        .bind(trouble.attempts)
        .bind(spent)
        .bind(micros(trouble.counting_since))
        .bind(trouble.blocked)
        .bind(trouble.last_error.as_deref())
        .bind(trouble.refused)
        .bind(account.next_attempt_at.as_micros())
        .bind(account.planned_at.as_micros())
        .bind(micros(account.created_at))
        .bind(micros(account.verified_at))
        .bind(micros(account.last_used_at))
        .bind(micros(account.gone_at));
    query.execute(&mut *db).await.map_err(map)?;
    match account.gone_at {
        Some(at) => bury(db, account.id, at).await,
        None => Ok(()),
    }
}

/// The secret of an account that is gone begins to pass. Index: the primary key.
async fn bury(db: &mut SqliteConnection, id: AccountId, at: Timestamp) -> Result<(), StoreError> {
    let query = sqlx::query("UPDATE account_secrets SET gone_at = ?2 WHERE account_id = ?1");
    let query = query.bind(&id.0.as_bytes()[..]).bind(at.as_micros());
    query.execute(db).await.map_err(map).map(drop)
}

/// Index: the primary key.
const UPSERT_SECRET: &str = "INSERT INTO account_secrets (account_id, key_id, sealed, gone_at) \
     VALUES (?1, ?2, ?3, (SELECT gone_at FROM accounts WHERE account_id = ?1)) \
     ON CONFLICT (account_id) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed";

pub(super) async fn write_secret(
    db: &mut SqliteConnection,
    id: AccountId,
    secret: &SealedSecret,
) -> Result<(), StoreError> {
    let query = sqlx::query(UPSERT_SECRET)
        .bind(&id.0.as_bytes()[..])
        .bind(&secret.key_id)
        .bind(&secret.bytes[..]);
    query.execute(db).await.map_err(map).map(drop)
}
