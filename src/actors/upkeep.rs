//! What passes with time, and what must not pass unnoticed: history, old audit rows, the audit's anchors.
//!
//! All of it in batches, so that no commit of a credential waits long. Knows no actor.

use super::deps::Deps;
use crate::store::{PurgeBefore, REMEMBERED, StoreError};

/// So many rows per transaction.
const BATCH: u32 = 500;
/// So many transactions per turn; the rest has time until the next one.
const TURNS: usize = 20;

/// Removes history that is old enough, and audit rows behind a checkpoint.
///
/// # Errors
/// [`StoreError`].
pub async fn let_pass(deps: &Deps) -> Result<(), StoreError> {
    let now = deps.clock.now();
    let before = PurgeBefore {
        rotations: now.minus(deps.policy.history_after),
        secrets: now.minus(deps.tuning.tombstones),
        idempotency_keys: now.minus(REMEMBERED),
        batch: BATCH,
    };
    for _ in 0..TURNS {
        let purged = deps.store.purge(before).await?;
        let most = purged.rotations.max(purged.secrets).max(purged.idempotency_keys);
        if most < u64::from(BATCH) {
            break;
        }
    }
    let old = now.minus(deps.tuning.audit_after);
    let mut pruned = 0;
    for _ in 0..TURNS {
        let rows = deps.store.prune_audit(old, now, BATCH).await?;
        pruned += rows;
        if rows < u64::from(BATCH) {
            break;
        }
    }
    if pruned > 0 {
        tracing::info!(rows = pruned, before = %old, "old audit rows were pruned");
    }
    Ok(())
}

/// Makes a checkpoint of every stream that moved, in the database and in the log. What the log says can be
/// held against the database later, whatever became of that.
///
/// # Errors
/// [`StoreError`].
pub async fn anchor_audit(deps: &Deps) -> Result<(), StoreError> {
    loop {
        let made = deps.store.checkpoint_audit(deps.clock.now(), BATCH).await?;
        for checkpoint in &made {
            let (stream, sequence) = (checkpoint.stream.as_str(), checkpoint.sequence);
            let hash = checkpoint.hash.as_deref().map(|hash| data_encoding::HEXLOWER.encode(hash));
            tracing::info!(stream, sequence, hash, "audit checkpoint");
        }
        if made.len() < usize::try_from(BATCH).unwrap_or(usize::MAX) {
            return Ok(());
        }
    }
}
