//! A write transaction that leaves no broken connection behind.
//!
//! When the disk is full or fails, SQLite rolls back by itself. sqlx's own transaction does not notice, and its
//! connection refuses every later one; with one writing connection that would be the end of all writes until a
//! restart. So a connection goes back to the pool only after its `COMMIT` or `ROLLBACK` was seen to succeed;
//! else it is closed, which undoes whatever was open, and the pool makes a new one.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{Sqlite, SqliteConnection, SqlitePool};

use super::super::StoreError;
use super::error::map;

pub(super) struct Write {
    db: PoolConnection<Sqlite>,
    ended: bool,
}

impl Write {
    /// `IMMEDIATE`: the lock is taken now, so nothing comes between what is read and what is written.
    pub(super) async fn begin(writer: &SqlitePool) -> Result<Self, StoreError> {
        let db = writer.acquire().await.map_err(map)?;
        // From here on a dropped future drops the connection too: whether `BEGIN` ran is not known then.
        let mut write = Self { db, ended: false };
        write.run("BEGIN IMMEDIATE").await?;
        Ok(write)
    }

    /// Commits what went well, undoes what did not.
    pub(super) async fn end<T>(mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match result {
            Ok(value) => {
                self.run("COMMIT").await?;
                self.ended = true;
                Ok(value)
            }
            Err(error) => {
                self.ended = self.run("ROLLBACK").await.is_ok();
                Err(error)
            }
        }
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), StoreError> {
        sqlx::query(sql).execute(&mut *self.db).await.map_err(map).map(drop)
    }
}

impl Deref for Write {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.db
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.db
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.ended {
            self.db.close_on_drop();
        }
    }
}
