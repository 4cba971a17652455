//! What HTTP asks of break-glass credentials: one function per verb.
//!
//! Commands go to the cluster's actor. Reads come from the database, so every replica answers the same.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::watch;
use uuid::Uuid;

use super::audit;
use super::fleet::{self, BundleTrouble};
use super::kit::Kit;
use super::step::{StepError, aad};
use crate::actors::audit::Caller;
use crate::actors::credential::{ExecutedOf, Snapshot};
use crate::actors::shard;
use crate::actors::system::{Shards, wait_until};
use crate::config::ClusterEntry;
use crate::crypto::OpenError;
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::signers::bundle::BundleError;
use crate::signers::kubeconfig::Kubeconfig;
use crate::state::break_glass::{
    BreakGlass, Command, Credential, CredentialState, Event, Revocation, bundle_etag,
};
use crate::store::break_glass::{
    BreakGlassStore, CertificateKind, CredentialList, CredentialQuery, KeyPurpose, LoadedBreakGlass,
};
use crate::store::{Cursor, IdempotencyAnswer, Page, StoreError};

/// Why a command was not carried out.
pub type CommandError = shard::CommandError<StepError>;

/// A placeholder is made in no time; whoever reads the first bundle waits for it.
const PLACEHOLDER: Duration = Duration::from_secs(5);
/// Characters of the content's digest in a bundle's name.
const CONTENT: usize = 16;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The command was not carried out.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The caller's own signing request is of no use; why.
    #[error("certificate_signing_request {0}")]
    SigningRequest(String),
    /// A file that the cluster's entry names is missing, or not usable.
    #[error("{0}")]
    NotConfigured(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored private key does not open.
    #[error("a stored private key: {0}")]
    Open(#[from] OpenError),
    /// Something that has to be there is not.
    #[error("{0}")]
    Missing(&'static str),
}

/// A credential, with what makes it usable.
pub struct Opened {
    /// The credential.
    pub credential: Credential,
    /// Its kubeconfig, while it is usable.
    pub kubeconfig: Option<SecretString>,
}

/// What API servers have to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The certificates (PEM).
    pub pem: String,
    /// Its name: the version and the content.
    pub etag: String,
}

/// The break-glass credentials of all clusters.
pub struct Service {
    shards: Shards<Kit>,
}

impl Service {
    /// Over the actors of a system.
    #[must_use]
    pub const fn new(shards: Shards<Kit>) -> Self {
        Self { shards }
    }

    fn kit(&self) -> &Kit {
        self.shards.tools()
    }

    /// Whether a cluster has break-glass, and if so whether one credential can be revoked alone.
    #[must_use]
    pub fn revokes_one(&self, cluster_id: &ClusterId) -> Option<bool> {
        self.kit().fleet.entry(cluster_id).map(|_| self.kit().fleet.revokes_one())
    }

    /// How many private keys each key of the ring seals.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn key_census(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.store().break_glass_key_census().await
    }

    fn entry(&self, cluster_id: &ClusterId) -> Result<ClusterEntry, ServiceError> {
        let entry = self.kit().fleet.entry(cluster_id);
        entry.ok_or(ServiceError::Command(CommandError::Step(StepError::Unnamed)))
    }

    fn store(&self) -> &dyn BreakGlassStore {
        &*self.kit().tools.store
    }

    /// Runs a command and waits for its commit, not for what follows from it. Answers how many revocations ended
    /// with it.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<usize, ServiceError> {
        let executed = self.run(cluster_id, command, caller, answer).await?;
        let ended = |event: &&Event| matches!(event, Event::RevocationCompleted { .. });
        Ok(executed.events.iter().filter(ended).count())
    }

    async fn run(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<ExecutedOf<Kit>, ServiceError> {
        // A cluster without break-glass gets no actor.
        self.entry(cluster_id)?;
        self.vet(cluster_id, &command).await?;
        Ok(self.shards.execute_once(cluster_id, command, caller, answer).await?)
    }

    /// Looks at a caller's own signing request before anything is stored.
    async fn vet(&self, cluster_id: &ClusterId, command: &Command) -> Result<(), ServiceError> {
        let Command::Request { credential_id, username, expires_at, signing_request, by, .. } =
            command
        else {
            return Ok(());
        };
        if signing_request.is_none() {
            return Ok(());
        }
        let entry = self.entry(cluster_id)?;
        let now = self.kit().tools.deps.clock.now();
        let signer = self.kit().fleet.rules(&entry).signer;
        let wanted = Credential {
            username: username.clone().unwrap_or_default(),
            expires_at: *expires_at,
            signing_request: signing_request.clone(),
            ..Credential::new(*credential_id, signer, by, now)
        };
        let configured = self.kit().fleet.configured(cluster_id, &entry).await;
        fleet::vet(&configured, &wanted, now).map_err(ServiceError::SigningRequest)
    }

    /// A page of a cluster's credentials, and how many there are.
    ///
    /// # Errors
    /// [`ServiceError::Store`].
    pub async fn list(&self, query: &CredentialQuery) -> Result<CredentialList, ServiceError> {
        Ok(self.store().list_credentials(query).await?)
    }

    /// One of a cluster's credentials.
    ///
    /// # Errors
    /// [`ServiceError::Store`].
    pub async fn credential(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
    ) -> Result<Option<Credential>, ServiceError> {
        Ok(self.store().credential(cluster_id, id).await?)
    }

    /// A cluster's revocations, newest first.
    ///
    /// # Errors
    /// [`ServiceError::Store`].
    pub async fn revocations(
        &self,
        cluster_id: &ClusterId,
        from: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, ServiceError> {
        Ok(self.store().list_revocations(cluster_id, from, limit).await?)
    }

    /// One of them.
    ///
    /// # Errors
    /// [`ServiceError::Store`].
    pub async fn revocation(
        &self,
        cluster_id: &ClusterId,
        id: RevocationId,
    ) -> Result<Option<Revocation>, ServiceError> {
        Ok(self.store().revocation(cluster_id, id).await?)
    }

    /// Ends when a credential is not on its way any more, or waits for a person, or nothing can be learned of it.
    pub async fn settled(&self, cluster_id: &ClusterId, id: CredentialId) {
        let is_settled = |seen: &Snapshot<LoadedBreakGlass>| {
            let credential = seen.0.record.as_ref().and_then(|record| record.credential(id));
            !credential.is_some_and(|credential| is_on_its_way(credential.state))
        };
        // An actor that dies is asked again: a fresh one takes its place.
        while let Ok(mut watch) = self.watch(cluster_id).await {
            if watch.wait_for(is_settled).await.is_ok() {
                return;
            }
        }
    }

    async fn watch(
        &self,
        cluster_id: &ClusterId,
    ) -> Result<watch::Receiver<Snapshot<LoadedBreakGlass>>, ServiceError> {
        let caller = Caller::service("reader");
        Ok(self.run(cluster_id, Command::Tick, caller, None).await?.watch)
    }

    /// A credential with its kubeconfig, where it is usable. The audit knows of it before anybody has it, and what
    /// was revoked meanwhile is not handed out.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn opened(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
        caller: &Caller,
    ) -> Result<Option<Opened>, ServiceError> {
        let usable = |credential: &Credential| credential.state == CredentialState::Active;
        let Some(credential) = self.store().credential(cluster_id, id).await? else {
            return Ok(None);
        };
        if !usable(&credential) || credential.control {
            return Ok(Some(Opened { credential, kubeconfig: None }));
        }
        // A failure is told below: a revocation that came in between may have taken the key away.
        let kubeconfig = self.kubeconfig(cluster_id, &credential).await;
        if kubeconfig.is_ok() {
            let (now, about) =
                (self.kit().tools.deps.clock.now(), (id, credential.username.as_str()));
            let row = audit::read(cluster_id, about, caller, now);
            self.kit().tools.deps.store.record_audit(&[row]).await?;
        }
        let Some(credential) = self.store().credential(cluster_id, id).await? else {
            return Ok(None);
        };
        if usable(&credential) {
            Ok(Some(Opened { credential, kubeconfig: Some(kubeconfig?) }))
        } else {
            Ok(Some(Opened { credential, kubeconfig: None }))
        }
    }

    async fn kubeconfig(
        &self,
        cluster_id: &ClusterId,
        credential: &Credential,
    ) -> Result<SecretString, ServiceError> {
        let entry = self.entry(cluster_id)?;
        let ca = self.kit().fleet.ca(&entry).await.map_err(ServiceError::NotConfigured)?;
        let owner = credential.id.0;
        let certificate = self.store().certificates(owner).await?;
        let certificate = certificate.get(&CertificateKind::Credential);
        let certificate = certificate.ok_or(ServiceError::Missing("a certificate is missing"))?;
        let private_key = match credential.signing_request {
            Some(_) => None,
            None => Some(self.key(owner).await?),
        };
        let kubeconfig = Kubeconfig {
            server: &entry.server,
            ca: &ca,
            username: &credential.username,
            certificate,
            private_key: private_key.as_ref(),
        };
        Ok(kubeconfig.render())
    }

    async fn key(&self, owner: Uuid) -> Result<SecretString, ServiceError> {
        let stored = self.store().sealed_key(owner, KeyPurpose::Credential).await?;
        let sealed = stored.ok_or(ServiceError::Missing("a private key is missing"))?;
        let keyring = self.kit().tools.deps.keyring.get();
        Ok(keyring.open_secret(&aad(owner, KeyPurpose::Credential), &sealed.bytes)?)
    }

    /// What a cluster's API servers have to trust. Never empty: a placeholder is made where there is nothing.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn bundle(
        &self,
        cluster_id: &ClusterId,
        caller: Caller,
    ) -> Result<Published, ServiceError> {
        let entry = self.entry(cluster_id)?;
        let loaded = self.store().load_break_glass(cluster_id).await?;
        let record = match trusting(&loaded) {
            Some(record) => record.clone(),
            None => {
                let command = Command::WantBundle { cluster_id: cluster_id.clone() };
                let wanted = self.run(cluster_id, command, caller, None).await?;
                let trusts = |seen: &Snapshot<LoadedBreakGlass>| trusting(&seen.0).is_some();
                let seen = wait_until(wanted.watch, PLACEHOLDER, trusts).await;
                trusting(&seen.0).cloned().ok_or(ServiceError::Command(CommandError::Busy))?
            }
        };
        let mut authorities = Vec::new();
        for owner in record.trusted() {
            let mut texts = self.store().certificates(owner).await?;
            // Dropped in this very moment: it belongs to no version that is to come.
            authorities.extend(texts.remove(&CertificateKind::Authority));
        }
        let bundle = self.kit().fleet.bundle(&entry, &authorities).await;
        let bundle = bundle.map_err(|error| match error {
            BundleTrouble::Parts(BundleError::NoBase | BundleError::Base(_))
            | BundleTrouble::File(_) => ServiceError::NotConfigured(error.to_string()),
            BundleTrouble::Parts(BundleError::Authority(_)) => {
                ServiceError::Missing("a stored authority is not a certificate")
            }
            BundleTrouble::Parts(BundleError::Empty) => ServiceError::Command(CommandError::Busy),
        })?;
        let version = bundle_etag(cluster_id, record.bundle_version);
        let content: String = bundle.tag.chars().take(CONTENT).collect();
        Ok(Published { pem: bundle.pem, etag: format!("{version}-{content}") })
    }
}

fn trusting(loaded: &LoadedBreakGlass) -> Option<&BreakGlass> {
    loaded.record.as_ref().filter(|record| !record.trusted().is_empty())
}

const fn is_on_its_way(state: CredentialState) -> bool {
    match state {
        CredentialState::Accepted | CredentialState::Issuing { .. } => true,
        CredentialState::Requested
        | CredentialState::Active
        | CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => false,
    }
}
