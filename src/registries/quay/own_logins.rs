//! When this process itself logged in as a robot, so that it does not take itself for a user.
//!
//! Quay's `last_accessed` is set by our verification as by anybody's pull (measured).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::time::Timestamp;

/// Quay writes `last_accessed` at most once in 60 s, and clocks differ.
pub(super) const MARGIN: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct OwnLogins(Mutex<HashMap<String, Own>>);

#[derive(Default)]
struct Own {
    /// Logins under way; their time is not known yet.
    running: usize,
    last: Option<Timestamp>,
}

/// A login under way. When it is dropped unfinished it counts as one of its beginning.
pub(super) struct Running<'a> {
    logins: &'a OwnLogins,
    username: String,
    at: Timestamp,
}

impl OwnLogins {
    pub(super) fn begin(&self, username: &str, now: Timestamp) -> Running<'_> {
        self.map().entry(username.to_owned()).or_default().running += 1;
        Running { logins: self, username: username.to_owned(), at: now }
    }

    /// Whether a use at that time can only have been somebody else's.
    pub(super) fn is_foreign(&self, username: &str, used_at: Timestamp) -> bool {
        match self.map().get(username) {
            None => true,
            Some(own) => {
                own.running == 0 && own.last.is_none_or(|last| used_at > last.plus(MARGIN))
            }
        }
    }

    /// The robot is gone, and its name never comes back.
    pub(super) fn forget(&self, username: &str) {
        self.map().remove(username);
    }

    /// Nothing panics while it is held.
    fn map(&self) -> MutexGuard<'_, HashMap<String, Own>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running<'_> {
    /// It was over by this time, on whichever clock that is later.
    pub(super) fn ended(mut self, now: Timestamp, registry: Option<Timestamp>) {
        self.at = self.at.max(now).max(registry.unwrap_or(now));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut map = self.logins.map();
        // Forgotten meanwhile, or not: the login is remembered.
        let own = map.entry(std::mem::take(&mut self.username)).or_default();
        own.running = own.running.saturating_sub(1);
        own.last = own.last.max(Some(self.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn only_what_is_clearly_later_is_somebody_elses() {
        let logins = OwnLogins::default();
        assert!(logins.is_foreign("acme+a", at(1)));
        let running = logins.begin("acme+a", at(100));
        assert!(!logins.is_foreign("acme+a", at(900)));
        running.ended(at(101), Some(at(110)));
        assert!(!logins.is_foreign("acme+a", at(170)));
        assert!(logins.is_foreign("acme+a", at(171)));
        assert!(logins.is_foreign("acme+b", at(110)));
        // A lost one counts from its beginning; an earlier one takes nothing back.
        drop(logins.begin("acme+a", at(200)));
        drop(logins.begin("acme+a", at(150)));
        assert!(!logins.is_foreign("acme+a", at(260)));
        logins.forget("acme+a");
        assert!(logins.is_foreign("acme+a", at(201)));
    }
}
