//! What the handlers of break-glass credentials work with, and how the layers below say no.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use super::wish::Lifetimes;
use crate::actors::audit;
use crate::crypto::OpenError;
use crate::http::edge::Edge;
use crate::http::handlers::backend::{store, unopened};
use crate::http::handlers::once::{Keeper, Repeats};
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::http::routes::Permission;
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::state::break_glass::{Command, Credential, Rejection, Revocation, Surface};
use crate::store::{Cursor, IdempotencyAnswer, Page, Store, StoreError};
use crate::time::Clock;

/// A client that meets a revocation comes back after this.
const DURING_REVOCATION: Duration = Duration::from_secs(10);

/// The layers below, as these handlers see them. Everything that is read comes from the database.
#[async_trait]
pub trait BreakGlass: Send + Sync + 'static {
    /// What there is for a cluster; none for one that has no break-glass.
    fn offer(&self, cluster_id: &ClusterId) -> Option<Offer>;

    /// A page of a cluster's credentials, controls left out.
    async fn list(&self, cluster_id: &ClusterId, of: &ListOf) -> Result<Listed, DeskError>;

    /// One of them.
    async fn credential(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
    ) -> Result<Option<Credential>, DeskError>;

    /// The same with its kubeconfig, where it is usable: both from one look at the database, and the audit
    /// knows of it before anybody has it.
    async fn opened(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
        caller: audit::Caller,
    ) -> Result<Option<Opened>, DeskError>;

    /// Ends when the credential is not on its way any more (usable, ended, or gone), or waits for a person.
    /// Dropping it is harmless.
    async fn settled(&self, cluster_id: &ClusterId, id: CredentialId);

    /// Runs a command, and commits the answer that a repetition of the request gets along with it.
    async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<Done, DeskError>;

    /// A cluster's revocations, newest first, ended ones included.
    async fn revocations(
        &self,
        cluster_id: &ClusterId,
        from: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, DeskError>;

    /// One of them.
    async fn revocation(
        &self,
        cluster_id: &ClusterId,
        id: RevocationId,
    ) -> Result<Option<Revocation>, DeskError>;

    /// What the cluster's API servers have to trust. Never empty.
    async fn bundle(
        &self,
        cluster_id: &ClusterId,
        caller: audit::Caller,
    ) -> Result<Bundle, DeskError>;

    /// The version that an etag names; none for one that this cluster never had.
    fn bundle_version(&self, cluster_id: &ClusterId, etag: &str) -> Option<u64>;
}

/// What there is for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Whether one credential can be revoked without the others.
    pub revokes_one: bool,
}

/// Which credentials. `search` and `order` as they were given: their grammar is the store's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOf {
    /// Whose words the states have.
    pub surface: Surface,
    /// Which.
    pub search: Option<String>,
    /// In which order.
    pub order: Option<String>,
    /// How many are left out.
    pub offset: u64,
    /// How many are wanted; none: all.
    pub limit: Option<u64>,
}

/// A page of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The page.
    pub items: Vec<Credential>,
    /// How many there are on all pages.
    pub total: u64,
}

/// A credential, with what makes it usable.
pub struct Opened {
    /// The credential.
    pub credential: Credential,
    /// Its kubeconfig, while it is usable.
    pub kubeconfig: Option<SecretString>,
}

/// What a command did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// So many revocations ended with it.
    pub settled: usize,
}

/// A version of a trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The certificates.
    pub pem: String,
    /// Their name, without quotes.
    pub etag: String,
}

/// How the layers below fail.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeskError {
    /// The machine says no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// `search` or `order` is wrong.
    #[error("{parameter} {reason}")]
    Query {
        /// Which.
        parameter: &'static str,
        /// Why, in words for the client.
        reason: String,
    },
    /// The caller's own signing request is of no use.
    #[error("certificate_signing_request {reason}")]
    SigningRequest {
        /// Why, in words for the client.
        reason: String,
    },
    /// Something that the cluster needs is not configured, or not usable.
    #[error("{reason}")]
    NotConfigured {
        /// What, in words for the client.
        reason: String,
    },
    /// Not now.
    #[error("{0}")]
    Busy(&'static str),
    /// The database fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored private key does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Our own fault.
    #[error("{0}")]
    Internal(String),
}

/// The configured rules that requests meet.
#[derive(Debug, Clone, Copy)]
pub struct DeskRules {
    /// How long a credential may live.
    pub lifetimes: Lifetimes,
    /// How long a request waits for it on `clusters_mgmt`.
    pub wait: Duration,
}

/// Everything that these handlers need.
pub struct Desk {
    /// The layers below.
    pub break_glass: Arc<dyn BreakGlass>,
    /// The configured rules.
    pub rules: DeskRules,
    /// Where answers are kept.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What repeated requests are recognised by; made for `rules.wait`.
    pub repeats: Repeats,
}

impl Keeper for Desk {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn repeats(&self) -> &Repeats {
        &self.repeats
    }
}

impl Desk {
    /// What there is for a cluster.
    pub(super) fn offer(&self, cluster_id: &ClusterId) -> Result<Offer, ApiError> {
        self.break_glass.offer(cluster_id).ok_or_else(|| ApiError::NotFound {
            what: "break-glass access to this cluster",
            cluster_id: Some(cluster_id.clone()),
        })
    }

    /// One credential, or `404`.
    pub(super) async fn credential(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
    ) -> Result<Credential, ApiError> {
        let found = self.break_glass.credential(cluster_id, id).await;
        let found = found.map_err(|error| self.refused(cluster_id, &error))?;
        let found = found.filter(|credential| !credential.control);
        found.ok_or_else(|| ApiError::no_credential(Some(cluster_id.clone())))
    }

    /// Waits until a credential is not on its way any more, but not beyond the shutdown: a request in flight
    /// answers with what there is.
    pub(super) async fn wait(
        &self,
        edge: &Edge,
        cluster_id: &ClusterId,
        id: CredentialId,
        time: Duration,
    ) {
        if time.is_zero() {
            return;
        }
        tokio::select! {
            () = self.break_glass.settled(cluster_id, id) => {}
            () = tokio::time::sleep(time) => {}
            () = edge.lifecycle.draining() => {}
        }
    }

    /// Runs a command for a caller.
    pub(super) async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<Done, ApiError> {
        let done = self.break_glass.execute(cluster_id, command, caller, answer).await;
        done.map_err(|error| self.refused(cluster_id, &error))
    }

    /// The error that a client gets.
    pub(super) fn refused(&self, cluster_id: &ClusterId, error: &DeskError) -> ApiError {
        match error {
            DeskError::Rejected(rejection) => self.rejected(cluster_id, rejection),
            DeskError::Query { parameter, reason } => {
                let rule = Constraint::Format { format: "see message" };
                ApiError::query(FieldError::new(*parameter, rule, reason.clone()))
            }
            DeskError::SigningRequest { reason } => {
                let rule = Constraint::Format { format: "PKCS#10 in PEM" };
                let field = "certificate_signing_request";
                ApiError::field(FieldError::new(field, rule, reason.clone()))
            }
            DeskError::NotConfigured { reason } => conflict(cluster_id, reason.clone()).into(),
            DeskError::Busy(detail) => ApiError::busy(*detail),
            DeskError::Store(error) => store(error),
            DeskError::Open(error) => unopened(error),
            DeskError::Internal(cause) => ApiError::internal(cause),
        }
    }

    fn rejected(&self, cluster_id: &ClusterId, rejection: &Rejection) -> ApiError {
        let conflict = conflict(cluster_id, rejection.to_string());
        match rejection {
            Rejection::NotFound => ApiError::no_credential(Some(cluster_id.clone())),
            Rejection::UsernameTaken | Rejection::TooMany { .. } | Rejection::State { .. } => {
                conflict.into()
            }
            Rejection::BeingRevoked { .. } => {
                let (retryable, retry_after) = (Some(true), Some(DURING_REVOCATION));
                Conflict { retryable, retry_after, ..conflict }.into()
            }
            Rejection::CannotRevokeOne => only_all(),
            Rejection::OwnRequest => ApiError::Forbidden {
                caller: "whoever asked for a credential".to_owned(),
                subresource: Permission::CredentialsApprove.subresource(),
                verb: Permission::CredentialsApprove.verb(),
            },
            Rejection::UnknownBundle => {
                ApiError::Version { detail: rejection.to_string(), cluster_id: cluster_id.clone() }
            }
            Rejection::NotCurrent => ApiError::internal(rejection),
            Rejection::Quarantined { retry_at } => ApiError::Unavailable {
                detail: rejection.to_string(),
                retry_after: retry_at.since(self.clock.now()),
                cause: None,
            },
        }
    }
}

fn conflict(cluster_id: &ClusterId, detail: String) -> Conflict {
    Conflict { detail, cluster_id: Some(cluster_id.clone()), ..Conflict::default() }
}

/// `405` for the DELETE of one.
pub(super) const fn only_all() -> ApiError {
    ApiError::NotOffered {
        allow: "GET, HEAD",
        reason: "the cluster's signer cannot revoke a single credential; \
                 DELETE the collection to revoke all of them",
    }
}
