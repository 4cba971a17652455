//! Whether the file takes writes: a full disk and a lock that somebody holds let every read through.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqlitePool;
use tokio::sync::Mutex;

use super::super::StoreError;
use super::error::map;

/// Whoever asks more often gets the last answer: each write costs a flush, and anybody may ask.
const GOOD_FOR: Duration = Duration::from_secs(2);

/// Index: the primary key. It changes nothing and is written all the same.
const WRITE: &str = "UPDATE installation SET installation_id = installation_id WHERE one = 1";

/// When a write last went well. One probe at a time.
#[derive(Debug, Default)]
pub(super) struct Probe(Mutex<Option<Instant>>);

impl Probe {
    pub(super) async fn writes(&self, writer: &SqlitePool) -> Result<(), StoreError> {
        let mut went_well = self.0.lock().await;
        if went_well.is_some_and(|at| at.elapsed() < GOOD_FOR) {
            return Ok(());
        }
        *went_well = None;
        sqlx::query(WRITE).execute(writer).await.map_err(map)?;
        *went_well = Some(Instant::now());
        Ok(())
    }
}
