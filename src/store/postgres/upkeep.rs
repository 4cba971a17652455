//! Schema, installation, keys, and what passes with time.

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnection, PgPool};

use super::super::rows::read::SecretRow;
use super::super::schema;
use super::super::{PurgeBefore, Purged, Reseal, SealedSecret, StoreError, Unavailable};
use super::error::map;
use super::transaction::{all, end, query, query_as, read, write};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// Without sqlx's own lock, which belongs to a session and would stay behind in a pooler.
static MIGRATIONS: Migrator = {
    let mut migrations = sqlx::migrate!("migrations/postgres");
    migrations.locking = false;
    migrations
};

/// The lock is the transaction's; the number is ours and means nothing. sqlx's migrator names its statements,
/// so those of an earlier client of this server connection must not be in its way, nor its own in a later one's.
const BEGIN_MIGRATION: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SELECT pg_advisory_xact_lock(5195873263411); DEALLOCATE ALL";

/// All or nothing: one transaction for every version that is missing. A migration that cannot run in one
/// (`CREATE INDEX CONCURRENTLY`) would need another way.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let mut tx = pool.begin_with(BEGIN_MIGRATION).await.map_err(map)?;
    let done = migrate_in(&mut tx).await;
    end(tx, done).await
}

async fn migrate_in(db: &mut PgConnection) -> Result<(), StoreError> {
    schema::not_newer(version_in(db).await?, &MIGRATIONS)?;
    let done = MIGRATIONS.run_direct(None, &mut *db, false).await;
    done.map_err(|error| schema::error(error, map))?;
    sqlx::raw_sql("DEALLOCATE ALL").execute(db).await.map_err(map).map(drop)
}

pub(super) async fn check_schema(pool: &PgPool) -> Result<(), StoreError> {
    schema::is_ours(schema_version(pool).await?, &MIGRATIONS)
}

pub(super) async fn schema_version(pool: &PgPool) -> Result<i64, StoreError> {
    let mut tx = read(pool).await?;
    let version = version_in(&mut tx).await;
    end(tx, version).await
}

async fn version_in(db: &mut PgConnection) -> Result<i64, StoreError> {
    let query = query_as("SELECT to_regclass('_sqlx_migrations') IS NOT NULL");
    let (any,): (bool,) = query.fetch_one(&mut *db).await.map_err(map)?;
    if !any {
        return Ok(0);
    }
    let query = query_as("SELECT max(version) FROM _sqlx_migrations WHERE success");
    let (version,): (Option<i64>,) = query.fetch_one(db).await.map_err(map)?;
    Ok(version.unwrap_or(0))
}

pub(super) async fn ping(pool: &PgPool) -> Result<(), StoreError> {
    // A standby, or a primary that was told to take no writes, answers reads as ever.
    let query = query_as("SELECT current_setting('transaction_read_only')");
    let (read_only,): (String,) = query.fetch_one(pool).await.map_err(map)?;
    if read_only == "off" {
        return Ok(());
    }
    let detail = "the database takes no writes".to_owned();
    Err(StoreError::Unavailable { reason: Unavailable::ReadOnly, detail })
}

/// Index: the primary key. The first one decides.
const CLAIM: &str = "INSERT INTO installation (one, installation_id, created_at) \
     VALUES (1, $1, $2) ON CONFLICT (one) DO NOTHING";

pub(super) async fn claim_installation(
    pool: &PgPool,
    id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let stored = claim(&mut tx, id, now).await;
    let stored = end(tx, stored).await?;
    if stored == id {
        return Ok(());
    }
    Err(StoreError::InstallationMismatch { stored, configured: id.to_owned() })
}

async fn claim(db: &mut PgConnection, id: &str, now: Timestamp) -> Result<String, StoreError> {
    query(CLAIM).bind(id).bind(now).execute(&mut *db).await.map_err(map)?;
    let query = query_as("SELECT installation_id FROM installation WHERE one = 1");
    let (stored,): (String,) = query.fetch_one(db).await.map_err(map)?;
    Ok(stored)
}

/// Index: `account_secrets_by_key`, nothing else once it was vacuumed.
pub(super) const CENSUS: &str = "SELECT key_id, count(*) FROM account_secrets GROUP BY key_id";

/// Index: the primary key. A whole walk reads each row once; the census says whether one is needed.
pub(super) const SELECT_OTHERWISE: &str = "SELECT account_id, key_id, sealed FROM account_secrets \
     WHERE account_id > $2 AND key_id <> $1 ORDER BY account_id LIMIT $3";

pub(super) async fn sealed_otherwise(
    pool: &PgPool,
    key_id: &str,
    after: Option<AccountId>,
    limit: u32,
) -> Result<Vec<(AccountId, SealedSecret)>, StoreError> {
    // No account has the nil id.
    let after = after.map(|id| id.0).unwrap_or_default();
    let query = query_as(SELECT_OTHERWISE).bind(key_id).bind(after).bind(i64::from(limit));
    let rows: Vec<SecretRow> = all(pool, query).await?;
    Ok(rows.into_iter().map(SecretRow::secret).collect())
}

/// Index: the primary key.
const RESEAL: &str = "UPDATE account_secrets SET key_id = $4, sealed = $5 \
     WHERE account_id = $1 AND key_id = $2 AND sealed = $3";

pub(super) async fn reseal(pool: &PgPool, batch: &[Reseal]) -> Result<u64, StoreError> {
    let mut tx = write(pool).await?;
    let resealed = reseal_in(&mut tx, batch).await;
    end(tx, resealed).await
}

async fn reseal_in(db: &mut PgConnection, batch: &[Reseal]) -> Result<u64, StoreError> {
    let mut resealed = 0;
    for one in batch {
        let query = query(RESEAL)
            .bind(one.account_id.0)
            .bind(&one.from.key_id)
            .bind(&one.from.bytes)
            .bind(&one.to.key_id)
            .bind(&one.to.bytes);
        resealed += query.execute(&mut *db).await.map_err(map)?.rows_affected();
    }
    Ok(resealed)
}

/// Index: `rotations_ended`. Rows that a commit holds are left for the next time.
pub(super) const PURGE_ROTATIONS: &str = "DELETE FROM rotations WHERE rotation_id IN \
     (SELECT rotation_id FROM rotations WHERE NOT running AND completed_at < $1 \
     ORDER BY completed_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// Index: `account_secrets_gone`.
pub(super) const PURGE_SECRETS: &str = "DELETE FROM account_secrets WHERE account_id IN \
     (SELECT account_id FROM account_secrets WHERE gone_at IS NOT NULL AND gone_at < $1 \
     ORDER BY gone_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// Index: `idempotency_keys_by_age`.
pub(super) const PURGE_KEYS: &str = "DELETE FROM idempotency_keys \
     WHERE (key_hash, caller_hash) IN (SELECT key_hash, caller_hash FROM idempotency_keys \
     WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// Index: `campaigns_ended`. Each takes its members along, hence so few at once.
pub(super) const PURGE_CAMPAIGNS: &str = "DELETE FROM campaigns WHERE campaign_id IN \
     (SELECT campaign_id FROM campaigns WHERE completed_at < $1 AND running = 0 \
     ORDER BY completed_at LIMIT least($2, 4) FOR UPDATE SKIP LOCKED)";

pub(super) async fn purge(pool: &PgPool, before: PurgeBefore) -> Result<Purged, StoreError> {
    let mut tx = write(pool).await?;
    let purged = purge_in(&mut tx, before).await;
    end(tx, purged).await
}

async fn purge_in(db: &mut PgConnection, before: PurgeBefore) -> Result<Purged, StoreError> {
    let mut passed = [0; 4];
    let work = [
        (PURGE_ROTATIONS, before.rotations),
        (PURGE_SECRETS, before.secrets),
        (PURGE_KEYS, before.idempotency_keys),
        (PURGE_CAMPAIGNS, before.rotations),
    ];
    for (passed, (sql, end)) in passed.iter_mut().zip(work) {
        let query = query(sql).bind(end).bind(i64::from(before.batch));
        *passed = query.execute(&mut *db).await.map_err(map)?.rows_affected();
    }
    let [rotations, secrets, idempotency_keys, campaigns] = passed;
    Ok(Purged { rotations, secrets, idempotency_keys, campaigns })
}
