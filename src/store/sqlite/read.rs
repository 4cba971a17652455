//! The reads of the hot paths. Each is one statement, or several in one read transaction.

use sqlx::sqlite::SqlitePool;

use super::super::rows::decode::{count, word};
use super::super::rows::read::{PresentedRow, SecretRow, ServedRow, served_view};
use super::super::rows::record::head_columns;
use super::super::rows::rotation::brief_columns;
use super::super::{
    Described, Loaded, Presented, RotationDetail, SealedSecret, ServedView, StoreError,
};
use super::error::map;
use super::{account, record, rotation};
use crate::ids::{AccountId, ClusterId, RotationId};
use crate::state::pull_secret::{Account, AccountPhase, EvidenceSource, StateName};

pub(super) async fn load(reader: &SqlitePool, id: &ClusterId) -> Result<Loaded, StoreError> {
    let mut tx = reader.begin().await.map_err(map)?;
    let loaded = record::load(&mut tx, id).await?;
    tx.commit().await.map_err(map)?;
    Ok(loaded)
}

/// Index: both primary keys.
pub(super) const SELECT_VERSION: &str = "SELECT c.version, p.state FROM pull_secrets p \
     JOIN clusters c ON c.cluster_id = p.cluster_id WHERE p.cluster_id = ?1";

pub(super) async fn version_of(
    reader: &SqlitePool,
    id: &ClusterId,
) -> Result<Option<(u64, StateName)>, StoreError> {
    let query = sqlx::query_as(SELECT_VERSION).bind(id.as_str());
    let row: Option<(i64, String)> = query.fetch_optional(reader).await.map_err(map)?;
    row.map(|(version, state)| Ok((count(version)?, word(&state, "a state")?))).transpose()
}

/// Indexes: the primary keys, `rotations_running`, `accounts_live`. One row per served account.
pub(super) const SELECT_SERVED: &str = concat!(
    "SELECT ",
    head_columns!(),
    ", ",
    brief_columns!(),
    ", a.account_id AS account_id, a.registry_id AS account_registry_id, \
     a.username AS username, s.key_id AS key_id, s.sealed AS sealed \
     FROM pull_secrets p JOIN clusters c ON c.cluster_id = p.cluster_id \
     LEFT JOIN rotations r ON r.cluster_id = p.cluster_id AND r.running = 1 \
     LEFT JOIN accounts a ON a.cluster_id = p.cluster_id AND a.phase <> 'gone' \
     AND a.phase = 'serving' AND p.served_generation IS NOT NULL \
     LEFT JOIN account_secrets s ON s.account_id = a.account_id \
     WHERE p.cluster_id = ?1 ORDER BY a.position"
);

pub(super) async fn served(
    reader: &SqlitePool,
    id: &ClusterId,
) -> Result<Option<ServedView>, StoreError> {
    let query = sqlx::query_as(SELECT_SERVED).bind(id.as_str());
    let rows: Vec<ServedRow> = query.fetch_all(reader).await.map_err(map)?;
    served_view(rows)
}

/// Indexes: `accounts_live`, the primary key.
const SELECT_SECRETS: &str = "SELECT a.account_id, s.key_id, s.sealed FROM accounts a \
     JOIN account_secrets s ON s.account_id = a.account_id \
     WHERE a.cluster_id = ?1 AND a.phase <> 'gone' AND a.phase = 'serving' ORDER BY a.position";

pub(super) async fn described(
    reader: &SqlitePool,
    id: &ClusterId,
) -> Result<Described, StoreError> {
    let mut tx = reader.begin().await.map_err(map)?;
    let loaded = record::load(&mut tx, id).await?;
    let handed_out = loaded.record.as_ref().and_then(|record| record.served()).is_some();
    let rows: Vec<SecretRow> = if handed_out {
        let query = sqlx::query_as(SELECT_SECRETS).bind(id.as_str());
        query.fetch_all(&mut *tx).await.map_err(map)?
    } else {
        Vec::new()
    };
    tx.commit().await.map_err(map)?;
    let secrets = rows.into_iter().map(SecretRow::secret).collect();
    Ok(Described { loaded, secrets })
}

/// Indexes: `accounts_by_username`, the primary keys, the unique one of `consumers`.
pub(super) const SELECT_PRESENTED: &str = "SELECT a.account_id, a.registry_id, a.phase, \
     a.born_generation, a.served_in, a.gone_at, s.key_id, s.sealed, p.state, p.served_generation, \
     p.served_since, k.generation AS seen_generation, k.observed_at FROM accounts a \
     JOIN account_secrets s ON s.account_id = a.account_id \
     LEFT JOIN pull_secrets p ON p.cluster_id = a.cluster_id \
     LEFT JOIN consumers k ON k.cluster_id = a.cluster_id AND k.source = ?3 AND k.name = ?4 \
     WHERE a.cluster_id = ?1 AND a.username = ?2 ORDER BY a.position";

pub(super) async fn presented(
    reader: &SqlitePool,
    id: &ClusterId,
    username: &str,
    consumer: &str,
) -> Result<Vec<Presented>, StoreError> {
    let source = EvidenceSource::Heartbeat;
    let query = sqlx::query_as(SELECT_PRESENTED)
        .bind(id.as_str())
        .bind(username)
        .bind(<&'static str>::from(source))
        .bind(consumer);
    let rows: Vec<PresentedRow> = query.fetch_all(reader).await.map_err(map)?;
    rows.into_iter().map(|row| row.presented(consumer)).collect()
}

pub(super) async fn secret(
    reader: &SqlitePool,
    id: AccountId,
) -> Result<Option<SealedSecret>, StoreError> {
    // Index: the primary key.
    let query = sqlx::query_as("SELECT key_id, sealed FROM account_secrets WHERE account_id = ?1");
    let query = query.bind(id.0);
    let row: Option<(String, Vec<u8>)> = query.fetch_optional(reader).await.map_err(map)?;
    Ok(row.map(|(key_id, bytes)| SealedSecret { key_id, bytes }))
}

pub(super) async fn rotation(
    reader: &SqlitePool,
    cluster_id: &ClusterId,
    id: RotationId,
) -> Result<Option<RotationDetail>, StoreError> {
    let mut tx = reader.begin().await.map_err(map)?;
    let Some(rotation) = rotation::one(&mut tx, cluster_id, id).await? else { return Ok(None) };
    let head = record::head(&mut tx, cluster_id).await?;
    let mut accounts = account::live(&mut tx, cluster_id).await?;
    let born = account::born(&mut tx, cluster_id, rotation.to).await?;
    let gone = |account: &Account| account.phase == AccountPhase::Gone;
    accounts.extend(born.into_iter().filter(gone));
    let consumers = record::consumers(&mut tx, cluster_id).await?;
    tx.commit().await.map_err(map)?;
    let served = head.and_then(|head| head.state.served);
    Ok(Some(RotationDetail { rotation, accounts, consumers, served }))
}
