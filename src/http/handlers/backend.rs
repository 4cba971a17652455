//! What handlers work with, and how the layers below say no.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::watch;

use super::break_glass::Desk;
use crate::actors::audit;
use crate::actors::credential::{Executed, Snapshot};
use crate::actors::deps::Deps;
use crate::actors::read::{self, ReadError};
use crate::actors::reads::{ReadLog, UnreadableError};
use crate::actors::shard::CommandError;
use crate::actors::step::StepError;
use crate::actors::system::{Shards, wait_until};
use crate::crypto::OpenError;
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::document::{Document, Entry};
use crate::http::edge::Edge;
use crate::http::extract::Reason;
use crate::http::handlers::once::{Keeper, Repeats};
use crate::http::problem::{ApiError, Constraint, FieldError, RETRY_SOON, Refused};
use crate::ids::{AccountId, ClusterId, RegistryId};
use crate::state::pull_secret::{Command, PullSecret, due_at};
use crate::store::{IdempotencyAnswer, SealedSecret, Store, StoreError};
use crate::time::Clock;

/// Empty until the service is set up; the gate lets nobody through before that.
#[derive(Clone, Default)]
pub struct Backend(Arc<Parts>);

#[derive(Default)]
struct Parts {
    work: OnceLock<Work>,
    desk: OnceLock<Desk>,
}

impl Backend {
    /// Sets it up, once.
    pub fn set(&self, work: Work) {
        let _ = self.0.work.set(work);
    }

    /// Sets up what break-glass credentials need, once.
    pub fn set_desk(&self, desk: Desk) {
        let _ = self.0.desk.set(desk);
    }

    /// What there is to work with.
    ///
    /// # Errors
    /// `SVC-001` while the service is starting.
    pub fn get(&self) -> Result<&Work, ApiError> {
        self.0.work.get().ok_or_else(|| ApiError::busy("the service is starting"))
    }

    /// The same for break-glass credentials.
    ///
    /// # Errors
    /// `SVC-001` where they are not served.
    pub fn desk(&self) -> Result<&Desk, ApiError> {
        let none = || ApiError::busy("break-glass credentials are not served here");
        self.0.desk.get().ok_or_else(none)
    }
}

/// The layers below, as handlers see them.
pub struct Work {
    /// Database, keys, rules.
    pub deps: Arc<Deps>,
    /// Where commands go.
    pub shards: Shards,
    /// Hosts by registry, for the resource.
    pub hosts: BTreeMap<RegistryId, String>,
    /// The registries that a request may name.
    pub registries: Vec<RegistryId>,
    /// Changes with whatever is rendered from the configuration; part of every ETag.
    pub render_revision: u64,
    /// What repeated requests are recognised by.
    pub repeats: Repeats,
    /// Where it is noted who gets a secret.
    pub reads: ReadLog,
}

impl Keeper for Work {
    fn store(&self) -> &dyn Store {
        &*self.deps.store
    }

    fn clock(&self) -> &dyn Clock {
        &*self.deps.clock
    }

    fn repeats(&self) -> &Repeats {
        &self.repeats
    }
}

impl Work {
    /// Prepares what does not change while the process runs.
    #[must_use]
    pub fn new(deps: Arc<Deps>, shards: Shards, repeats: Repeats, reads: ReadLog) -> Self {
        let host = |(id, configured): (&RegistryId, &crate::actors::deps::ConfiguredRegistry)| {
            (id.clone(), configured.host.clone())
        };
        let hosts = deps.registries.iter().map(host).collect();
        let registries = deps.policy.enabled_registries();
        let render_revision = render_revision(&deps);
        Self { deps, shards, hosts, registries, render_revision, repeats, reads }
    }

    /// Runs a command for a caller.
    ///
    /// # Errors
    /// Whatever the layers below say, as a problem.
    pub async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
    ) -> Result<Executed, ApiError> {
        self.execute_once(cluster_id, command, caller, None).await
    }

    /// The same, with the answer that a repetition of the request gets.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub async fn execute_once(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<Executed, ApiError> {
        let done = self.shards.execute_once(cluster_id, command, caller, answer).await;
        done.map_err(|error| self.refused(cluster_id, &error))
    }

    /// The problem that goes with a command's failure.
    pub fn refused(&self, cluster_id: &ClusterId, error: &CommandError) -> ApiError {
        let now = self.deps.clock.now();
        match error {
            CommandError::Busy => ApiError::busy("too many requests wait for this cluster"),
            CommandError::Restarting => {
                ApiError::busy("this cluster's credential is being restarted")
            }
            CommandError::Step(StepError::Rejected(rejection)) => {
                Refused { cluster_id, registries: &self.registries, now }.because(rejection)
            }
            CommandError::Step(StepError::Store(error)) => store(error),
            CommandError::Step(StepError::Seal(cause)) => {
                ApiError::unavailable("secrets cannot be sealed at the moment", cause)
            }
        }
    }

    /// When to ask again for work that goes on by itself: at its next attempt, or soon while one runs.
    pub fn come_back(&self, record: &PullSecret) -> Duration {
        let now = self.deps.clock.now();
        let runs = record.accounts.iter().any(|account| account.call.is_some());
        let next = due_at(record, &self.deps.policy).filter(|due| !runs && *due > now);
        next.map_or(RETRY_SOON, |due| due.since(now))
    }

    /// Opens the served secrets and puts them together, for this caller: the audit knows of it before
    /// anybody has it.
    ///
    /// # Errors
    /// `SVC-001` when the audit cannot take it or a data key is missing, `INT-001` when a stored secret does
    /// not open with its key.
    pub async fn document(
        &self,
        record: &PullSecret,
        secrets: &[(AccountId, SealedSecret)],
        caller: audit::Caller,
    ) -> Result<Option<Document>, ApiError> {
        let Some(served) = record.served() else { return Ok(None) };
        let noted = self.reads.note(&record.cluster_id, served.generation, caller).await;
        noted.map_err(|error| unaudited(&error))?;
        let mut opened: Vec<Opened> = Vec::with_capacity(secrets.len());
        for (account_id, sealed) in secrets {
            let Some(account) = record.account(*account_id) else { continue };
            let secret =
                read::open(&self.deps, *account_id, sealed).map_err(|error| unopened(&error))?;
            let username = account.username.clone().unwrap_or_else(|| account.name.to_string());
            let Some(configured) = self.deps.registries.get(&account.registry_id) else { continue };
            let hosts = std::iter::once(&configured.host).chain(&configured.aliases);
            opened.push(Opened {
                hosts: hosts.cloned().collect(),
                email: configured.email.clone(),
                username,
                secret,
            });
        }
        let entries: Vec<Entry<'_>> = opened.iter().map(Opened::entry).collect();
        Ok(Some(Document::render(&entries)))
    }
}

struct Opened {
    hosts: Vec<String>,
    email: Option<String>,
    username: String,
    secret: SecretString,
}

impl Opened {
    fn entry(&self) -> Entry<'_> {
        Entry {
            hosts: &self.hosts,
            email: self.email.as_deref(),
            username: &self.username,
            secret: &self.secret,
        }
    }
}

/// Waits for a state, but not beyond the shutdown: a request in flight answers with what there is.
pub async fn wait(
    edge: &Edge,
    watch: watch::Receiver<Snapshot>,
    time: Duration,
    wanted: impl Fn(&Snapshot) -> bool,
) -> Snapshot {
    let last = watch.clone();
    tokio::select! {
        snapshot = wait_until(watch, time, wanted) => snapshot,
        () = edge.lifecycle.draining() => last.borrow().clone(),
    }
}

/// Who asks, for the audit.
pub fn caller(caller: &Caller, context: &RequestContext, reason: Reason) -> audit::Caller {
    audit::Caller {
        actor: caller.principal.name.clone(),
        reason: reason.0,
        request_id: Some(context.request_id.clone()),
        trace_id: Some(context.trace_id.clone()),
    }
}

/// The problem that goes with a failure of the database.
pub fn store(error: &StoreError) -> ApiError {
    match error {
        StoreError::Cursor(error) => {
            let rule = Constraint::Format { format: "cursor" };
            ApiError::query(FieldError::new("cursor", rule, error.to_string()))
        }
        StoreError::Conflict | StoreError::NoTurn | StoreError::LeaseLost => {
            ApiError::busy("somebody else changed this at the same moment")
        }
        StoreError::Unavailable { .. } => {
            ApiError::unavailable("the database does not answer", error)
        }
        StoreError::Duplicate { .. }
        | StoreError::Locked { .. }
        | StoreError::Unworkable { .. }
        | StoreError::InstallationMismatch { .. }
        | StoreError::Corrupt { .. }
        | StoreError::SchemaTooNew { .. }
        | StoreError::NotMigrated { .. }
        | StoreError::Url => ApiError::internal(error),
    }
}

/// The problem that goes with a secret that cannot be handed out, because the audit could not be told.
fn unaudited(error: &UnreadableError) -> ApiError {
    match error {
        UnreadableError::Full | UnreadableError::Gone => {
            ApiError::unavailable("too many reads wait for the audit", error)
        }
        UnreadableError::Store(error) => store(error),
    }
}

/// The problem that goes with a failed read.
pub fn unreadable(error: &ReadError) -> ApiError {
    match error {
        ReadError::Store(error) => store(error),
        ReadError::Open(error) => unopened(error),
    }
}

/// A missing key comes back with its file, and readiness says so meanwhile; a row that does not open with its
/// key is a fault.
pub fn unopened(error: &OpenError) -> ApiError {
    match error {
        OpenError::UnknownKey(_) => ApiError::unavailable("a data key is missing", error),
        OpenError::Malformed
        | OpenError::UnknownVersion(_)
        | OpenError::Rejected(_)
        | OpenError::NotText => ApiError::internal(error),
    }
}

fn render_revision(deps: &Deps) -> u64 {
    // Constant keys: the same configuration has the same revision in every process.
    let mut hasher = DefaultHasher::new();
    for (id, configured) in &deps.registries {
        (id, &configured.host, &configured.aliases, &configured.email).hash(&mut hasher);
    }
    // A tag is read by people, too.
    hasher.finish() & 0xffff_ffff
}
