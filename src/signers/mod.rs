//! What the service asks of whoever signs break-glass credentials, and of the API servers that accept them.
//!
//! A signer makes one attempt per call and says as exactly as it can what happened. It must not know why it is
//! asked: no states, no revocations that wait for something, no database. Repeating belongs to the machine.
//!
//! Each call that changes something outside is one method, so that it can be announced alone. Every one of them
//! carries a name that follows from the intent, so a repetition after a lost answer finds what it made before.

pub mod bundle;
pub mod kubeconfig;
pub mod kubernetes_csr;
pub mod local_ca;
pub mod probe;
mod signing_request;
mod x509;

use async_trait::async_trait;
use secrecy::SecretString;
use uuid::Uuid;

pub use crate::outside::{CallContext, Fence, Trouble, TroubleKind};

use crate::ids::ClusterId;
use crate::time::Timestamp;

/// What a signer can do; constant for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// `submit` signs at once; `draft`, `endorse` and `collect` have nothing to do.
    pub signs_at_once: bool,
    /// A credential's authority is its own, so leaving the trust bundle revokes it alone. Otherwise all of a
    /// cluster's are revoked together, by `rotate` and `check`.
    pub revokes_one: bool,
    /// The signer makes a probe without rights beside each credential. Otherwise an API server can be asked
    /// only with the credential itself, which takes its key.
    pub own_probe: bool,
    /// A second object has to approve the request (`endorse`).
    pub needs_endorsement: bool,
    /// How many credentials of one cluster may live at once.
    pub most_live: Option<usize>,
}

/// What a signer has to know of a cluster. From the clusters file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Which one.
    pub cluster_id: ClusterId,
    /// The control plane's namespace on the management cluster; only `kubernetes_csr` needs one.
    pub namespace: Option<String>,
}

/// One credential to be signed. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// For which cluster.
    pub cluster: Cluster,
    /// The credential's id; names of outside objects follow from it.
    pub id: Uuid,
    /// Whom the certificate names: its CN is this behind [`COMMON_NAME_PREFIX`].
    pub username: String,
    /// Its O; a control has none.
    pub group: Option<String>,
    /// The time now: `NotBefore` lies 30 seconds before it.
    pub now: Timestamp,
    /// The end that was asked for.
    pub not_after: Timestamp,
    /// The caller's own signing request (PEM); with one, the service never holds the key.
    pub signing_request: Option<String>,
}

/// What stands before the username in a certificate's CN.
pub const COMMON_NAME_PREFIX: &str = "system:customer-break-glass:";

/// What has to be stored before `submit` is announced, so that every repetition gives the same request.
pub struct Draft {
    /// The private key (PKCS#8 PEM); none for a caller's own request, or where `submit` makes it.
    pub private_key: Option<SecretString>,
    /// The signing request (PEM); none where the signer signs at once.
    pub signing_request: Option<String>,
}

/// The signer cannot take this intent, however often it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// The caller's own signing request is not usable; says why, as the caller may read it.
    #[error("certificate_signing_request {0}")]
    SigningRequest(String),
    /// The service itself could not: no random bytes.
    #[error("{0}")]
    Internal(String),
}

/// A certificate, and what of it others have to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate (PEM), with the intermediate ones that came with it.
    pub pem: String,
    /// Its real end.
    pub not_after: Timestamp,
}

/// A login by certificate.
#[derive(Clone)]
pub struct Identity {
    /// The certificate (PEM).
    pub certificate: String,
    /// Its private key (PKCS#8 PEM).
    pub private_key: SecretString,
}

/// What the embedded signer made for one credential.
#[derive(Clone)]
pub struct Signed {
    /// The credential.
    pub certificate: Certificate,
    /// Its private key (PKCS#8 PEM); none for a caller's own signing request.
    pub private_key: Option<SecretString>,
    /// The authority (PEM), for the trust bundle.
    pub authority: String,
    /// A login of the same authority, without groups: kept sealed until a revocation is proved.
    pub probe: Identity,
}

/// The answer to `submit`.
pub enum SubmitOutcome {
    /// The signer has this request, from now or from an earlier call.
    Submitted,
    /// It signed at once.
    Signed(Box<Signed>),
    /// Refused for good: what was asked for is not allowed.
    Refused(String),
    /// It can never work: another request has taken the name.
    Broken(String),
    /// Definitely not applied; worth another try later.
    Unavailable(Trouble),
    /// The answer was lost; repeating is harmless.
    Unknown(Trouble),
}

/// The answer to `endorse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndorseOutcome {
    /// The approval exists, from now or from an earlier call.
    Endorsed,
    /// Refused for good.
    Refused(String),
    /// Definitely not applied.
    Unavailable(Trouble),
    /// The answer was lost; repeating is harmless.
    Unknown(Trouble),
}

/// The answer to `collect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectOutcome {
    /// Signed: the key matches, the chain leads to the signer, the subject is what was asked for. To be stored
    /// at once, the signer forgets it within an hour.
    Signed(Certificate),
    /// Not yet, or not seen: what is waited for, in words. A request that is missing proves nothing, and some
    /// that the signer cannot read stay silent for ever: only the machine's deadline ends this.
    Pending(String),
    /// Somebody, or a policy, denied it.
    Refused(String),
    /// The signer could not sign it, or what it signed is not what was asked for.
    Broken(String),
    /// No answer that says anything.
    Unavailable(Trouble),
}

/// The answer to `rotate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotateOutcome {
    /// The request exists, from now or from an earlier call.
    Begun,
    /// It can never work under this name; another one may.
    Broken(String),
    /// Definitely not applied.
    Unavailable(Trouble),
    /// The answer was lost; repeating is harmless.
    Unknown(Trouble),
}

/// The answer to `check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It goes on.
    Running {
        /// The first step that is not done, made safe.
        progress: String,
    },
    /// What was signed before is void.
    Done {
        /// Before when, where the signer says it.
        cut_off: Option<Timestamp>,
    },
    /// This request can never succeed; a new one, with the next `attempt`, may.
    Lost(String),
    /// No answer that says anything.
    Unavailable(Trouble),
}

/// One rotation of a cluster's signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Of which cluster.
    pub cluster: Cluster,
    /// The revocation's id; the request's name follows from it and from `attempt`.
    pub id: Uuid,
    /// Counted up for each request that can never succeed.
    pub attempt: u32,
}

/// Authorities of the embedded signer that are not a credential's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthorityKind {
    /// Signs one login without groups, which API servers have to accept: it tells "rejects this one" from
    /// "rejects everything".
    Control,
    /// Signs nothing; keeps a bundle from being empty.
    Placeholder,
}

/// An authority to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityIntent {
    /// For which cluster.
    pub cluster: Cluster,
    /// The authority's id; its subject follows from it.
    pub id: Uuid,
    /// What it is for.
    pub kind: AuthorityKind,
    /// The time now: `NotBefore` lies 30 seconds before it.
    pub now: Timestamp,
    /// Its end, and the end of what it signs.
    pub not_after: Timestamp,
}

/// The answer to `make`.
pub enum MakeOutcome {
    /// Made. Its private key is gone.
    Made {
        /// The authority (PEM), for the trust bundle.
        authority: String,
        /// The login that it signed; none of a placeholder.
        identity: Option<Identity>,
    },
    /// Not made.
    Unavailable(Trouble),
}

/// One API server to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address (`https`), a single API server's.
    pub url: String,
    /// The certificates (PEM) that its own leads to.
    pub ca: String,
}

/// What an API server said to a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// `201`, and it knows the login by this name.
    Accepted {
        /// The name that it answered.
        name: String,
    },
    /// `401`.
    Rejected,
    /// Anything else, in safe words. Never to be taken for a rejection.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Who signs break-glass credentials. Each call makes one attempt and returns within the context's deadline (the
/// caller enforces it too).
#[async_trait]
pub trait Signer: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether it could sign this, before anything is stored: looks at the caller's own signing request.
    ///
    /// # Errors
    /// Says what is wrong with the request.
    fn vet(&self, intent: &Intent) -> Result<(), DraftError>;

    /// Makes what has to be stored, sealed, before `submit` is announced. Nothing happens outside.
    ///
    /// # Errors
    /// When the caller's request is not usable, or there are no random bytes.
    fn draft(&self, intent: &Intent) -> Result<Draft, DraftError>;

    /// Gives the signer the request. Repeating it with the same draft is harmless.
    async fn submit(&self, call: &CallContext, intent: &Intent, draft: &Draft) -> SubmitOutcome;

    /// Approves the request at the signer. Repeating it is harmless.
    async fn endorse(&self, call: &CallContext, intent: &Intent) -> EndorseOutcome;

    /// Fetches the certificate, when there is one, and checks it against the draft.
    async fn collect(&self, call: &CallContext, intent: &Intent, draft: &Draft) -> CollectOutcome;

    /// Asks the signer to rotate its authority. Repeating it is harmless.
    async fn rotate(&self, call: &CallContext, rotation: &Rotation) -> RotateOutcome;

    /// How far the rotation is.
    async fn check(&self, call: &CallContext, rotation: &Rotation) -> CheckOutcome;

    /// Makes an authority that is no credential's. Only where `signs_at_once`.
    async fn make(&self, call: &CallContext, intent: &AuthorityIntent) -> MakeOutcome;

    /// Asks one API server whether it accepts one login. Changes nothing.
    async fn probe(
        &self,
        call: &CallContext,
        endpoint: &Endpoint,
        identity: &Identity,
    ) -> ProbeOutcome;
}

#[cfg(test)]
mod tests;
