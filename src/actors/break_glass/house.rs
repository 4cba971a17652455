//! What is looked at every now and then: the clusters file, the gauges, what may be forgotten.

use std::sync::Arc;

use super::kit::Kit;
use crate::actors::scheduler::gauge;
use crate::store::StoreError;
use crate::store::break_glass::BreakGlassPurge;

/// So many rows per transaction, and so many transactions per turn.
const BATCH: u32 = 500;
const TURNS: usize = 20;

/// Does it once.
///
/// # Errors
/// [`StoreError`].
pub async fn keep(kit: &Arc<Kit>) -> Result<(), StoreError> {
    let for_files = kit.clone();
    // Files may stand on something slow.
    let read = tokio::task::spawn_blocking(move || for_files.fleet.reload()).await;
    if let Err(error) = read {
        tracing::error!(%error, "the clusters file was not read");
    }
    let (deps, tools) = (&kit.tools.deps, &kit.tools);
    gauge(&deps.metrics.break_glass_credentials, &tools.store.credential_counts().await?);
    let before = deps.clock.now().minus(tools.policy.stuck_after());
    let stuck = tools.store.stuck_break_glass(before).await?;
    deps.metrics.break_glass_stuck.set(i64::try_from(stuck).unwrap_or(i64::MAX));
    // History passes by the wall clock alone.
    if deps.time_is_trusted() { let_pass(kit).await } else { Ok(()) }
}

async fn let_pass(kit: &Kit) -> Result<(), StoreError> {
    let (now, policy) = (kit.tools.deps.clock.now(), &kit.tools.policy);
    let before = BreakGlassPurge {
        denied_before: now.minus(policy.denied_after),
        failed_before: now.minus(policy.failed_after),
        history_before: now.minus(policy.history_after),
        batch: BATCH,
    };
    for _ in 0..TURNS {
        if kit.tools.store.purge_break_glass(before).await? < u64::from(BATCH) {
            break;
        }
    }
    Ok(())
}
