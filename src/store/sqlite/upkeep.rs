//! Schema, installation, keys, and what passes with time.

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::super::rows::read::SecretRow;
use super::super::schema;
use super::super::{PurgeBefore, Purged, Reseal, SealedSecret, StoreError};
use super::error::map;
use super::write::Write;
use crate::ids::AccountId;
use crate::time::Timestamp;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

pub(super) async fn migrate(writer: &SqlitePool) -> Result<(), StoreError> {
    schema::not_newer(schema_version(writer).await?, &MIGRATIONS)?;
    MIGRATIONS.run(writer).await.map_err(|error| schema::error(error, map))
}

pub(super) async fn check_schema(reader: &SqlitePool) -> Result<(), StoreError> {
    schema::is_ours(schema_version(reader).await?, &MIGRATIONS)
}

pub(super) async fn schema_version(pool: &SqlitePool) -> Result<i64, StoreError> {
    let query = sqlx::query_as(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations')",
    );
    let (any,): (bool,) = query.fetch_one(pool).await.map_err(map)?;
    if !any {
        return Ok(0);
    }
    let query = sqlx::query_as("SELECT max(version) FROM _sqlx_migrations WHERE success");
    let (version,): (Option<i64>,) = query.fetch_one(pool).await.map_err(map)?;
    Ok(version.unwrap_or(0))
}

pub(super) async fn ping(reader: &SqlitePool) -> Result<(), StoreError> {
    // Reads the file's header page, so that a file that went bad is noticed.
    let query = sqlx::query("SELECT count(*) FROM sqlite_schema");
    query.fetch_one(reader).await.map_err(map).map(drop)
}

/// Index: the primary key. The first one decides.
const CLAIM: &str = "INSERT INTO installation (one, installation_id, created_at) \
     VALUES (1, ?1, ?2) ON CONFLICT (one) DO NOTHING";

pub(super) async fn claim_installation(
    writer: &SqlitePool,
    id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let claim = sqlx::query(CLAIM).bind(id).bind(now);
    claim.execute(writer).await.map_err(map)?;
    // What was claimed first never changes, so this needs no transaction.
    let query = sqlx::query_as("SELECT installation_id FROM installation WHERE one = 1");
    let (stored,): (String,) = query.fetch_one(writer).await.map_err(map)?;
    if stored == id {
        return Ok(());
    }
    Err(StoreError::InstallationMismatch { stored, configured: id.to_owned() })
}

/// Index: `account_secrets_by_key`, nothing else.
pub(super) const CENSUS: &str = "SELECT key_id, count(*) FROM account_secrets GROUP BY key_id";

/// Index: the primary key. A whole walk reads each row once; the census says whether one is needed.
pub(super) const SELECT_OTHERWISE: &str = "SELECT account_id, key_id, sealed FROM account_secrets \
     WHERE account_id > ?2 AND key_id <> ?1 ORDER BY account_id LIMIT ?3";

pub(super) async fn sealed_otherwise(
    reader: &SqlitePool,
    key_id: &str,
    after: Option<AccountId>,
    limit: u32,
) -> Result<Vec<(AccountId, SealedSecret)>, StoreError> {
    let after = after.map_or_else(Vec::new, |id| id.0.as_bytes().to_vec());
    let query = sqlx::query_as(SELECT_OTHERWISE).bind(key_id).bind(after).bind(limit);
    let rows: Vec<SecretRow> = query.fetch_all(reader).await.map_err(map)?;
    Ok(rows.into_iter().map(SecretRow::secret).collect())
}

/// Index: the primary key.
const RESEAL: &str = "UPDATE account_secrets SET key_id = ?4, sealed = ?5 \
     WHERE account_id = ?1 AND key_id = ?2 AND sealed = ?3";

pub(super) async fn reseal(writer: &SqlitePool, batch: &[Reseal]) -> Result<u64, StoreError> {
    let mut tx = Write::begin(writer).await?;
    let resealed = reseal_in(&mut tx, batch).await;
    tx.end(resealed).await
}

async fn reseal_in(db: &mut SqliteConnection, batch: &[Reseal]) -> Result<u64, StoreError> {
    let mut resealed = 0;
    for one in batch {
        let query = sqlx::query(RESEAL)
            .bind(one.account_id.0)
            .bind(&one.from.key_id)
            .bind(&one.from.bytes)
            .bind(&one.to.key_id)
            .bind(&one.to.bytes);
        resealed += query.execute(&mut *db).await.map_err(map)?.rows_affected();
    }
    Ok(resealed)
}

/// Index: `rotations_ended`.
pub(super) const PURGE_ROTATIONS: &str = "DELETE FROM rotations WHERE rotation_id IN \
     (SELECT rotation_id FROM rotations WHERE running = 0 AND completed_at < ?1 \
     ORDER BY completed_at LIMIT ?2)";

/// Index: `account_secrets_gone`.
pub(super) const PURGE_SECRETS: &str = "DELETE FROM account_secrets WHERE account_id IN \
     (SELECT account_id FROM account_secrets WHERE gone_at IS NOT NULL AND gone_at < ?1 \
     ORDER BY gone_at LIMIT ?2)";

/// Index: `idempotency_keys_by_age`.
pub(super) const PURGE_KEYS: &str = "DELETE FROM idempotency_keys \
     WHERE (key_hash, caller_hash) IN (SELECT key_hash, caller_hash FROM idempotency_keys \
     WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)";

/// Index: `campaigns_ended`. Each takes its members along, hence so few at once.
pub(super) const PURGE_CAMPAIGNS: &str = "DELETE FROM campaigns WHERE campaign_id IN \
     (SELECT campaign_id FROM campaigns WHERE completed_at < ?1 AND running = 0 \
     ORDER BY completed_at LIMIT min(?2, 4))";

pub(super) async fn purge(writer: &SqlitePool, before: PurgeBefore) -> Result<Purged, StoreError> {
    let mut tx = Write::begin(writer).await?;
    let purged = purge_in(&mut tx, before).await;
    tx.end(purged).await
}

async fn purge_in(db: &mut SqliteConnection, before: PurgeBefore) -> Result<Purged, StoreError> {
    let mut passed = [0; 4];
    let work = [
        (PURGE_ROTATIONS, before.rotations),
        (PURGE_SECRETS, before.secrets),
        (PURGE_KEYS, before.idempotency_keys),
        (PURGE_CAMPAIGNS, before.rotations),
    ];
    for (passed, (sql, end)) in passed.iter_mut().zip(work) {
        let query = sqlx::query(sql).bind(end).bind(before.batch);
        *passed = query.execute(&mut *db).await.map_err(map)?.rows_affected();
    }
    let [rotations, secrets, idempotency_keys, campaigns] = passed;
    Ok(Purged { rotations, secrets, idempotency_keys, campaigns })
}
