//! What operators see of break-glass: revocations with their progress, and a credential that was decided about.

use serde::Serialize;

use super::Pagination;
use crate::ids::ClusterId;
use crate::state::break_glass::{
    Credential, EndpointProgress, Revocation, RevocationState, Signer, Surface, bundle_etag,
};
use crate::time::Timestamp;

/// One revocation.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CredentialRevocation {
    pub revocation_id: String,
    pub cluster_id: ClusterId,
    pub scope: &'static str,
    pub state: &'static str,
    pub message: String,
    pub signer: &'static str,
    pub attempt: u32,
    pub cut_off: Option<Timestamp>,
    pub endpoints: Vec<EndpointResource>,
    pub requested_by: String,
    pub reason: Option<String>,
    pub created_at: Timestamp,
    pub last_updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// What one API server has said.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct EndpointResource {
    pub endpoint: String,
    pub rejected: bool,
    pub rejections: u32,
    pub proved_at: Option<Timestamp>,
    pub last_asked_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// `GET .../break-glass/revocations`, newest first.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct CredentialRevocationList {
    pub revocations: Vec<CredentialRevocation>,
    pub pagination: Pagination,
}

/// A credential that somebody has decided about. No kubeconfig: that is the requester's.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct DecidedCredential {
    pub id: String,
    pub cluster_id: ClusterId,
    pub username: String,
    pub status: &'static str,
    pub message: String,
    pub requested_by: String,
    pub reason: Option<String>,
    pub decided_by: Option<String>,
    pub created_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

/// `POST .../trust-bundle/confirm`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct BundleConfirmation {
    pub etag: String,
    pub settled: usize,
}

/// A revocation as operators see it.
#[must_use]
pub fn credential_revocation(
    cluster_id: &ClusterId,
    revocation: &Revocation,
) -> CredentialRevocation {
    CredentialRevocation {
        revocation_id: revocation.id.to_string(),
        cluster_id: cluster_id.clone(),
        scope: revocation.scope.into(),
        state: revocation.state.into(),
        message: message(cluster_id, revocation),
        signer: revocation.signer.into(),
        attempt: revocation.attempt,
        cut_off: revocation.cut_off,
        endpoints: revocation.endpoints.iter().map(endpoint).collect(),
        requested_by: revocation.requested_by.clone(),
        reason: revocation.reason.clone(),
        created_at: revocation.created_at,
        last_updated_at: revocation.state_since,
        ended_at: revocation.ended_at,
    }
}

/// Trouble is what a person has to know first, then the signer's word, then what is waited for.
fn message(cluster_id: &ClusterId, revocation: &Revocation) -> String {
    let trouble = revocation.trouble.last_error.as_ref().filter(|_| revocation.is_running());
    let told = trouble.or(revocation.progress.as_ref()).cloned();
    told.or_else(|| waits_for(cluster_id, revocation)).unwrap_or_default()
}

/// Where no API server can be asked, somebody has to say that they run with the new bundle.
fn waits_for(cluster_id: &ClusterId, revocation: &Revocation) -> Option<String> {
    let proving = revocation.state == RevocationState::Proving && revocation.endpoints.is_empty();
    let etag = match revocation.signer {
        Signer::LocalCa if proving => bundle_etag(cluster_id, revocation.bundle_version),
        Signer::LocalCa | Signer::KubernetesCsr => return None,
    };
    Some(format!(
        "waits for a confirmation that the API servers run with trust bundle {etag} or a later one"
    ))
}

fn endpoint(progress: &EndpointProgress) -> EndpointResource {
    EndpointResource {
        endpoint: progress.endpoint.clone(),
        rejected: progress.proved_at.is_some(),
        rejections: progress.rejections,
        proved_at: progress.proved_at,
        last_asked_at: progress.seen_at,
        last_error: progress.last_error.clone(),
    }
}

/// A credential as whoever decided about it sees it.
#[must_use]
pub fn decided_credential(cluster_id: &ClusterId, credential: &Credential) -> DecidedCredential {
    DecidedCredential {
        id: credential.id.to_string(),
        cluster_id: cluster_id.clone(),
        username: credential.username.clone(),
        status: credential.state.name().word(Surface::AroHcp).into(),
        message: credential.message.clone(),
        requested_by: credential.requested_by.clone(),
        reason: credential.reason.clone(),
        decided_by: credential.decided_by.clone(),
        created_at: credential.created_at,
        expires_at: credential.expires_at,
    }
}
