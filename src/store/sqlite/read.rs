//! The reads of the hot paths. Each is one statement, or several in one read transaction.

use sqlx::FromRow;
use sqlx::sqlite::SqlitePool;

use super::super::{
    Described, Loaded, Presented, RotationDetail, SealedSecret, ServedCredential, ServedView,
    StoreError,
};
use super::decode::{count, generation, maybe_word, time, uuid, word};
use super::error::map;
use super::record::{Head, HeadRow, head_columns};
use super::rotation::{BriefRow, brief_columns};
use super::{account, record, rotation};
use crate::ids::{AccountId, ClusterId, RotationId};
use crate::state::pull_secret::{Account, AccountPhase, Consumer, EvidenceSource, StateName};
use crate::time::Timestamp;

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

#[derive(FromRow)]
struct ServedRow {
    #[sqlx(flatten)]
    head: HeadRow,
    #[sqlx(flatten)]
    brief: BriefRow,
    #[sqlx(flatten)]
    credential: CredentialRow,
}

#[derive(FromRow)]
struct CredentialRow {
    account_id: Option<Vec<u8>>,
    account_registry_id: Option<String>,
    username: Option<String>,
    key_id: Option<String>,
    sealed: Option<Vec<u8>>,
}

impl CredentialRow {
    fn credential(self) -> Result<Option<ServedCredential>, StoreError> {
        let (Some(id), Some(registry_id)) = (self.account_id, self.account_registry_id) else {
            return Ok(None);
        };
        // All or nothing: a document that lacks an entry is never handed out.
        let (Some(username), Some(key_id), Some(bytes)) = (self.username, self.key_id, self.sealed)
        else {
            return Err(StoreError::corrupt("a served account without user name or secret"));
        };
        Ok(Some(ServedCredential {
            account_id: AccountId(uuid(&id)?),
            registry_id: word(&registry_id, "a registry id")?,
            username,
            secret: SealedSecret { key_id, bytes },
        }))
    }
}

pub(super) async fn served(
    reader: &SqlitePool,
    id: &ClusterId,
) -> Result<Option<ServedView>, StoreError> {
    let query = sqlx::query_as(SELECT_SERVED).bind(id.as_str());
    let rows: Vec<ServedRow> = query.fetch_all(reader).await.map_err(map)?;
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else { return Ok(None) };
    let head = Head::try_from(first.head)?;
    let rotation = first.brief.brief()?;
    let credentials = std::iter::once(first.credential).chain(rows.map(|row| row.credential));
    let credentials = credentials.filter_map(|row| row.credential().transpose());
    Ok(Some(ServedView {
        version: head.version,
        state: head.state.state,
        state_since: head.state_since,
        served: head.state.served,
        refusal: head.state.refusal,
        quarantine: head.quarantine,
        created_at: head.created_at,
        last_rotated_at: head.last_rotated_at,
        next_rotation_at: head.next_rotation_at,
        rotation,
        credentials: credentials.collect::<Result<_, _>>()?,
    }))
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
    let rows: Vec<(Vec<u8>, String, Vec<u8>)> = if handed_out {
        let query = sqlx::query_as(SELECT_SECRETS).bind(id.as_str());
        query.fetch_all(&mut *tx).await.map_err(map)?
    } else {
        Vec::new()
    };
    tx.commit().await.map_err(map)?;
    let secret = |(id, key_id, bytes): (Vec<u8>, _, _)| {
        Ok((AccountId(uuid(&id)?), SealedSecret { key_id, bytes }))
    };
    let secrets = rows.into_iter().map(secret).collect::<Result<_, StoreError>>()?;
    Ok(Described { loaded, secrets })
}

/// Indexes: `accounts_by_username`, the primary keys, the unique one of `consumers`.
pub(super) const SELECT_PRESENTED: &str = "SELECT a.account_id, a.registry_id, a.phase, \
     a.born_generation, a.gone_at, s.key_id, s.sealed, p.state, p.served_generation, \
     p.served_since, k.generation AS seen_generation, k.observed_at FROM accounts a \
     JOIN account_secrets s ON s.account_id = a.account_id \
     LEFT JOIN pull_secrets p ON p.cluster_id = a.cluster_id \
     LEFT JOIN consumers k ON k.cluster_id = a.cluster_id AND k.source = ?3 AND k.name = ?4 \
     WHERE a.cluster_id = ?1 AND a.username = ?2 ORDER BY a.position";

#[derive(FromRow)]
struct PresentedRow {
    account_id: Vec<u8>,
    registry_id: String,
    phase: String,
    born_generation: i64,
    gone_at: Option<i64>,
    key_id: String,
    sealed: Vec<u8>,
    state: Option<String>,
    served_generation: Option<i64>,
    served_since: Option<i64>,
    seen_generation: Option<i64>,
    observed_at: Option<i64>,
}

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
    let seen = |(number, at)| {
        let name = consumer.to_owned();
        let observed_at = Timestamp::from_micros(at);
        Ok::<_, StoreError>(Consumer { source, name, generation: generation(number)?, observed_at })
    };
    let presented = |row: PresentedRow| {
        Ok(Presented {
            account_id: AccountId(uuid(&row.account_id)?),
            registry_id: word(&row.registry_id, "a registry id")?,
            phase: word(&row.phase, "an account's phase")?,
            born_generation: generation(row.born_generation)?,
            gone_at: time(row.gone_at),
            secret: SealedSecret { key_id: row.key_id, bytes: row.sealed },
            state: maybe_word(row.state.as_deref(), "a state")?,
            served: record::served(row.served_generation, row.served_since)?,
            last_seen: row.seen_generation.zip(row.observed_at).map(seen).transpose()?,
        })
    };
    rows.into_iter().map(presented).collect()
}

pub(super) async fn secret(
    reader: &SqlitePool,
    id: AccountId,
) -> Result<Option<SealedSecret>, StoreError> {
    // Index: the primary key.
    let query = sqlx::query_as("SELECT key_id, sealed FROM account_secrets WHERE account_id = ?1");
    let query = query.bind(&id.0.as_bytes()[..]);
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
