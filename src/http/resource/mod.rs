//! Resources as clients see them, made from the machine's words. Pure: time and rules come in.
//!
//! Must not decide anything: what is shown here was decided in `state`.

mod attention;
mod audit;
mod campaign;
mod credential;
#[cfg(test)]
mod credential_tests;
mod pull_secret;
mod registry;
mod residue;
mod revocation;
mod rotation;
#[cfg(test)]
mod tests;
mod words;

use serde::Serialize;

pub use attention::AttentionItem;
pub use audit::{AuditEventList, AuditEventResource};
pub use campaign::{
    CampaignList, CampaignMemberList, CampaignMemberResource, CampaignResource, SelectorResource,
};
pub use credential::{
    CredentialList, CredentialResource, CredentialStatusResource, Seconds, StateValue, credential,
    credential_list, credential_status,
};
pub use pull_secret::{
    Condition, Credential, PullSecretResource, RevocationResource, RunningRotation, Show,
    StateDetails, Status, StatusDetails, pull_secret, pull_secret_row, revocation,
};
pub use registry::{
    Blocked, Limits, MissingResource, RegistryList, RegistryResource, RestoredResource,
    SweepFailure, SweepReport, SweepResource, UnknownResource, registry, sweep_report,
};
pub use residue::{GivenUp, GivenUpList};
pub use revocation::{
    BundleConfirmation, CredentialRevocation, CredentialRevocationList, DecidedCredential,
    EndpointResource, credential_revocation, decided_credential,
};
pub use rotation::{AdoptionEntry, ErrorResource, Progress, RotationResource, rotation};
pub use words::{AccountWord, FoldedWord};

use crate::ids::{ClusterId, Generation, RegistryId};
use crate::store::Cursor;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Pagination {
    pub next_cursor: Option<String>,
    pub has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_count: Option<u64>,
}

impl Pagination {
    /// `next`: the last item's place, where there are more.
    #[must_use]
    pub fn new(next: Option<&Cursor>, total_count: Option<u64>) -> Self {
        Self { next_cursor: next.map(ToString::to_string), has_more: next.is_some(), total_count }
    }
}

/// `GET .../rotations` and `GET /v1/rotations`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RotationList {
    pub rotations: Vec<RotationResource>,
    pub pagination: Pagination,
}

/// `GET /v1/pull-secrets`: without secrets.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct PullSecretList {
    pub pull_secrets: Vec<PullSecretResource>,
    pub pagination: Pagination,
}

/// `GET /v1/attention`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AttentionList {
    pub items: Vec<AttentionItem>,
    pub pagination: Pagination,
}

/// The answer to a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confirmation {
    /// Whether the confirmed generation is the served one.
    pub accepted: bool,
    /// The served one.
    pub served_generation: Generation,
}

impl Confirmation {
    /// Compares what was confirmed with what is served.
    #[must_use]
    pub fn of(confirmed: Generation, served: Generation) -> Self {
        Self { accepted: confirmed == served, served_generation: served }
    }
}

/// Which credential a heartbeat presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PresentedCredential {
    /// It is served.
    Current,
    /// It was served and still works.
    Previous,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct HeartbeatResource {
    pub cluster_id: ClusterId,
    pub registry_id: RegistryId,
    pub generation: Generation,
    pub credential: PresentedCredential,
    pub refresh: bool,
}

impl HeartbeatResource {
    /// `refresh` follows from `credential`.
    #[must_use]
    pub fn new(
        cluster_id: ClusterId,
        registry_id: RegistryId,
        generation: Generation,
        credential: PresentedCredential,
    ) -> Self {
        let refresh = credential != PresentedCredential::Current;
        Self { cluster_id, registry_id, generation, credential, refresh }
    }
}
