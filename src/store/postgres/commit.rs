//! One step, one transaction.

use super::super::audit::AuditSeal;
use super::super::commit::{Changes, Commit, OutboxRow, RecordChange};
use super::super::{StoreError, commit};
use super::error::map;
use super::transaction::{end, query, write};
use super::{account, audit, idempotency, record, rotation, turns};
use sqlx::postgres::{PgConnection, PgPool};

pub(super) async fn commit(
    pool: &PgPool,
    commit: &Commit<'_>,
    seal: Option<&dyn AuditSeal>,
) -> Result<u64, StoreError> {
    let changes = commit::Changes::between(commit)?;
    let mut tx = write(pool).await?;
    let version = write_all(&mut tx, commit, &changes, seal).await;
    end(tx, version).await
}

async fn write_all(
    db: &mut PgConnection,
    commit: &Commit<'_>,
    changes: &Changes<'_>,
    seal: Option<&dyn AuditSeal>,
) -> Result<u64, StoreError> {
    let cluster_id = commit.cluster_id;
    let expected = commit.expected_version;
    let version =
        record::guard(db, cluster_id, expected, changes.last_generation, commit.at).await?;
    // Before this rotation's own rows count as one at work.
    turns::write(db, commit).await?;
    match changes.record {
        RecordChange::Write(record) => record::write(db, record, commit).await?,
        RecordChange::Remove => record::remove(db, cluster_id).await?,
        RecordChange::Nothing => {}
    }
    for change in &changes.accounts {
        account::write(db, cluster_id, change).await?;
    }
    for rotation in &changes.rotations {
        rotation::write(db, cluster_id, rotation).await?;
    }
    for (source, name) in &changes.forgotten {
        record::forget_consumer(db, cluster_id, *source, name).await?;
    }
    for consumer in &changes.consumers {
        record::write_consumer(db, cluster_id, consumer).await?;
    }
    for (account_id, secret) in &commit.secrets {
        account::write_secret(db, *account_id, secret).await?;
    }
    for row in &commit.outbox {
        write_outbox(db, row).await?;
    }
    if let Some(answer) = &commit.idempotency {
        idempotency::answer(db, answer).await?;
    }
    // Last, because streams may be shared: their locks are held for as short as can be.
    audit::append(db, &commit.audit, seal).await?;
    Ok(version)
}

const INSERT_OUTBOX: &str = "INSERT INTO outbox \
     (event_id, kind, subject, at, data, next_attempt_at) VALUES ($1, $2, $3, $4, $5::jsonb, $4)";

pub(super) async fn write_outbox(db: &mut PgConnection, row: &OutboxRow) -> Result<(), StoreError> {
    let query = query(INSERT_OUTBOX)
        .bind(row.event_id)
        .bind(&row.kind)
        .bind(&row.subject)
        .bind(row.at)
        .bind(row.data.to_string());
    query.execute(db).await.map_err(map).map(drop)
}
