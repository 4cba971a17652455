//! Break-glass credentials as OCM clients see them. The words are those of the surface that is asked.

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

use crate::http::ocm;
use crate::ids::ClusterId;
use crate::state::break_glass::{Credential, StateName, Surface};
use crate::time::Timestamp;

/// One credential. Holds a secret where `kubeconfig` is there, hence no `Debug`.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CredentialResource {
    pub kind: &'static str,
    pub id: String,
    pub href: String,
    pub username: String,
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Seconds>,
    pub expiration_timestamp: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocation_timestamp: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "exposed")]
    pub kubeconfig: Option<SecretString>,
    pub status_details: CredentialStatusResource,
}

/// The same without all that never changes; a resource of its own, too.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CredentialStatusResource {
    pub kind: &'static str,
    pub id: String,
    pub href: String,
    pub message: String,
    pub state: StateValue,
}

/// The state's word, and since when.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct StateValue {
    pub value: &'static str,
    pub last_updated_timestamp: Seconds,
}

/// A page of them.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CredentialList {
    pub kind: &'static str,
    pub page: u64,
    pub size: usize,
    pub total: u64,
    pub items: Vec<CredentialResource>,
}

/// A time without parts of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Timestamp);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_seconds_text())
    }
}

fn exposed<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => serializer.serialize_str(secret.expose_secret()),
        None => serializer.serialize_none(),
    }
}

/// A credential on a surface. `kubeconfig` is left out in every state but `issued`.
#[must_use]
pub fn credential(
    surface: Surface,
    cluster_id: &ClusterId,
    credential: &Credential,
    kubeconfig: Option<SecretString>,
) -> CredentialResource {
    let state = credential.state.name();
    let usable = state == StateName::Active;
    CredentialResource {
        kind: "BreakGlassCredential",
        id: credential.id.to_string(),
        href: ocm::credential(surface, cluster_id, credential.id),
        username: credential.username.clone(),
        status: state.word(surface).into(),
        creation_timestamp: credential.created_at.map(Seconds),
        expiration_timestamp: Seconds(credential.expires_at),
        revocation_timestamp: credential.revoked_at.map(Seconds),
        kubeconfig: kubeconfig.filter(|_| usable),
        status_details: credential_status(surface, cluster_id, credential),
    }
}

/// Its status on a surface.
#[must_use]
pub fn credential_status(
    surface: Surface,
    cluster_id: &ClusterId,
    credential: &Credential,
) -> CredentialStatusResource {
    CredentialStatusResource {
        kind: "BreakGlassCredentialStatus",
        id: credential.id.to_string(),
        href: format!("{}/status", ocm::credential(surface, cluster_id, credential.id)),
        message: credential.message.clone(),
        state: StateValue {
            value: credential.state.name().word(surface).into(),
            last_updated_timestamp: Seconds(credential.state_since),
        },
    }
}

/// A page on a surface. `total`: how many there are on all pages.
#[must_use]
pub fn credential_list(
    surface: Surface,
    cluster_id: &ClusterId,
    page: u64,
    total: u64,
    items: &[Credential],
) -> CredentialList {
    let items: Vec<CredentialResource> =
        items.iter().map(|item| credential(surface, cluster_id, item, None)).collect();
    CredentialList { kind: "BreakGlassCredentialList", page, size: items.len(), total, items }
}
