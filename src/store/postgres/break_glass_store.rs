//! Which question about break-glass credentials is which transaction.

use sqlx::postgres::PgConnection;

use super::super::AuditSeal;
use super::super::rows::break_glass_store::break_glass_store;
use super::transaction::{self, Tx};
use super::{PgStore, audit, commit, due, idempotency};

break_glass_store!(PgStore);

async fn reading(store: &PgStore) -> Result<Tx, StoreError> {
    transaction::read(&store.pool).await
}

async fn read<T>(tx: Tx, result: Result<T, StoreError>) -> Result<T, StoreError> {
    transaction::end(tx, result).await
}

async fn writing(store: &PgStore) -> Result<Tx, StoreError> {
    transaction::write(&store.pool).await
}

async fn written<T>(tx: Tx, result: Result<T, StoreError>) -> Result<T, StoreError> {
    transaction::end(tx, result).await
}

async fn due(
    store: &PgStore,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    due::due(&store.pool, due::TAKE_BREAK_GLASS, now, limit, push_until, taker).await
}

async fn orphans(
    store: &PgStore,
    limit: u32,
    push_until: Timestamp,
    taker: ReplicaId,
) -> Result<Vec<Claimed>, StoreError> {
    due::orphans(&store.pool, due::TAKE_BREAK_GLASS_ORPHANS, limit, push_until, taker).await
}

/// What goes along with the rows; the audit last, because streams may be shared.
async fn tell(
    db: &mut PgConnection,
    step: &BreakGlassCommit<'_>,
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    for row in &step.outbox {
        commit::write_outbox(db, row).await?;
    }
    if let Some(answer) = &step.idempotency {
        idempotency::answer(db, answer).await?;
    }
    audit::append(db, &step.audit, seal).await
}
