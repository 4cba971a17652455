//! Transactions and statements that need no session.
//!
//! Every statement runs in an explicit transaction, reads included: a statement is parsed and executed in two
//! messages, and only within a transaction are both sure to reach the same server behind PgBouncer. The
//! time-outs are `SET LOCAL` for the same reason, sent in one message with `BEGIN`.

use sqlx::postgres::{PgArguments, PgPool, PgRow, Postgres};
use sqlx::query::{Query, QueryAs};
use sqlx::{FromRow, Transaction};

use super::super::StoreError;
use super::error::map;

/// What is read is of one instant, however many statements it takes.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
     SET LOCAL statement_timeout = '10s'; \
     SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// Each statement sees what was committed before it: the guard waits for the one that came first and then
/// finds its version, instead of failing to serialise. A commit is on the disk when it returns, whatever the
/// server's setting is: an announced call must not be forgotten.
const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL statement_timeout = '10s'; \
     SET LOCAL idle_in_transaction_session_timeout = '10s'; \
     SET LOCAL synchronous_commit = on";

pub(super) type Select<'q, O> = QueryAs<'q, Postgres, O, PgArguments>;
pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;
pub(super) type Tx = Transaction<'static, Postgres>;

pub(super) async fn read(pool: &PgPool) -> Result<Tx, StoreError> {
    pool.begin_with(READ).await.map_err(map)
}

pub(super) async fn write(pool: &PgPool) -> Result<Tx, StoreError> {
    pool.begin_with(WRITE).await.map_err(map)
}

/// Commits what went well, undoes what did not.
pub(super) async fn end<T>(tx: Tx, result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Ok(value) => tx.commit().await.map_err(map).map(|()| value),
        Err(error) => {
            // Where this fails the connection is gone, and the server has undone it.
            let _ = tx.rollback().await;
            Err(error)
        }
    }
}

/// A statement without a name; one with a name would stay behind on the server.
pub(super) fn query(sql: &'static str) -> Statement<'static> {
    sqlx::query(sql).persistent(false)
}

/// The same, for rows.
pub(super) fn query_as<O>(sql: &'static str) -> Select<'static, O>
where
    O: for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_as(sql).persistent(false)
}

/// The rows of one statement.
pub(super) async fn all<O>(pool: &PgPool, query: Select<'_, O>) -> Result<Vec<O>, StoreError>
where
    O: Send + Unpin + for<'r> FromRow<'r, PgRow>,
{
    let mut tx = read(pool).await?;
    let rows = query.fetch_all(&mut *tx).await.map_err(map);
    end(tx, rows).await
}

/// The row of one statement that always has one.
pub(super) async fn one<O>(pool: &PgPool, query: Select<'_, O>) -> Result<O, StoreError>
where
    O: Send + Unpin + for<'r> FromRow<'r, PgRow>,
{
    let mut tx = read(pool).await?;
    let row = query.fetch_one(&mut *tx).await.map_err(map);
    end(tx, row).await
}

/// Writes with one statement; answers how many rows it touched.
pub(super) async fn execute(pool: &PgPool, query: Statement<'_>) -> Result<u64, StoreError> {
    let mut tx = write(pool).await?;
    let done = query.execute(&mut *tx).await.map_err(map);
    Ok(end(tx, done).await?.rows_affected())
}
