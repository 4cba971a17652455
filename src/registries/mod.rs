//! What the service asks of a container registry, whichever kind it is.
//!
//! A registry creates, looks up, verifies and revokes accounts. It must not know why: no states, no
//! rotations, no database. Retries belong to the state machine; an implementation makes one attempt
//! per call and says as exactly as it can what happened (`DESIGN`: "what counts as not applied").

pub mod htpasswd;
pub mod lane;
mod marker;
pub mod quay;
pub mod rate;
pub mod scripted;

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

pub use crate::outside::{CallContext, Fence, Trouble, TroubleKind, Unfenced};

use crate::ids::{AccountName, ClusterId, Generation};
use crate::time::Timestamp;

/// What identifies an intent at the registry. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The installation that owns the account.
    pub installation: String,
    /// The cluster; none for an account of the pool.
    pub cluster_id: Option<ClusterId>,
    /// The generation the account is born in.
    pub generation: Generation,
}

/// One account to create.
#[derive(Debug, Clone)]
pub struct CreateIntent {
    /// The name, fixed before the call and never used again.
    pub name: AccountName,
    /// Written beside the account where the registry has room for it.
    pub marker: Marker,
    /// The secret that we chose; present exactly when `own_secret` is a capability.
    pub secret: Option<SecretString>,
}

/// The answer to `create`.
#[derive(Debug)]
pub enum CreateOutcome {
    /// The account exists now and this call made it.
    Created {
        /// The registry's own id, where it has one.
        remote_id: Option<String>,
        /// The full login name, as the registry gave it.
        username: String,
        /// The secret, when the registry made it; none when it was ours.
        secret: Option<SecretString>,
    },
    /// The name is taken, definitely not by this call.
    AlreadyExists,
    /// Refused for good: this name, description or quota. Nothing was made.
    Refused(String),
    /// Definitely not applied; worth another try later.
    Unavailable(Trouble),
    /// The answer was lost: it may have been applied, or may still be.
    Unknown(Trouble),
}

/// Whether a looked-up account is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Its marker names exactly the intent that was asked about.
    ThisIntent,
    /// It carries another marker, or none where one would have to be.
    Foreign,
    /// The registry has no room for a marker; the record of names decides.
    NoMarker,
}

/// The answer to `lookup`.
#[derive(Debug)]
pub enum LookupOutcome {
    /// No such account at this moment. It may still appear after a lost create.
    Absent,
    /// The account exists.
    Present {
        /// The registry's own id.
        remote_id: Option<String>,
        /// The full login name.
        username: String,
        /// The secret, when the registry lets it be read.
        secret: Option<SecretString>,
        /// Whose account it is.
        ownership: Ownership,
    },
    /// No answer that says anything.
    Unavailable(Trouble),
}

/// The answer to `revoke`.
#[derive(Debug)]
pub enum RevokeOutcome {
    /// Deleted by this call.
    Done,
    /// It was not there.
    AlreadyGone,
    /// The registry will not delete it, however often it is asked.
    Refused(String),
    /// Definitely not applied.
    Unavailable(Trouble),
    /// The answer was lost.
    Unknown(Trouble),
}

/// The answer to `verify`: a real login.
#[derive(Debug)]
pub enum VerifyOutcome {
    /// The registry accepts the credential.
    Valid {
        /// Whether it may pull.
        can_pull: bool,
    },
    /// The registry refuses the credential.
    Invalid,
    /// No answer that says anything.
    Unavailable(Trouble),
}

/// One account that a listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAccount {
    /// The short name, as in `AccountName`, but as the registry tells it.
    pub name: String,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// The marker's text where the registry keeps one.
    pub marker: Option<String>,
}

/// The last use of an account by somebody other than this service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The account.
    pub name: AccountName,
    /// When it was used last.
    pub last_used_at: Timestamp,
}

/// What a registry can do; constant for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// An existing account's secret can be read, so a lost create can be adopted.
    pub secret_readable: bool,
    /// The service chooses the secret.
    pub own_secret: bool,
    /// Accounts can carry a marker.
    pub marker: bool,
    /// The registry tells when an account was used.
    pub usage_evidence: bool,
    /// How long tokens that were issued before live on after a revocation.
    pub token_ttl: Duration,
    /// The longest account name, in characters.
    pub max_name_length: usize,
}

/// A registry could not be listed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("listing failed: {}", .0.message)]
pub struct ListError(pub Trouble);

/// One container registry. Each call makes one attempt and returns within the context's deadline
/// (the caller enforces it too).
#[async_trait]
pub trait Registry: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;
    /// Creates an account.
    async fn create(&self, call: &CallContext, intent: &CreateIntent) -> CreateOutcome;
    /// Looks one account up; `marker` is the intent whose account it should be.
    async fn lookup(
        &self,
        call: &CallContext,
        name: &AccountName,
        marker: &Marker,
    ) -> LookupOutcome;
    /// Deletes one account.
    async fn revoke(
        &self,
        call: &CallContext,
        name: &AccountName,
        remote_id: Option<&str>,
    ) -> RevokeOutcome;
    /// Logs in with the credential. `name` is the account's own name, `username` its login name.
    async fn verify(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> VerifyOutcome;
    /// The last foreign use of each account since `since`; empty where there is no such evidence.
    async fn usage(
        &self,
        call: &CallContext,
        names: &[AccountName],
        since: Timestamp,
    ) -> Result<Vec<Usage>, ListError>;
    /// Every account whose name begins with exactly `<prefix>-`.
    async fn list(&self, call: &CallContext, prefix: &str)
    -> Result<Vec<ListedAccount>, ListError>;
}
