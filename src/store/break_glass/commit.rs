//! What one step of the break-glass machine writes. Pure: the backends only turn [`Changes`] into rows.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::super::audit::AuditRow;
use super::super::idempotency::IdempotencyAnswer;
use super::super::{OutboxRow, OwnedBy, SealedSecret, StoreError};
use super::CertificateKind;
use crate::ids::{ClusterId, ReplicaId};
use crate::state::break_glass::{Authority, BreakGlass, Credential, Revocation};
use crate::time::Timestamp;

/// What a private key opens; it is sealed for this use and its owner.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum KeyPurpose {
    /// The credential itself.
    Credential,
    /// Its probe, or a control's login: no rights.
    Probe,
}

/// Public text (PEM) that is kept for an owner; one that is there already is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Material {
    /// For which credential or authority.
    pub owner: Uuid,
    /// What it is.
    pub kind: CertificateKind,
    /// The text.
    pub pem: String,
}

/// Everything that one step writes, in one transaction.
#[derive(Debug, Clone)]
pub struct BreakGlassCommit<'a> {
    /// The cluster.
    pub cluster_id: &'a ClusterId,
    /// The version that was loaded.
    pub expected_version: u64,
    /// The state that was loaded.
    pub before: Option<&'a BreakGlass>,
    /// The state after the step, *not* compacted.
    pub after: &'a BreakGlass,
    /// The time of the step.
    pub at: Timestamp,
    /// Who was the owner when the state was loaded.
    pub ownership: OwnedBy,
    /// Who is the owner from now on.
    pub owner: Option<ReplicaId>,
    /// When the state wants to be looked at again.
    pub due_at: Option<Timestamp>,
    /// Certificates that are new.
    pub material: Vec<Material>,
    /// Private keys that are new, each sealed for its owner and use.
    pub keys: Vec<(Uuid, KeyPurpose, SealedSecret)>,
    /// What the audit tells of it.
    pub audit: Vec<AuditRow>,
    /// What others are told of it.
    pub outbox: Vec<OutboxRow>,
    /// The answer that a repeated request gets.
    pub idempotency: Option<IdempotencyAnswer>,
}

impl<'a> BreakGlassCommit<'a> {
    /// A commit that writes the state and nothing else.
    #[must_use]
    pub const fn new(
        cluster_id: &'a ClusterId,
        expected_version: u64,
        before: Option<&'a BreakGlass>,
        after: &'a BreakGlass,
        at: Timestamp,
    ) -> Self {
        Self {
            cluster_id,
            expected_version,
            before,
            after,
            at,
            ownership: OwnedBy { owner: None, epoch: 0 },
            owner: None,
            due_at: None,
            material: Vec::new(),
            keys: Vec::new(),
            audit: Vec::new(),
            outbox: Vec::new(),
            idempotency: None,
        }
    }
}

/// The rows that differ.
#[derive(Debug)]
pub(in crate::store) struct Changes<'a> {
    pub credentials: Vec<&'a Credential>,
    pub revocations: Vec<&'a Revocation>,
    pub authorities: Vec<&'a Authority>,
    /// Whose private keys are dropped: nothing needs them any more.
    pub spent: Vec<Uuid>,
    /// Authorities that are forgotten, with all that is theirs.
    pub dropped: Vec<Uuid>,
}

impl<'a> Changes<'a> {
    /// Compares the two states.
    ///
    /// # Errors
    /// `Corrupt` for a commit that names two clusters, or in which a live row would get lost.
    pub(in crate::store) fn between(commit: &'a BreakGlassCommit<'_>) -> Result<Self, StoreError> {
        let (before, after) = (commit.before, commit.after);
        let other = |record: &BreakGlass| record.cluster_id != *commit.cluster_id;
        if before.is_some_and(other) || other(after) {
            return Err(StoreError::corrupt("a commit that names two clusters"));
        }
        let lost = |record: &BreakGlass| {
            let credentials = || record.live().any(|c| after.credential(c.id).is_none());
            let running = |r: &&Revocation| r.is_running();
            let gone = |r: &Revocation| after.revocation(r.id).is_none();
            credentials() || record.revocations.iter().filter(running).any(gone)
        };
        if before.is_some_and(lost) {
            return Err(StoreError::corrupt("a live credential or revocation that vanished"));
        }
        let was = |credential: &Credential| before.and_then(|r| r.credential(credential.id));
        let ended = |credential: &&Credential| credential.state.name().is_ended();
        let (kept, dropped): (Vec<&Authority>, Vec<&Authority>) =
            after.authorities.iter().partition(|authority| !authority.dropped);
        let known = |authority: &Authority| {
            before.is_some_and(|record| record.authorities.contains(authority))
        };
        // What has ended first: it makes room for what may be there only once.
        let mut credentials: Vec<&Credential> =
            after.credentials.iter().filter(|c| was(c) != Some(*c)).collect();
        credentials.sort_by_key(|credential| !credential.state.name().is_ended());
        let mut revocations: Vec<&Revocation> = after
            .revocations
            .iter()
            .filter(|r| before.and_then(|record| record.revocation(r.id)) != Some(*r))
            .collect();
        revocations.sort_by_key(|revocation| revocation.is_running());
        Ok(Self {
            credentials,
            revocations,
            authorities: kept.into_iter().filter(|authority| !known(authority)).collect(),
            spent: after
                .credentials
                .iter()
                .filter(ended)
                .map(|credential| credential.id.0)
                .collect(),
            dropped: dropped.iter().map(|authority| authority.id.0).collect(),
        })
    }
}
