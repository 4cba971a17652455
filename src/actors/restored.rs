//! The latch `restored` as this process knows it, and how it is set and acknowledged.
//!
//! The truth stands in the database; what is kept here is at most one tick old. That is enough to begin no
//! deletion; whether one may really be sent is asked of the database once more, by the fence of its call.

use std::sync::{PoisonError, RwLock};

use serde_json::json;

use super::audit::Caller;
use super::deps::Deps;
use crate::state::sweep::{Course, Timeline};
use crate::store::{AuditRow, Restored, StoreError};
use crate::time::Timestamp;

/// The stream of what is about the whole installation.
const STREAM: &str = "installation";

/// The last restore that was noticed.
#[derive(Debug, Default)]
pub struct RestoredLatch(RwLock<Option<Restored>>);

impl RestoredLatch {
    /// As it was last read.
    #[must_use]
    pub fn get(&self) -> Option<Restored> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When a restore was last noticed, acknowledged or not.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|restored| restored.restored_at)
    }

    /// Whether one waits for an operator: nothing is deleted then.
    #[must_use]
    pub fn is_latched(&self) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_some_and(Restored::is_latched)
    }

    fn set(&self, restored: Option<Restored>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = restored;
    }
}

/// Reads the latch again.
///
/// # Errors
/// [`StoreError`]; what was known stays.
pub async fn refresh(deps: &Deps) -> Result<(), StoreError> {
    let stored = deps.store.restored().await?;
    let latched = stored.as_ref().is_some_and(Restored::is_latched);
    let was = deps.restored.is_latched();
    if latched && !was {
        let reason = stored.as_ref().map(|restored| restored.reason.as_str());
        let event_name = "restored";
        tracing::error!(event_name, reason, "the database was restored; nothing is deleted");
    }
    if was && !latched {
        let event_name = "restore_acknowledged";
        tracing::warn!(event_name, "the restore was acknowledged; deletions go on");
    }
    deps.metrics.restored.set(i64::from(latched));
    deps.restored.set(stored);
    Ok(())
}

/// An operator has seen it; `None` when there is nothing to see.
///
/// # Errors
/// [`StoreError`].
pub async fn acknowledge(deps: &Deps, caller: &Caller) -> Result<Option<Restored>, StoreError> {
    let now = deps.clock.now();
    let row = row("restore_acknowledged", caller, json!({}), now);
    let done = deps.store.acknowledge_restore(now, &caller.actor, &row).await?;
    refresh(deps).await?;
    Ok(done)
}

/// What the audit tells of a restore.
#[must_use]
pub fn row(action: &str, caller: &Caller, detail: serde_json::Value, at: Timestamp) -> AuditRow {
    AuditRow {
        stream: STREAM.to_owned(),
        at,
        actor: caller.actor.clone(),
        action: action.to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: None,
        generation: None,
        detail,
        reason: caller.reason.clone(),
        request_id: caller.request_id.clone(),
    }
}

/// Looks whether the database is still the one that the rows were written in.
///
/// # Errors
/// [`StoreError`].
pub async fn check_timeline(deps: &Deps) -> Result<(), StoreError> {
    let Some(text) = deps.store.timeline().await? else { return Ok(()) };
    let noted = deps.store.noted_timeline().await?;
    let parsed = (noted.as_deref().map(str::parse::<Timeline>), text.parse::<Timeline>());
    let course = match parsed {
        (Some(Ok(noted)), Ok(now)) => noted.course_to(&now),
        // Nothing was noted yet, or nothing that can be compared.
        (None | Some(Err(_)), _) | (_, Err(_)) => {
            return deps.store.note_timeline(&text, None).await;
        }
    };
    let now = deps.clock.now();
    match course {
        Course::Same => return Ok(()),
        Course::Rose => {
            let event_name = "timeline_rose";
            tracing::warn!(event_name, from = noted, to = text, "every registry is compared now");
        }
        Course::WentBack => {
            let reason = format!(
                "the rows were written on timeline {}, the database is on {text}",
                noted.as_deref().unwrap_or_default()
            );
            let row = row("restored", &Caller::service("sweeper"), json!({ "why": reason }), now);
            deps.store.latch_restored(now, &reason, &row).await?;
            refresh(deps).await?;
        }
    }
    deps.store.note_timeline(&text, Some(now)).await
}
