//! The audit's rows and the heads of its streams.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sqlx::sqlite::{SqliteConnection, SqliteExecutor, SqlitePool};

use super::super::audit::{Link, links};
use super::super::cursor::Key;
use super::super::rows::audit::{EventRow, audit_columns, bind_audit};
use super::super::rows::decode::{count, signed};
use super::super::views::audit_start;
use super::super::{
    AuditEvent, AuditFilter, AuditRow, AuditSeal, Cursor, Page, StoreError, StreamHead,
};
use super::error::map;
use super::write::Write;
use crate::time::Timestamp;

/// Index: the primary key.
const SELECT_HEAD: &str = "SELECT sequence, hash FROM audit_streams WHERE stream = ?1";

/// Index: the primary key.
const UPSERT_HEAD: &str = "INSERT INTO audit_streams (stream, sequence, hash) VALUES (?1, ?2, ?3) \
     ON CONFLICT (stream) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash";

const INSERT: &str = concat!(
    "INSERT INTO audit_events (",
    audit_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
);

/// Appends to the streams. The caller holds the write transaction, so heads cannot move meanwhile.
pub(super) async fn append(
    db: &mut SqliteConnection,
    rows: &[AuditRow],
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    let mut heads: BTreeMap<&str, StreamHead> = BTreeMap::new();
    for row in rows {
        if let Entry::Vacant(entry) = heads.entry(&row.stream)
            && let Some(head) = head(&mut *db, &row.stream).await?
        {
            entry.insert(head);
        }
    }
    for (row, link) in rows.iter().zip(links(rows, &mut heads, seal)) {
        insert(db, row, &link).await?;
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
    let query = bind_audit!(sqlx::query(INSERT), row, link);
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
        concat!("SELECT event_id, ", audit_columns!(), " FROM audit_events WHERE ")
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
        .bind(filter.since.unwrap_or(Timestamp::from_micros(i64::MIN)))
        .bind(start)
        .bind(i64::from(limit) + 1);
    let rows: Vec<EventRow> = query.fetch_all(reader).await.map_err(map)?;
    let items = rows.into_iter().map(AuditEvent::try_from).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, limit, None, |event| Key::Audit { id: event.event_id }))
}
