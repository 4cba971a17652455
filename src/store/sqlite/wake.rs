//! Wakes whatever is at work: a clock that went back has put it off for as long as it had gone forward.

use sqlx::sqlite::SqlitePool;

use super::super::StoreError;
use super::error::map;
use crate::time::Timestamp;

/// Index: `pull_secrets_due`. Made at a start and when the clock went back, never by a tick.
const WAKE: &str = "UPDATE pull_secrets SET due_at = $1 WHERE due_at > $1 \
     AND (state IN ('issuing', 'rotating', 'revoking') OR EXISTS (SELECT 1 FROM accounts a \
     WHERE a.cluster_id = pull_secrets.cluster_id AND a.phase IN ('deleting', 'burnt')))";

/// Index: `break_glass_due`. A record that has a due time is at work, or waits for an end.
const WAKE_BREAK_GLASS: &str = "UPDATE break_glass SET due_at = $1 WHERE due_at > $1";

pub(super) async fn busy(writer: &SqlitePool, now: Timestamp) -> Result<u64, StoreError> {
    let mut woken = 0;
    for statement in [WAKE, WAKE_BREAK_GLASS] {
        let done = sqlx::query(statement).bind(now).execute(writer).await.map_err(map)?;
        woken += done.rows_affected();
    }
    Ok(woken)
}
