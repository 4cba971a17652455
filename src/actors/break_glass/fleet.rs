//! Which clusters have break-glass, who signs for them, and what their files say.
//!
//! Files are read when they are needed: what an operator puts there counts from the next call on. Decides nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{ConfiguredCluster, intent};
use super::step::{Delivered, Drafts};
use crate::config::{Approval, Config, SignerKind};
use crate::config::{ClusterEntry, Clusters, ClustersError};
use crate::ids::ClusterId;
use crate::signers::bundle::{Base, Beside, Bundle, BundleError, compose};
use crate::signers::kubernetes_csr::KubernetesCsr;
use crate::signers::local_ca::LocalCa;
use crate::signers::{Cluster, DraftError, Endpoint, Signer};
use crate::state::break_glass::{ClusterRules, Credential, Policy, Signer as SignerName};
use crate::state::shared::Backoff;
use crate::store::break_glass::{CertificateKind, KeyPurpose, Material};
use crate::time::Timestamp;

/// A signer's own calls may take so much longer than one question to an API server.
const SIGNING: u32 = 2;

/// Break-glass cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The clusters file.
    #[error(transparent)]
    Clusters(#[from] ClustersError),
    /// The signer.
    #[error("break_glass.signer: {0}")]
    Signer(String),
}

/// The configured clusters and their signer.
pub struct Fleet {
    clusters: Clusters,
    signer: Arc<dyn Signer>,
    name: SignerName,
    group: String,
    probe_timeout: Duration,
}

impl Fleet {
    /// Reads the clusters file and finds the signer. Calls nobody.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn load(config: &Config) -> Result<Self, FleetError> {
        let section = &config.break_glass;
        let (name, signer): (_, Arc<dyn Signer>) = match section.signer {
            SignerKind::LocalCa => (SignerName::LocalCa, Arc::new(LocalCa::new())),
            SignerKind::KubernetesCsr => {
                let connected = KubernetesCsr::connect(section.probe.timeout).await;
                let signer = connected.map_err(|error| FleetError::Signer(error.to_string()))?;
                (SignerName::KubernetesCsr, Arc::new(signer))
            }
        };
        Ok(Self {
            clusters: Clusters::load(&section.clusters_file)?,
            signer,
            name,
            group: section.group.clone(),
            probe_timeout: section.probe.timeout,
        })
    }

    /// Looks whether the clusters file changed. A faulty one is reported, the last good one stays.
    pub fn reload(&self) {
        match self.clusters.reload() {
            Ok(true) => {
                tracing::info!(event_name = "clusters_file_read", "the clusters file is new")
            }
            Ok(false) => {}
            Err(error) => {
                let event_name = "clusters_file_faulty";
                tracing::error!(event_name, %error, "the last good one stays in use");
            }
        }
    }

    /// What is configured for a cluster.
    #[must_use]
    pub fn entry(&self, cluster_id: &ClusterId) -> Option<ClusterEntry> {
        self.clusters.get().entry(cluster_id)
    }

    /// Whether one credential can be revoked without the others.
    #[must_use]
    pub fn revokes_one(&self) -> bool {
        self.name.revokes_one()
    }

    /// What the machine has to know.
    #[must_use]
    pub fn rules(&self, entry: &ClusterEntry) -> ClusterRules {
        ClusterRules { signer: self.name, endpoints: entry.endpoints.clone() }
    }

    /// What calls have to know. An API server whose `ca_file` cannot be read is one that cannot be asked.
    pub async fn configured(
        &self,
        cluster_id: &ClusterId,
        entry: &ClusterEntry,
    ) -> ConfiguredCluster {
        let ca = read(&entry.ca_file).await.unwrap_or_else(|error| {
            tracing::warn!(%cluster_id, error, "ca_file: no API server of the cluster can be asked");
            String::new()
        });
        let endpoint = |url: &String| Endpoint { url: url.clone(), ca: ca.clone() };
        ConfiguredCluster {
            signer: self.signer.clone(),
            cluster: Cluster { cluster_id: cluster_id.clone(), namespace: entry.namespace.clone() },
            group: self.group.clone(),
            endpoints: entry.endpoints.iter().map(endpoint).collect(),
            probe_timeout: self.probe_timeout,
        }
    }

    /// The certificates that a kubeconfig verifies the API servers by.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub async fn ca(&self, entry: &ClusterEntry) -> Result<String, String> {
        let ca = read(&entry.ca_file).await.map_err(|error| format!("ca_file {error}"))?;
        if ca.contains("-----BEGIN CERTIFICATE-----") {
            return Ok(ca);
        }
        Err("ca_file holds no certificate".to_owned())
    }

    /// The bundle of these authorities, beside what the cluster has without this service.
    ///
    /// # Errors
    /// [`BundleError`], or why the file cannot be read.
    pub async fn bundle(
        &self,
        entry: &ClusterEntry,
        authorities: &[String],
    ) -> Result<Bundle, BundleTrouble> {
        let base = match &entry.base_client_ca_file {
            Some(path) => {
                let text = read(path).await.map_err(BundleTrouble::File)?;
                Some(Base::parse(text.as_bytes()).map_err(BundleError::from)?)
            }
            None => None,
        };
        Ok(compose(Beside::of(base.as_ref(), entry.bundle_only)?, authorities)?)
    }
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleTrouble {
    /// Its parts.
    #[error(transparent)]
    Parts(#[from] BundleError),
    /// The file of the cluster's own.
    #[error("base_client_ca_file {0}")]
    File(String),
}

/// Without the path: the text may reach whoever asks for a credential.
async fn read(path: &Path) -> Result<String, String> {
    let text = tokio::fs::read_to_string(path).await;
    text.map_err(|error| format!("cannot be read: {}", error.kind()))
}

/// Makes the drafts of one cluster's requests.
pub struct Drafter<'a> {
    /// What is configured for it.
    pub configured: &'a ConfiguredCluster,
    /// The time.
    pub now: Timestamp,
}

impl Drafts for Drafter<'_> {
    fn draft(&self, credential: &Credential) -> Result<Delivered, String> {
        let intent = intent(self.configured, credential, self.now);
        let draft = self.configured.signer.draft(&intent).map_err(|error| error.to_string())?;
        let (owner, mut delivered) = (credential.id.0, Delivered::default());
        if let Some(pem) = draft.signing_request {
            let kind = CertificateKind::SigningRequest;
            delivered.material.push(Material { owner, kind, pem });
        }
        if let Some(key) = draft.private_key {
            delivered.keys.push((owner, KeyPurpose::Credential, key));
        }
        Ok(delivered)
    }
}

/// Whether the signer could sign this.
///
/// # Errors
/// What is wrong with the caller's own signing request, as the caller may read it.
pub fn vet(
    configured: &ConfiguredCluster,
    wanted: &Credential,
    now: Timestamp,
) -> Result<(), String> {
    match configured.signer.vet(&intent(configured, wanted, now)) {
        Ok(()) => Ok(()),
        Err(DraftError::SigningRequest(reason) | DraftError::Internal(reason)) => Err(reason),
    }
}

/// The machine's rules.
#[must_use]
pub fn policy(config: &Config) -> Policy {
    let section = &config.break_glass;
    Policy {
        approval_required: match section.approval {
            Approval::Required => true,
            Approval::Auto => false,
        },
        issue_deadline: section.issue_deadline,
        probe_interval: section.probe.interval,
        probe_successes: section.probe.successes,
        call_timeout: section.probe.timeout.saturating_mul(SIGNING),
        retry: Backoff {
            initial: config.retry.initial,
            factor: config.retry.factor,
            max: config.retry.max,
            jitter: config.retry.jitter,
        },
        denied_after: config.cleanup.denied_after,
        failed_after: config.cleanup.failed_after,
        history_after: config.cleanup.history_after,
    }
}
