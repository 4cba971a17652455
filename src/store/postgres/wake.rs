//! Wakes whatever is at work: a clock that went back has put it off for as long as it had gone forward.

use sqlx::postgres::PgPool;

use super::super::StoreError;
use super::transaction::{execute, query};
use crate::time::Timestamp;

/// Index: `pull_secrets_due`. Made at a start and when the clock went back, never by a tick.
const WAKE: &str = "UPDATE pull_secrets SET due_at = $1 WHERE due_at > $1 \
     AND (state IN ('issuing', 'rotating', 'revoking') OR EXISTS (SELECT 1 FROM accounts a \
     WHERE a.cluster_id = pull_secrets.cluster_id AND a.phase IN ('deleting', 'burnt')))";

/// Index: `break_glass_due`. A record that has a due time is at work, or waits for an end.
const WAKE_BREAK_GLASS: &str = "UPDATE break_glass SET due_at = $1 WHERE due_at > $1";

pub(super) async fn busy(writer: &PgPool, now: Timestamp) -> Result<u64, StoreError> {
    let woken = execute(writer, query(WAKE).bind(now)).await?;
    Ok(woken + execute(writer, query(WAKE_BREAK_GLASS).bind(now)).await?)
}
