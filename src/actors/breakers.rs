//! Tells the log and the metrics when a registry is left alone and when it is called again.

use std::sync::Arc;

use super::deps::Deps;
use crate::registries::lane::BreakerState;

/// Follows the breaker of each registry for the life of the process.
pub fn watch(deps: &Arc<Deps>) {
    for (id, configured) in &deps.registries {
        let (id, lane, metrics) = (id.clone(), configured.lane.clone(), deps.metrics.clone());
        let mut changes = lane.subscribe();
        metrics.breaker(id.as_str(), false);
        actix_rt::spawn(async move {
            let mut open = false;
            while changes.changed().await.is_ok() {
                // Half-open is still trouble: one probe is under way.
                let now_open = *changes.borrow_and_update() != BreakerState::Closed;
                if now_open == open {
                    continue;
                }
                open = now_open;
                metrics.breaker(id.as_str(), open);
                let error = lane.status().last_error.map(|trouble| trouble.message);
                let registry = id.as_str();
                if open {
                    let event_name = "registry_suspended";
                    tracing::warn!(registry, event_name, error, "registry suspended");
                } else {
                    let event_name = "registry_resumed";
                    tracing::info!(registry, event_name, "registry resumed");
                }
            }
        });
    }
}
