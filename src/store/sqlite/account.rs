//! The rows of `accounts` and `account_secrets`.

use sqlx::SqliteConnection;

use super::super::commit::AccountChange;
use super::super::rows::account::{account_changes, account_columns, accounts, bind_account};
use super::super::{SealedSecret, StoreError};
use super::error::map;
use crate::ids::{AccountId, ClusterId, Generation};
use crate::state::pull_secret::Account;
use crate::time::Timestamp;

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
    let query = sqlx::query_as(SELECT_BORN).bind(cluster_id.as_str()).bind(i64::from(generation.0));
    accounts(query.fetch_all(db).await.map_err(map)?)
}

/// Index: the unique one of `accounts.account_id`.
const UPSERT: &str = concat!(
    "INSERT INTO accounts (cluster_id, gone_how, drifted_since, ",
    account_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30) ",
    account_changes!()
);

pub(super) async fn write(
    db: &mut SqliteConnection,
    cluster_id: &ClusterId,
    change: &AccountChange<'_>,
) -> Result<(), StoreError> {
    let query = bind_account!(sqlx::query(UPSERT), cluster_id, change);
    query.execute(&mut *db).await.map_err(map)?;
    match change.account.gone_at {
        Some(at) => bury(db, change.account.id, at).await,
        None => Ok(()),
    }
}

/// The secret of an account that is gone begins to pass. Index: the primary key.
async fn bury(db: &mut SqliteConnection, id: AccountId, at: Timestamp) -> Result<(), StoreError> {
    let query = sqlx::query("UPDATE account_secrets SET gone_at = ?2 WHERE account_id = ?1");
    let query = query.bind(id.0).bind(at);
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
    let query = sqlx::query(UPSERT_SECRET).bind(id.0).bind(&secret.key_id).bind(&secret.bytes[..]);
    query.execute(db).await.map_err(map).map(drop)
}
