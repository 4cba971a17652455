//! The words of a cluster's schedule: what is its own, and what it retries.

use std::time::Duration;

use super::super::policy::Policy;
use super::PullSecret;
use crate::state::shared::cluster_hash;
use crate::time::Timestamp;
use crate::window::Window;

/// What a cluster's schedule has of its own; whatever is empty is as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Whether it is rotated by schedule at all.
    pub enabled: Option<bool>,
    /// When the next rotation is wanted, in place of the interval's end. Spent when a full rotation's new
    /// generation is served.
    pub next_at: Option<Timestamp>,
    /// When scheduled rotations may begin.
    pub window: Option<Window>,
}

/// A slot of the schedule that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The slot's own time.
    pub at: Timestamp,
    /// How often it failed.
    pub failures: u32,
    /// When it is tried again.
    pub retry_at: Timestamp,
}

/// Dead accounts could not be replaced: the next try comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// How often it failed.
    pub failures: u32,
    /// When it is tried again.
    pub until: Timestamp,
}

impl PullSecret {
    /// The slot that comes next: a failed one again, the one that was asked for, or the end of the interval.
    /// `None` while the schedule is off or nothing was served yet.
    #[must_use]
    pub fn next_slot(&self, policy: &Policy) -> Option<Timestamp> {
        let from = self.interval_from?;
        if self.schedule.enabled == Some(false) {
            return None;
        }
        if let Some(slot) = self.slot {
            return Some(slot.at);
        }
        let hash = cluster_hash(&self.cluster_id);
        self.schedule.next_at.or_else(|| policy.next_rotation(hash, from))
    }

    /// When the schedule wants to begin: not before its slot, its retry and its window. Whatever a standstill
    /// made it miss is caught up in the window that is open or comes next.
    pub(in super::super) fn wants_to_begin(
        &self,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let slot = self.next_slot(policy)?;
        let slot = self.slot.map_or(slot, |failed| failed.retry_at);
        let Some(window) = self.window(policy) else { return Some(slot) };
        let opens = window.opens_at(slot)?;
        if opens <= now && window.closes_at(now).is_none() {
            return window.opens_at(now);
        }
        Some(opens)
    }

    /// Its own window, or the configured one.
    pub(in super::super) fn window<'a>(&'a self, policy: &'a Policy) -> Option<&'a Window> {
        self.schedule.window.as_ref().or(policy.window.as_ref())
    }
}

impl Policy {
    /// When a failed try is repeated: after 1h, 4h, then daily.
    #[must_use]
    pub fn slot_retry(failures: u32) -> Duration {
        const PAUSES: [Duration; 3] = [
            Duration::from_secs(60 * 60),
            Duration::from_secs(4 * 60 * 60),
            Duration::from_secs(24 * 60 * 60),
        ];
        let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
        PAUSES[index.min(PAUSES.len() - 1)]
    }
}
