//! The places for calls under way at once, of which there may be fewer for a while.
//!
//! Knows neither rate nor breaker, and not why there are fewer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many places. Clones are the same places.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    count: Arc<Mutex<Count>>,
}

#[derive(Debug)]
struct Count {
    /// How many there are.
    allowed: usize,
    /// How many are taken beyond those: they vanish when they are left.
    surplus: usize,
}

/// A place, left by dropping it.
#[derive(Debug)]
pub(super) struct Slot {
    place: Option<OwnedSemaphorePermit>,
    slots: Slots,
}

impl Slots {
    pub(super) fn new(allowed: usize) -> Self {
        let allowed = allowed.clamp(1, Semaphore::MAX_PERMITS);
        let count = Arc::new(Mutex::new(Count { allowed, surplus: 0 }));
        Self { free: Arc::new(Semaphore::new(allowed)), count }
    }

    /// From now on there are so many, at least one. Nobody who has one loses it.
    pub(super) fn allow(&self, allowed: usize) {
        let allowed = allowed.clamp(1, Semaphore::MAX_PERMITS);
        let mut count = self.count();
        if allowed < count.allowed {
            let fewer = count.allowed - allowed;
            count.surplus += fewer - self.free.forget_permits(fewer);
        } else {
            let more = allowed - count.allowed;
            let kept = more.min(count.surplus);
            count.surplus -= kept;
            self.free.add_permits(more - kept);
        }
        count.allowed = allowed;
    }

    /// How many there are at the moment.
    pub(super) fn allowed(&self) -> usize {
        self.count().allowed
    }

    /// A place now.
    pub(super) fn try_take(&self) -> Option<Slot> {
        let place = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(Slot { place: Some(place), slots: self.clone() })
    }

    /// Waits for a place. None cannot come: it would say that there are no places any more.
    pub(super) async fn take(&self) -> Option<Slot> {
        let place = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(Slot { place: Some(place), slots: self.clone() })
    }

    /// No code panics under this lock; a poisoned one would be as good as any.
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut count = self.slots.count();
        let Some(place) = self.place.take() else { return };
        if count.surplus > 0 {
            count.surplus -= 1;
            place.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_place_keeps_it_and_surplus_ones_vanish() {
        let slots = Slots::new(4);
        let mut taken: Vec<Slot> = (0..3).filter_map(|_| slots.try_take()).collect();
        slots.allow(1);
        assert!(slots.try_take().is_none(), "the free one is gone");
        taken.pop();
        taken.pop();
        assert!(slots.try_take().is_none(), "so are those that were left");
        drop(taken);
        let last = slots.try_take().unwrap();
        assert!(slots.try_take().is_none());
        drop(last);
        assert_eq!(slots.allowed(), 1);
    }

    #[test]
    fn what_vanished_comes_back() {
        let slots = Slots::new(4);
        let taken: Vec<Slot> = (0..4).filter_map(|_| slots.try_take()).collect();
        slots.allow(2);
        slots.allow(3);
        drop(taken);
        let taken: Vec<Slot> = (0..4).filter_map(|_| slots.try_take()).collect();
        assert_eq!(taken.len(), 3);
        slots.allow(5);
        assert!(slots.try_take().is_some_and(|_| slots.allowed() == 5));
    }

    #[test]
    fn there_is_always_one() {
        let slots = Slots::new(0);
        slots.allow(0);
        let taken = slots.try_take();
        assert!(taken.is_some() && slots.try_take().is_none());
    }
}
