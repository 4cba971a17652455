//! The audit's rows and the heads of its streams.

use std::collections::BTreeMap;

use sqlx::FromRow;
use sqlx::sqlite::{SqliteConnection, SqliteExecutor, SqlitePool};

use super::super::audit::Link;
use super::super::cursor::Key;
use super::super::views::audit_start;
use super::super::{
    AuditEvent, AuditFilter, AuditRow, AuditSeal, Cursor, Page, StoreError, StreamHead,
};
use super::decode::{count, generation, maybe_word, signed, uuid};
use super::error::map;
use super::write::Write;
use crate::ids::RotationId;
use crate::time::Timestamp;

/// Index: the primary key.
const SELECT_HEAD: &str = "SELECT sequence, hash FROM audit_streams WHERE stream = ?1";

/// Index: the primary key.
const UPSERT_HEAD: &str = "INSERT INTO audit_streams (stream, sequence, hash) VALUES (?1, ?2, ?3) \
     ON CONFLICT (stream) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash";

const INSERT: &str = "INSERT INTO audit_events (stream, sequence, previous_hash, hash, at, actor, \
     action, cluster_id, rotation_id, account, registry_id, generation, detail, reason, \
     request_id) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

/// Appends to the streams. The caller holds the write transaction, so heads cannot move meanwhile.
pub(super) async fn append(
    db: &mut SqliteConnection,
    rows: &[AuditRow],
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    let mut heads: BTreeMap<&str, StreamHead> = BTreeMap::new();
    for row in rows {
        let head = match heads.remove(row.stream.as_str()) {
            Some(head) => Some(head),
            None => head(&mut *db, &row.stream).await?,
        };
        let link = Link::after(head, row, seal);
        insert(db, row, &link).await?;
        heads.insert(&row.stream, (link.sequence, link.hash));
    }
    for (stream, (sequence, hash)) in heads {
        let query = sqlx::query(UPSERT_HEAD).bind(stream).bind(signed(sequence)).bind(hash);
        query.execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

pub(super) async fn head<'a>(
    db: impl SqliteExecutor<'a>,
    stream: &str,
) -> Result<Option<StreamHead>, StoreError> {
    let query = sqlx::query_as(SELECT_HEAD).bind(stream);
    let row: Option<(i64, Option<Vec<u8>>)> = query.fetch_optional(db).await.map_err(map)?;
    row.map(|(sequence, hash)| Ok((count(sequence)?, hash))).transpose()
}

async fn insert(db: &mut SqliteConnection, row: &AuditRow, link: &Link) -> Result<(), StoreError> {
    let query = sqlx::query(INSERT)
        .bind(&row.stream)
        .bind(signed(link.sequence))
        .bind(link.previous_hash.as_deref())
        .bind(link.hash.as_deref())
        .bind(row.at.as_micros())
        .bind(&row.actor)
        .bind(&row.action)
        .bind(row.cluster_id.as_ref().map(|id| id.as_str()))
        .bind(row.rotation_id.as_ref().map(|id| &id.0.as_bytes()[..]))
        .bind(row.account.as_deref())
        .bind(row.registry_id.as_ref().map(|id| id.as_str()))
        .bind(row.generation.map(|generation| generation.0))
        .bind(row.detail.to_string())
        .bind(row.reason.as_deref())
        .bind(row.request_id.as_deref());
    query.execute(db).await.map_err(map).map(drop)
}

pub(super) async fn record(
    writer: &SqlitePool,
    rows: &[AuditRow],
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut tx = Write::begin(writer).await?;
    let done = append(&mut tx, rows, seal).await;
    tx.end(done).await
}

macro_rules! select_events {
    () => {
        "SELECT event_id, stream, sequence, previous_hash, hash, at, actor, action, \
         cluster_id, rotation_id, account, registry_id, generation, detail, reason, \
         request_id FROM audit_events WHERE "
    };
}
pub(super) use select_events;

macro_rules! select {
    ($where:literal) => {
        concat!(
            select_events!(),
            $where,
            " AND at >= ?4 AND event_id < ?5 ORDER BY event_id DESC LIMIT ?6"
        )
    };
}

/// Index: `audit_by_cluster`.
pub(super) const OF_CLUSTER: &str =
    select!("cluster_id = ?1 AND (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR action = ?3)");
/// Index: `audit_by_actor`.
pub(super) const OF_ACTOR: &str =
    select!("?1 IS NULL AND actor = ?2 AND (?3 IS NULL OR action = ?3)");
/// Index: `audit_by_action`.
pub(super) const OF_ACTION: &str = select!("?1 IS NULL AND ?2 IS NULL AND action = ?3");
/// Index: the primary key.
pub(super) const ALL: &str = select!("?1 IS NULL AND ?2 IS NULL AND ?3 IS NULL");

#[derive(FromRow)]
pub(super) struct EventRow {
    event_id: i64,
    stream: String,
    sequence: i64,
    previous_hash: Option<Vec<u8>>,
    hash: Option<Vec<u8>>,
    at: i64,
    actor: String,
    action: String,
    cluster_id: Option<String>,
    rotation_id: Option<Vec<u8>>,
    account: Option<String>,
    registry_id: Option<String>,
    generation: Option<i64>,
    detail: String,
    reason: Option<String>,
    request_id: Option<String>,
}

impl TryFrom<EventRow> for AuditEvent {
    type Error = StoreError;
    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        let rotation_id = row.rotation_id.map(|id| uuid(&id)).transpose()?;
        Ok(Self {
            event_id: row.event_id,
            sequence: count(row.sequence)?,
            previous_hash: row.previous_hash,
            hash: row.hash,
            row: AuditRow {
                stream: row.stream,
                at: Timestamp::from_micros(row.at),
                actor: row.actor,
                action: row.action,
                cluster_id: maybe_word(row.cluster_id.as_deref(), "a cluster id")?,
                rotation_id: rotation_id.map(RotationId),
                account: row.account,
                registry_id: maybe_word(row.registry_id.as_deref(), "a registry id")?,
                generation: row.generation.map(generation).transpose()?,
                detail: serde_json::from_str(&row.detail)
                    .map_err(|_| StoreError::corrupt("an audit row's detail"))?,
                reason: row.reason,
                request_id: row.request_id,
            },
        })
    }
}

/// Not counted: the audit is the one table that grows without an end in sight.
pub(super) async fn list(
    reader: &SqlitePool,
    filter: &AuditFilter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page<AuditEvent>, StoreError> {
    let start = audit_start(cursor)?;
    let sql = match (&filter.cluster_id, &filter.actor, &filter.action) {
        (Some(_), _, _) => OF_CLUSTER,
        (None, Some(_), _) => OF_ACTOR,
        (None, None, Some(_)) => OF_ACTION,
        (None, None, None) => ALL,
    };
    let query = sqlx::query_as(sql)
        .bind(filter.cluster_id.as_ref().map(|id| id.as_str()))
        .bind(filter.actor.as_deref())
        .bind(filter.action.as_deref())
        .bind(filter.since.map_or(i64::MIN, Timestamp::as_micros))
        .bind(start)
        .bind(i64::from(limit) + 1);
    let rows: Vec<EventRow> = query.fetch_all(reader).await.map_err(map)?;
    let items = rows.into_iter().map(AuditEvent::try_from).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, limit, None, |event| Key::Audit { id: event.event_id }))
}
