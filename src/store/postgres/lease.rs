//! That one process serves: a row of `replicas` that it keeps fresh. A guard, not ownership of work: a second
//! process is refused for as long as the row is fresh, and this one writes nothing when it no longer is.
//!
//! The database's clock alone says how old the row is. This process trusts its row for less time than others
//! do, counted on its own monotonic clock from before each renewal was sent, so it has stopped before anybody
//! can come after it. Each step is a transaction of its own; nothing is held in a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgPool};
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::super::{StoreError, Unavailable};
use super::error::map;
use super::transaction::{end, execute, query, query_as, write};

/// A row that is older counts as its process' death. Spelled out in [`OTHERS`], too.
const LEASE: Duration = Duration::from_secs(30);
/// For how long the process trusts its own row: what it began to write by then is over, or was ended by the
/// statement's time-out, before the lease is.
const TRUSTED: Duration = Duration::from_secs(20);
const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// Two processes that begin at once come one after another. The lock is the transaction's.
const LOCK: &str = "LOCK TABLE replicas IN SHARE ROW EXCLUSIVE MODE";

/// Seconds since another process was seen. A handful of rows: no index.
const OTHERS: &str = "SELECT extract(epoch FROM clock_timestamp() - seen_at)::bigint FROM replicas \
     WHERE replica_id <> $1 AND seen_at > clock_timestamp() - interval '30 seconds' LIMIT 1";

const FORGET: &str = "DELETE FROM replicas WHERE replica_id <> $1";

/// Index: the primary key.
const TAKE: &str = "INSERT INTO replicas (replica_id, counter, key_ids, seen_at) \
     VALUES ($1, 1, '[]', clock_timestamp()) ON CONFLICT (replica_id) DO UPDATE \
     SET counter = replicas.counter + 1, seen_at = clock_timestamp()";

/// Index: the primary key.
const RENEW: &str = "UPDATE replicas SET counter = counter + 1, seen_at = clock_timestamp() \
     WHERE replica_id = $1";

/// Index: the primary key.
const RELEASE: &str = "DELETE FROM replicas WHERE replica_id = $1";

/// What this process knows of its row.
#[derive(Debug, Default)]
pub(super) struct Lease(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    /// This process does not serve.
    #[default]
    Unclaimed,
    Held {
        id: Uuid,
        renewed: Instant,
        keeper: AbortHandle,
    },
}

impl Lease {
    /// Becomes the one that serves, and stays it.
    pub(super) async fn hold(&self, pool: &PgPool) -> Result<(), StoreError> {
        let id = Uuid::now_v7();
        let begun = Instant::now();
        take(pool, id).await?;
        let keeper = tokio::spawn(keep(Arc::downgrade(&self.0), pool.clone(), id)).abort_handle();
        *self.state() = State::Held { id, renewed: begun, keeper };
        Ok(())
    }

    /// Whether it is certain that nobody else serves, as far as this process is to see to that.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &*self.state() {
            State::Held { renewed, .. } if renewed.elapsed() >= TRUSTED => {
                Err(StoreError::Unavailable {
                    reason: Unavailable::Other,
                    detail:
                        "this process could not say for too long that it is the one that serves"
                            .to_owned(),
                })
            }
            State::Held { .. } | State::Unclaimed => Ok(()),
        }
    }

    /// Lets the next process begin at once.
    pub(super) async fn release(&self, pool: &PgPool) {
        let State::Held { id, keeper, .. } = std::mem::take(&mut *self.state()) else { return };
        keeper.abort();
        if let Err(error) = execute(pool, query(RELEASE).bind(id)).await {
            tracing::warn!(%error, "the lease of the database stays until it is stale");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until the store is closed or dropped.
async fn keep(lease: Weak<Mutex<State>>, pool: PgPool, id: Uuid) {
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let begun = Instant::now();
        let done = renew(&pool, id).await;
        let Some(lease) = lease.upgrade().map(Lease) else { return };
        match done {
            Ok(()) => {
                if let State::Held { renewed, .. } = &mut *lease.state() {
                    *renewed = begun;
                }
            }
            Err(error) => tracing::warn!(%error, "the lease of the database was not renewed"),
        }
    }
}

/// Takes it anew when the row is gone, unless somebody else serves now.
async fn renew(pool: &PgPool, id: Uuid) -> Result<(), StoreError> {
    match execute(pool, query(RENEW).bind(id)).await? {
        0 => take(pool, id).await,
        _ => Ok(()),
    }
}

async fn take(pool: &PgPool, id: Uuid) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let taken = take_in(&mut tx, id).await;
    end(tx, taken).await
}

async fn take_in(db: &mut PgConnection, id: Uuid) -> Result<(), StoreError> {
    sqlx::raw_sql(LOCK).execute(&mut *db).await.map_err(map)?;
    let others = query_as(OTHERS).bind(id);
    let other: Option<(i64,)> = others.fetch_optional(&mut *db).await.map_err(map)?;
    if let Some((seen,)) = other {
        let seen = u64::try_from(seen).unwrap_or(0);
        return Err(StoreError::Served { seen, lease: LEASE.as_secs() });
    }
    query(FORGET).bind(id).execute(&mut *db).await.map_err(map)?;
    query(TAKE).bind(id).execute(db).await.map_err(map).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::{Store as _, open, server, upkeep};
    use super::*;

    async fn pool() -> PgPool {
        let pool = open::open(&server::shared().database(None).await, 2).await.unwrap();
        upkeep::migrate(&pool).await.unwrap();
        pool
    }

    #[tokio::test]
    async fn a_row_that_was_not_renewed_is_not_trusted() {
        let pool = pool().await;
        let lease = Lease::default();
        assert_eq!(lease.check(), Ok(()), "who does not serve needs none");
        lease.hold(&pool).await.unwrap();
        assert_eq!(lease.check(), Ok(()));
        if let State::Held { renewed, .. } = &mut *lease.state() {
            *renewed = renewed.checked_sub(TRUSTED).unwrap();
        }
        let store = super::super::PgStore { pool, lease, seal: None };
        assert!(store.record_audit(&[]).await.unwrap_err().is_transient());
        assert!(store.ping().await.is_err(), "and readiness says so");
        assert!(store.state_counts().await.is_ok(), "reads go on");
    }

    #[tokio::test]
    async fn a_row_that_is_gone_is_taken_anew_unless_somebody_else_serves() {
        let pool = pool().await;
        let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        take(&pool, mine).await.unwrap();
        assert!(matches!(take(&pool, other).await, Err(StoreError::Served { .. })));
        execute(&pool, query(RELEASE).bind(mine)).await.unwrap();
        renew(&pool, mine).await.unwrap();
        execute(&pool, query(RELEASE).bind(mine)).await.unwrap();
        take(&pool, other).await.unwrap();
        assert!(matches!(renew(&pool, mine).await, Err(StoreError::Served { .. })));
    }
}
