//! The rotation resource. A running rotation is shown with its record, an ended one without.

use std::collections::BTreeMap;

use serde::Serialize;

use super::words::AccountWord;
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, Adoption, Consumer, End, EvidenceSource, Policy, PullSecret,
    RetireReason, Rotation, RotationError, RotationPhase, RotationReason, RotationStatus,
};
use crate::time::Timestamp;

/// One rotation.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct RotationResource {
    pub rotation_id: RotationId,
    pub cluster_id: ClusterId,
    pub status: RotationStatus,
    pub reason: RotationReason,
    pub force_immediate: bool,
    pub from_generation: Generation,
    pub to_generation: Generation,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub estimated_completion: Option<Timestamp>,
    pub deadline: Option<Timestamp>,
    pub overdue: bool,
    pub progress: Progress,
    pub warnings: Vec<&'static str>,
    pub error: Option<ErrorResource>,
}

/// How far it is.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct Progress {
    pub phase: &'static str,
    pub new_credentials_created: bool,
    pub new_credentials_verified: bool,
    pub adopted: bool,
    pub adoption: Vec<AdoptionEntry>,
    pub old_credentials_revoked: bool,
    pub registries: BTreeMap<RegistryId, AccountWord>,
}

/// Somebody's latest word.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AdoptionEntry {
    pub consumer: String,
    pub generation: Generation,
    pub source: EvidenceSource,
    pub observed_at: Timestamp,
}

/// Why it did not complete.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct ErrorResource {
    pub code: String,
    pub message: String,
    pub registry_id: Option<RegistryId>,
}

impl From<&RotationError> for ErrorResource {
    fn from(error: &RotationError) -> Self {
        let RotationError { code, message, registry_id } = error.clone();
        Self { code, message, registry_id }
    }
}

/// The resource of a rotation. `record`: its cluster's, where there is one; only the running rotation is
/// judged by it, because an ended one no longer knows what the accounts were like then.
#[must_use]
pub fn rotation(
    cluster_id: &ClusterId,
    rotation: &Rotation,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> RotationResource {
    let record =
        record.filter(|record| record.rotation().is_some_and(|running| running.id == rotation.id));
    let overdue = is_overdue(rotation, now);
    RotationResource {
        rotation_id: rotation.id,
        cluster_id: cluster_id.clone(),
        status: rotation.status(),
        reason: rotation.reason,
        force_immediate: rotation.force_immediate,
        from_generation: rotation.from,
        to_generation: rotation.to,
        created_at: rotation.created_at,
        started_at: rotation.started_at,
        completed_at: rotation.completed_at,
        estimated_completion: estimate(rotation, record, policy),
        deadline: rotation.deadline(),
        overdue,
        progress: progress(rotation, record, policy, now),
        warnings: warnings(rotation, overdue),
        error: error(rotation).map(Into::into),
    }
}

fn error(rotation: &Rotation) -> Option<&RotationError> {
    match &rotation.phase {
        RotationPhase::RemovingNew { end } | RotationPhase::Ended(end) => end.error(),
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. } => None,
    }
}

/// The deadline of a dual-credential period, in either direction, has passed.
fn is_overdue(rotation: &Rotation, now: Timestamp) -> bool {
    match &rotation.phase {
        RotationPhase::DualCredentialPeriod { deadline, .. }
        | RotationPhase::RollingBack { deadline, .. } => *deadline <= now,
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}

/// The last switch of the served generation and the shortest overlap after it.
fn estimate(
    rotation: &Rotation,
    record: Option<&PullSecret>,
    policy: &Policy,
) -> Option<Timestamp> {
    rotation.promoted_at?;
    let served = record?.served()?;
    Some(served.since.plus(policy.min_overlap_for(rotation.reason)))
}

fn progress(
    rotation: &Rotation,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> Progress {
    let promoted = rotation.promoted_at.is_some();
    let created = match &rotation.phase {
        RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. } => true,
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => promoted,
    };
    Progress {
        phase: rotation.phase.name(),
        new_credentials_created: created,
        new_credentials_verified: promoted,
        adopted: record.is_some_and(|record| is_adopted(rotation, record, policy, now)),
        adoption: record.map(|record| adoption(&record.consumers)).unwrap_or_default(),
        old_credentials_revoked: old_revoked(rotation),
        registries: record.map(|record| registries(rotation, record)).unwrap_or_default(),
    }
}

fn old_revoked(rotation: &Rotation) -> bool {
    match &rotation.phase {
        RotationPhase::Ended(End::Completed { old_credentials_revoked }) => {
            *old_credentials_revoked
        }
        RotationPhase::Ended(End::Failed(_) | End::Cancelled(_) | End::RolledBack)
        | RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. } => false,
    }
}

fn is_adopted(rotation: &Rotation, record: &PullSecret, policy: &Policy, now: Timestamp) -> bool {
    let proved = || record.adoption(policy, now) == Adoption::Proved;
    match &rotation.phase {
        RotationPhase::RevokingOld { why: RetireReason::Adopted, .. } => true,
        RotationPhase::DualCredentialPeriod { .. } | RotationPhase::RevokingOld { .. } => proved(),
        // There the old generation is the served one; the new one is on its way out.
        RotationPhase::RollingBack { .. }
        | RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}

fn adoption(consumers: &[Consumer]) -> Vec<AdoptionEntry> {
    let entry = |consumer: &Consumer| AdoptionEntry {
        consumer: consumer.name.clone(),
        generation: consumer.generation,
        source: consumer.source,
        observed_at: consumer.observed_at,
    };
    consumers.iter().map(entry).collect()
}

/// One word per registry, about the accounts that the phase is about: the new ones until they are served,
/// then, while the old ones are deleted, those.
fn registries(rotation: &Rotation, record: &PullSecret) -> BTreeMap<RegistryId, AccountWord> {
    let mut words: BTreeMap<RegistryId, AccountWord> = BTreeMap::new();
    let about_old = match &rotation.phase {
        RotationPhase::RevokingOld { .. } => true,
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    };
    if about_old {
        // What is gone is no longer in the record.
        words.extend(record.registries.iter().map(|id| (id.clone(), AccountWord::Revoked)));
    }
    let concerned = |account: &&Account| {
        let new = account.born_generation == rotation.to;
        if about_old { !new && account.phase != AccountPhase::Serving } else { new }
    };
    for account in record.accounts.iter().filter(concerned) {
        let word = match AccountWord::of(account) {
            // How far the making came: being served is what the phase says.
            AccountWord::Active => AccountWord::Verified,
            other => other,
        };
        let shown = words.entry(account.registry_id.clone()).or_insert(word);
        // A spoilt name beside its replacement: the replacement is what counts.
        if account.phase.is_candidate() || *shown == AccountWord::Revoked {
            *shown = word;
        }
    }
    words
}

fn warnings(rotation: &Rotation, overdue: bool) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    let running = rotation.completed_at.is_none();
    if rotation.force_immediate && running {
        warnings.push("pulls fail until the cluster has fetched the new credentials");
    }
    if rotation.drifted() {
        warnings.push("a served account no longer works; nothing is deleted until it does");
    }
    if overdue {
        warnings.push("the deadline has passed without proof that the cluster has switched");
    }
    match &rotation.phase {
        RotationPhase::Ended(End::Completed { old_credentials_revoked: false }) => {
            warnings.push("a registry does not let old accounts go; see /v1/attention");
        }
        RotationPhase::Ended(
            End::Completed { old_credentials_revoked: true }
            | End::Failed(_)
            | End::Cancelled(_)
            | End::RolledBack,
        )
        | RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. } => {}
    }
    warnings
}
