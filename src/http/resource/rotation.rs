//! The rotation resource. Whether a running one is adopted is judged on its cluster's record; all the rest
//! is made from what the database says of the rotation itself, so that an ended one has its words, too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::words::AccountWord;
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, Adoption, Consumer, End, EvidenceSource, Policy, PullSecret,
    RetireReason, Rotation, RotationError, RotationPhase, RotationReason, RotationStatus,
};
use crate::store::RotationDetail;
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
    pub warnings: Vec<Cow<'static, str>>,
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
/// judged by it.
#[must_use]
pub fn rotation(
    cluster_id: &ClusterId,
    detail: &RotationDetail,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> RotationResource {
    let rotation = &detail.rotation;
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
        estimated_completion: estimate(detail, policy),
        deadline: rotation.deadline(),
        overdue,
        progress: progress(detail, record, policy, now),
        warnings: warnings(rotation, record, policy, now),
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
fn estimate(detail: &RotationDetail, policy: &Policy) -> Option<Timestamp> {
    let rotation = &detail.rotation;
    if rotation.promoted_at.is_none() || rotation.completed_at.is_some() {
        return None;
    }
    Some(detail.served?.since.plus(policy.min_overlap_for(rotation.reason)))
}

fn progress(
    detail: &RotationDetail,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> Progress {
    let rotation = &detail.rotation;
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
        adopted: is_adopted(detail, record, policy, now),
        adoption: adoption(&detail.consumers),
        old_credentials_revoked: old_revoked(rotation),
        registries: registries(rotation, &detail.accounts),
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

fn is_adopted(
    detail: &RotationDetail,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> bool {
    let proved = || record.is_some_and(|record| record.adoption(policy, now) == Adoption::Proved);
    match &detail.rotation.phase {
        RotationPhase::RevokingOld { why: RetireReason::Adopted, .. } => true,
        RotationPhase::DualCredentialPeriod { .. } | RotationPhase::RevokingOld { .. } => proved(),
        RotationPhase::Ended(End::Completed { .. }) => {
            has_moved(detail, policy, |word| word >= detail.rotation.to)
        }
        // There the old generation is the served one, and what is adopted again.
        RotationPhase::RollingBack { decided: Some((_, RetireReason::Adopted)), .. } => true,
        RotationPhase::RollingBack { .. } | RotationPhase::RemovingNew { end: End::RolledBack } => {
            proved()
        }
        RotationPhase::Ended(End::RolledBack) => {
            has_moved(detail, policy, |word| word != detail.rotation.to)
        }
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RemovingNew {
            end: End::Completed { .. } | End::Failed(_) | End::Cancelled(_),
        }
        | RotationPhase::Ended(End::Failed(_) | End::Cancelled(_)) => false,
    }
}

/// After the end: somebody was seen since, and nobody's last word that counted then was about a generation
/// that is not what the rotation ended with, or a later one.
fn has_moved(
    detail: &RotationDetail,
    policy: &Policy,
    is_there: impl Fn(Generation) -> bool,
) -> bool {
    let Some(ended) = detail.rotation.completed_at else { return false };
    let oldest = ended.minus(policy.consumer_ttl);
    let mut words = detail.consumers.iter().filter(|word| word.observed_at > oldest).peekable();
    words.peek().is_some() && words.all(|word| is_there(word.generation))
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

/// One word per registry, about the accounts that the phase is or was last about: the new ones; but the old
/// ones while they are deleted and after a rotation that completed.
fn registries(rotation: &Rotation, accounts: &[Account]) -> BTreeMap<RegistryId, AccountWord> {
    let mut words: BTreeMap<RegistryId, AccountWord> = BTreeMap::new();
    let is_new = |account: &Account| account.born_generation == rotation.to;
    let about_old = is_about_old(rotation);
    if about_old {
        // Every new account that replaces one has an old one, and what is gone of those is not listed.
        let replaces = |a: &&Account| is_new(a) && rotation.scope.retires(&a.registry_id);
        let replaced = accounts.iter().filter(replaces);
        words.extend(replaced.map(|a| (a.registry_id.clone(), AccountWord::Revoked)));
    }
    if about_old && old_revoked(rotation) {
        return words;
    }
    let concerned = |account: &&Account| {
        // What is served was kept or is new.
        let old = account.born_generation < rotation.to && account.phase != AccountPhase::Serving;
        if about_old { old } else { is_new(account) }
    };
    for account in accounts.iter().filter(concerned) {
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
    // A refused account was never made, and so has nothing that could be revoked.
    if let Some(error) = error(rotation).filter(|error| error.code == "denied") {
        words.extend(error.registry_id.clone().map(|id| (id, AccountWord::Denied)));
    }
    words
}

fn is_about_old(rotation: &Rotation) -> bool {
    if rotation.scope.only_adds() {
        return false;
    }
    match &rotation.phase {
        RotationPhase::RevokingOld { .. } | RotationPhase::Ended(End::Completed { .. }) => true,
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(End::Failed(_) | End::Cancelled(_) | End::RolledBack) => false,
    }
}

/// Whose words keep a switch from being proved.
fn held_up(
    rotation: &Rotation,
    record: &PullSecret,
    policy: &Policy,
    now: Timestamp,
) -> Option<String> {
    let waits = match &rotation.phase {
        RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RollingBack { decided: None, .. } => true,
        RotationPhase::RollingBack { decided: Some(_), .. }
        | RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    };
    let holdouts = if waits { record.holdouts(policy, now) } else { Vec::new() };
    let (last, others) = holdouts.split_last()?;
    let more =
        if others.is_empty() { String::new() } else { format!(", and for {} more", others.len()) };
    let Consumer { name, source, generation, .. } = last;
    let source: &'static str = source.into();
    Some(format!(
        "waits for consumer {name} ({source}), last seen with generation {generation}{more}"
    ))
}

fn warnings(
    rotation: &Rotation,
    record: Option<&PullSecret>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Cow<'static, str>> {
    let mut warnings: Vec<Cow<'static, str>> = Vec::new();
    let overdue = is_overdue(rotation, now);
    let running = rotation.completed_at.is_none();
    if rotation.force_immediate && running {
        warnings.push("pulls fail until the cluster has fetched the new credentials".into());
    }
    if rotation.drifted() {
        warnings.push("a served account no longer works; nothing is deleted until it does".into());
    }
    if overdue {
        warnings.push("the deadline has passed without proof that the cluster has switched".into());
    }
    warnings
        .extend(record.and_then(|record| held_up(rotation, record, policy, now)).map(Cow::Owned));
    match &rotation.phase {
        RotationPhase::Ended(End::Completed { old_credentials_revoked: false }) => {
            warnings.push("a registry does not let old accounts go; see /v1/attention".into());
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
