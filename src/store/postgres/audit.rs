//! The audit's rows and the heads of its streams.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::{PgConnection, PgPool};

use super::super::audit::{Link, links};
use super::super::cursor::Key;
use super::super::rows::audit::{EventRow, audit_columns, bind_audit};
use super::super::rows::decode::{count, signed};
use super::super::views::audit_start;
use super::super::{
    AuditEvent, AuditFilter, AuditRow, AuditSeal, Cursor, Page, StoreError, StreamHead,
};
use super::error::map;
use super::transaction::{all, end, query, query_as, write};
use crate::time::Timestamp;

/// Index: the primary key. Locks the head until the commit, so that a stream's rows come one after another;
/// a new stream begins with a head that says so, for there is nothing else that could be locked.
const LOCK_HEAD: &str = "INSERT INTO audit_streams (stream, sequence, hash) VALUES ($1, 0, NULL) \
     ON CONFLICT (stream) DO UPDATE SET sequence = audit_streams.sequence \
     RETURNING sequence, hash";

/// Index: the primary key.
const MOVE_HEAD: &str = "UPDATE audit_streams SET sequence = $2, hash = $3 WHERE stream = $1";

const INSERT: &str = concat!(
    "INSERT INTO audit_events (",
    audit_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::json, $14, $15)"
);

/// Appends to the streams. Heads are locked in the order of their names, so that two transactions that share
/// streams wait for each other in one direction only.
pub(super) async fn append(
    db: &mut PgConnection,
    rows: &[AuditRow],
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    let streams: BTreeSet<&str> = rows.iter().map(|row| row.stream.as_str()).collect();
    let mut heads: BTreeMap<&str, StreamHead> = BTreeMap::new();
    for stream in streams {
        heads.insert(stream, lock_head(db, stream).await?);
    }
    for (row, link) in rows.iter().zip(links(rows, &mut heads, seal)) {
        insert(db, row, &link).await?;
    }
    for (stream, (sequence, hash)) in heads {
        let query = query(MOVE_HEAD).bind(stream).bind(signed(sequence)).bind(hash);
        query.execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

async fn lock_head(db: &mut PgConnection, stream: &str) -> Result<StreamHead, StoreError> {
    let query = query_as(LOCK_HEAD).bind(stream);
    let (sequence, hash): (i64, Option<Vec<u8>>) = query.fetch_one(db).await.map_err(map)?;
    Ok((count(sequence)?, hash))
}

/// Index: the primary key.
const SELECT_HEAD: &str = "SELECT sequence, hash FROM audit_streams WHERE stream = $1";

pub(super) async fn head(
    db: &mut PgConnection,
    stream: &str,
) -> Result<Option<StreamHead>, StoreError> {
    let query = query_as(SELECT_HEAD).bind(stream);
    let row: Option<(i64, Option<Vec<u8>>)> = query.fetch_optional(db).await.map_err(map)?;
    row.map(|(sequence, hash)| Ok((count(sequence)?, hash))).transpose()
}

async fn insert(db: &mut PgConnection, row: &AuditRow, link: &Link) -> Result<(), StoreError> {
    let query = bind_audit!(query(INSERT), row, link);
    query.execute(db).await.map_err(map).map(drop)
}

pub(super) async fn record(
    pool: &PgPool,
    rows: &[AuditRow],
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut tx = write(pool).await?;
    let done = append(&mut tx, rows, seal).await;
    end(tx, done).await
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
            " AND at >= $4 AND event_id < $5 ORDER BY event_id DESC LIMIT $6"
        )
    };
}

/// Index: `audit_by_cluster`.
pub(super) const OF_CLUSTER: &str = select!(
    "cluster_id = $1 AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR action = $3)"
);
/// Index: `audit_by_actor`.
pub(super) const OF_ACTOR: &str =
    select!("$1::text IS NULL AND actor = $2 AND ($3::text IS NULL OR action = $3)");
/// Index: `audit_by_action`.
pub(super) const OF_ACTION: &str = select!("$1::text IS NULL AND $2::text IS NULL AND action = $3");
/// Index: the primary key.
pub(super) const ALL: &str = select!("$1::text IS NULL AND $2::text IS NULL AND $3::text IS NULL");

/// Not counted: the audit is the one table that grows without an end in sight.
pub(super) async fn list(
    pool: &PgPool,
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
    let query = query_as(sql)
        .bind(filter.cluster_id.as_ref().map(|id| id.as_str()))
        .bind(filter.actor.as_deref())
        .bind(filter.action.as_deref())
        .bind(filter.since.unwrap_or(Timestamp::from_micros(i64::MIN)))
        .bind(start)
        .bind(i64::from(limit) + 1);
    let rows: Vec<EventRow> = all(pool, query).await?;
    let items = rows.into_iter().map(AuditEvent::try_from).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, limit, None, |event| Key::Audit { id: event.event_id }))
}
