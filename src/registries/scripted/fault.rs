//! What may go wrong in a call to the scripted registry, and what a script may ask about the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// The calls of the trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Verb {
    /// `create`
    Create,
    /// `lookup`
    Lookup,
    /// `revoke`
    Revoke,
    /// `verify`
    Verify,
    /// `usage`
    Usage,
    /// `list`
    List,
}

/// What a script sees of a call before it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInfo {
    /// Which call.
    pub verb: Verb,
    /// The account's name (`verify`: of the login name; `list`: the prefix; `usage`: empty).
    pub name: String,
    /// How many calls of this verb came before.
    pub nth: usize,
}

/// A door that a test opens. Clones are the same door; once open it stays open.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Gate {
    /// A closed one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn passed(&self) {
        // The sender is held by ourselves, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// When a late change takes effect.
#[derive(Debug, Clone)]
pub enum When {
    /// After so long on tokio's clock.
    After(Duration),
    /// When the test opens the gate.
    Opened(Gate),
}

impl When {
    pub(super) async fn come(&self) {
        match self {
            Self::After(time) => tokio::time::sleep(*time).await,
            Self::Opened(gate) => gate.passed().await,
        }
    }
}

/// What goes wrong with one call. A reading call (everything but `create` and `revoke`) has
/// nothing to apply: there a lost answer is `Unavailable`.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Applied, but the answer is lost.
    LostAfter,
    /// Not applied, and the answer is lost.
    LostBefore,
    /// The answer is lost at once and the change comes later, whatever the fence says then.
    AppliedLate(When),
    /// Waits, then goes on as if nothing had happened (deadline and fence are asked afterwards).
    Hold(When),
    /// Never answers; the call ends at its deadline. Nothing is applied.
    Hang,
    /// Applied, then no answer until the deadline.
    HangAfter,
    /// No connection.
    Connect,
    /// `429`, with or without `Retry-After`.
    RateLimited(Option<Duration>),
    /// `503`: definitely not applied.
    ServerError,
    /// The service's own credential is refused.
    OwnCredential,
    /// Something that every cluster would meet.
    Misconfigured,
    /// Refused for good, in these words (`create` and `revoke`; else like `ServerError`).
    Refuse(String),
    /// "It exists" to a `create`, "it is not there" to everything else, whatever is true.
    Contrary,
    /// `verify` says invalid, whatever is true: a replica that has not heard yet.
    StaleInvalid,
    /// `verify` says valid, whatever is true: a cache that has not forgotten yet.
    StaleValid,
    /// `verify` says valid, but without the right to pull.
    CannotPull,
    /// The code of the call panics before anything is applied.
    Panic,
    /// The code of the call panics after the change was applied.
    PanicAfter,
}
