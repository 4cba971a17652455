//! A registry in memory, for tests only: it fails as a script says and keeps its own log of the
//! truth. It lives in the library because tests of the whole service need it too.
//!
//! Faults are either queued ([`Scripted::next`]) or chosen by a closure ([`Scripted::script`]).
//! It never sleeps on a real clock: what waits, waits on tokio's time or on a [`Gate`].

mod accounts;
mod calls;
mod fault;
#[cfg(test)]
mod tests;
mod truth;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

pub use self::accounts::LiveAccount;
use self::accounts::World;
pub use self::fault::{CallInfo, Fault, Gate, Verb, When};
pub use self::truth::{Answer, Entry, What};
use super::{Capabilities, Marker};
use crate::time::Timestamp;

/// Who chooses the secret, and whether it can be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The registry makes it and tells it whenever it is asked.
    Readable,
    /// The registry makes it and shows it once.
    ShownOnce,
    /// The service chooses it; nobody can read it.
    Chosen,
}

/// A registry in memory. Clones are the same registry.
#[derive(Clone)]
pub struct Scripted {
    world: Arc<Mutex<World>>,
    capabilities: Capabilities,
    login_prefix: String,
}

impl Scripted {
    /// A healthy, empty registry: markers and usage evidence, no lingering tokens, and login names
    /// that are longer than account names (`scripted+<name>`).
    #[must_use]
    pub fn new(flavour: Flavour) -> Self {
        let capabilities = Capabilities {
            secret_readable: flavour == Flavour::Readable,
            own_secret: flavour == Flavour::Chosen,
            marker: true,
            usage_evidence: true,
            token_ttl: Duration::ZERO,
            max_name_length: 63,
        };
        Self { world: Arc::default(), capabilities, login_prefix: "scripted+".to_owned() }
    }

    /// The same registry with other capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// One call of this verb fails so: the next one, or the one after those that are queued already.
    pub fn next(&self, verb: Verb, fault: Fault) {
        self.world().queues.entry(verb).or_default().push_back(Some(fault));
    }

    /// The same for a call that goes well, so that faults may be queued behind it.
    pub fn next_well(&self, verb: Verb) {
        self.world().queues.entry(verb).or_default().push_back(None);
    }

    /// Asks the closure about each call for which nothing is queued. Replaces an earlier one. It
    /// runs outside the registry's lock, so it may look at the truth.
    pub fn script(&self, script: impl Fn(&CallInfo) -> Option<Fault> + Send + Sync + 'static) {
        self.world().script = Some(Arc::new(script));
    }

    /// Every call fails so until [`Self::heal`].
    pub fn break_down(&self, fault: Fault) {
        self.script(move |_| Some(fault.clone()));
    }

    /// Forgets script and queues: all is well again.
    pub fn heal(&self) {
        let mut world = self.world();
        world.script = None;
        world.queues.clear();
    }

    /// An account of somebody else. False when the name is taken.
    pub fn add_foreign(&self, name: &str, secret: SecretString) -> bool {
        self.add(name, None, secret)
    }

    /// An account that carries a marker but was made by no call, as after a lost database.
    pub fn add_marked(&self, name: &str, marker: Marker, secret: SecretString) -> bool {
        self.add(name, Some(marker), secret)
    }

    fn add(&self, name: &str, marker: Option<Marker>, secret: SecretString) -> bool {
        self.world().create(None, name, self.username(name), marker, Some(secret)).is_some()
    }

    /// Somebody else deletes an account. False when there was none.
    pub fn delete_behind_the_back(&self, name: &str) -> bool {
        self.world().delete(None, name)
    }

    /// Somebody else changes the secret of an account. False when there is none.
    pub fn change_behind_the_back(&self, name: &str, secret: SecretString) -> bool {
        let mut world = self.world();
        world.accounts.get_mut(name).map(|account| account.secret = secret).is_some()
    }

    /// Somebody else uses an account: evidence for `usage`.
    pub fn note_use(&self, name: &str, at: Timestamp) {
        self.world().used.insert(name.to_owned(), at);
    }

    /// The full login name of an account.
    #[must_use]
    pub fn username(&self, name: &str) -> String {
        format!("{}{name}", self.login_prefix)
    }

    /// The truth: every account that exists now, by name.
    #[must_use]
    pub fn live(&self) -> Vec<LiveAccount> {
        self.world().accounts.values().cloned().collect()
    }

    /// The truth: would a login with this work now?
    #[must_use]
    pub fn secret_works(&self, username: &str, secret: &SecretString) -> bool {
        self.world().login(username, secret.expose_secret())
    }

    /// The truth: names that came into being more than once; must always be empty.
    #[must_use]
    pub fn reused_names(&self) -> Vec<String> {
        self.world().reused()
    }

    /// Everything that happened, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        self.world().log.clone()
    }

    /// How many calls of a verb came.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> usize {
        self.world().calls_of.get(&verb).copied().unwrap_or_default()
    }

    /// The most calls that were ever under way at once.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.world().peak
    }

    /// Nothing but a script or a queue can panic while it is held, and neither runs under it.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
