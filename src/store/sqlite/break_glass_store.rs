//! Which question about break-glass credentials is which transaction.

use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnection};

use super::super::AuditSeal;
use super::super::rows::break_glass_store::break_glass_store;
use super::error::map;
use super::write::Write;
use super::{SqliteStore, audit, commit, due, idempotency};

break_glass_store!(SqliteStore);

async fn reading(store: &SqliteStore) -> Result<Transaction<'static, Sqlite>, StoreError> {
    store.reader.begin().await.map_err(map)
}

async fn read<T>(
    tx: Transaction<'static, Sqlite>,
    result: Result<T, StoreError>,
) -> Result<T, StoreError> {
    tx.commit().await.map_err(map)?;
    result
}

async fn writing(store: &SqliteStore) -> Result<Write, StoreError> {
    Write::begin(&store.writer).await
}

async fn written<T>(tx: Write, result: Result<T, StoreError>) -> Result<T, StoreError> {
    tx.end(result).await
}

async fn due(
    store: &SqliteStore,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    due::due((&store.reader, &store.writer), due::BREAK_GLASS, now, limit, push_until, taker).await
}

async fn orphans(
    store: &SqliteStore,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    due::orphans((&store.reader, &store.writer), due::BREAK_GLASS, limit, push_until, taker).await
}

/// What goes along with the rows.
async fn tell(
    db: &mut SqliteConnection,
    step: &BreakGlassCommit<'_>,
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    audit::append(db, &step.audit, seal).await?;
    for row in &step.outbox {
        commit::write_outbox(db, row).await?;
    }
    match &step.idempotency {
        Some(answer) => idempotency::answer(db, answer).await,
        None => Ok(()),
    }
}
