//! What sweeps ask of the database: when a registry is compared next, what is unknown there and since when,
//! which of it is being deleted, and whether the database was restored.
//!
//! A trait of its own, so that the rest of the store can be read without it. Knows no registry.

use async_trait::async_trait;
use uuid::Uuid;

use super::{AuditRow, StoreError};
use crate::ids::{CallToken, ClusterId, Generation, RegistryId};
use crate::state::sweep::{Beyond, Comparison, Named, Serving};
use crate::time::Timestamp;

/// When a registry is compared, and what came of the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepState {
    /// Which registry.
    pub registry_id: RegistryId,
    /// When it is compared next.
    pub due_at: Timestamp,
    /// Until when somebody who compares it now may take.
    pub lease_until: Option<Timestamp>,
    /// The last comparison that came to its end.
    pub last: Option<SweepSummary>,
    /// The last one that did not, since then: when, and why.
    pub failed: Option<(Timestamp, String)>,
}

/// A comparison in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in the comparison")]
pub struct SweepSummary {
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub listed: u64,
    pub ours: u64,
    pub unknown: u64,
    pub foreign: u64,
    pub missing: u64,
}

impl SweepSummary {
    /// The numbers of a comparison.
    #[must_use]
    pub fn of(found: &Comparison, started_at: Timestamp, finished_at: Timestamp) -> Self {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            started_at,
            finished_at,
            listed: found.listed,
            ours: found.ours,
            unknown: count(found.unknown.len()),
            foreign: found.foreign,
            missing: count(found.missing.len()),
        }
    }
}

/// An account that is ours and that no row wants, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAccount {
    /// Where.
    pub registry_id: RegistryId,
    /// Its name.
    pub name: String,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// Whose it was.
    pub cluster_id: Option<ClusterId>,
    /// Of which generation.
    pub generation: Option<Generation>,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// Its deletion, once that was decided.
    pub deletion: Option<Deletion>,
}

/// A deletion that was decided. It goes on until the registry says "gone" or the account is not unknown any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// When.
    pub decided_at: Timestamp,
    /// The announced call, until its outcome is stored.
    pub call: Option<(CallToken, Timestamp)>,
    /// How often it was tried.
    pub attempts: u32,
    /// Not before this; with an announced call: when that counts as lost.
    pub next_attempt_at: Timestamp,
    /// The last failure.
    pub last_error: Option<String>,
}

/// The end of a sweep: everything that it found, in one transaction.
#[derive(Debug, Clone)]
pub struct SweepCommit<'a> {
    /// Which registry.
    pub registry_id: &'a RegistryId,
    /// Who began it; nothing is written when somebody else has taken over meanwhile.
    pub holder: Uuid,
    /// When it began.
    pub started_at: Timestamp,
    /// Now.
    pub at: Timestamp,
    /// When the next one is due.
    pub due_at: Timestamp,
    /// What was found.
    pub found: &'a Comparison,
    /// What the audit tells of it.
    pub audit: Vec<AuditRow>,
    /// What the audit tells of each decision to delete, by name; only of those that are stored.
    pub decisions: Vec<(String, AuditRow)>,
    /// What the audit tells should this latch `restored`, and the reason in words.
    pub restored: Option<(String, AuditRow)>,
}

/// What the end of a sweep stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepStored {
    /// The names whose deletion was decided: no row wanted them in that very transaction.
    pub decided: Vec<String>,
    /// Whether it latched `restored`.
    pub latched: bool,
}

/// A deletion that is about to be sent.
#[derive(Debug, Clone)]
pub struct DeletionCall {
    /// Where.
    pub registry_id: RegistryId,
    /// Of which account.
    pub name: String,
    /// Fresh for this attempt.
    pub token: CallToken,
    /// Now.
    pub at: Timestamp,
    /// When it counts as lost.
    pub lost_at: Timestamp,
}

/// How a deletion ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionAnswer {
    /// The registry says that it is gone.
    Gone,
    /// It is tried again.
    Again {
        /// Not before this.
        at: Timestamp,
        /// Why, made safe.
        error: String,
    },
}

/// The database was restored to an earlier time, or seems to have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// When that was noticed: rows from before are doubted.
    pub restored_at: Timestamp,
    /// What says so.
    pub reason: String,
    /// When an operator acknowledged it; nothing is deleted before.
    pub acknowledged_at: Option<Timestamp>,
    /// Who.
    pub acknowledged_by: Option<String>,
}

impl Restored {
    /// Whether it waits for an operator.
    #[must_use]
    pub const fn is_latched(&self) -> bool {
        self.acknowledged_at.is_none()
    }
}

/// The part of the store that sweeps use.
#[async_trait]
pub trait SweepStore: Send + Sync {
    // When.

    /// Registries that were never compared get a time for it; others keep theirs.
    async fn plan_sweeps(&self, plans: &[(RegistryId, Timestamp)]) -> Result<(), StoreError>;
    /// The registries whose time has come and that nobody is comparing.
    async fn due_sweeps(&self, now: Timestamp) -> Result<Vec<RegistryId>, StoreError>;
    /// Takes a registry until `until`, unless somebody has it, or it is not due and has to be; true when taken.
    async fn begin_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        until: Timestamp,
        only_due: bool,
    ) -> Result<bool, StoreError>;
    /// Gives a registry back without a result. `failure` is the next time, and why.
    async fn abandon_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        failure: Option<(Timestamp, &str)>,
    ) -> Result<(), StoreError>;
    /// Stores a result. `LeaseLost` when the registry was taken over meanwhile; nothing is stored then.
    async fn end_sweep(&self, commit: &SweepCommit<'_>) -> Result<SweepStored, StoreError>;
    /// How it stands with each registry that was ever planned.
    async fn sweep_states(&self) -> Result<Vec<SweepState>, StoreError>;

    // What is compared.

    /// The rows of these names, at most a page of them. Rows of other registries are among them when they want
    /// the account: a registry may have got another id.
    async fn named_accounts(
        &self,
        registry_id: &RegistryId,
        names: &[String],
    ) -> Result<Vec<Named>, StoreError>;
    /// The accounts that are handed out, by name, after this one.
    async fn serving_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Serving>, StoreError>;
    /// The generation counters of these clusters, at most a page of them; unknown ones are left out.
    async fn generation_counters(
        &self,
        clusters: &[ClusterId],
    ) -> Result<Vec<(ClusterId, Generation)>, StoreError>;
    /// For each slug the highest counter of the clusters with such an id; slugs without any are left out.
    async fn slug_counters(
        &self,
        slugs: &[String],
    ) -> Result<Vec<(String, Generation)>, StoreError>;
    /// What is remembered as unknown, by name, after this one.
    async fn unknown_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError>;

    // Deletions.

    /// A registry's decided deletions whose time has come, the oldest first; those with an announced call have lost it.
    async fn due_deletions(
        &self,
        registry_id: &RegistryId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError>;
    /// Announces a deletion; false when it may not be sent: a row wants the account, the database was
    /// restored, another call is announced, or it is not decided any more. It is looked at again at `lost_at`.
    ///
    /// Whoever lets a row name an account that exists already has to look here in its own transaction.
    async fn announce_deletion(
        &self,
        call: &DeletionCall,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Whether this call is still the announced one, and nothing forbids it.
    async fn is_deletion_current(
        &self,
        registry_id: &RegistryId,
        name: &str,
        token: CallToken,
    ) -> Result<bool, StoreError>;
    /// Stores the outcome of a call; false when it comes too late, and nothing is stored then.
    async fn answer_deletion(
        &self,
        call: &DeletionCall,
        answer: &DeletionAnswer,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;

    // Restores.

    /// The last restore that was noticed.
    async fn restored(&self) -> Result<Option<Restored>, StoreError>;
    /// Notices a restore and wakes every cluster; false when one waits for its acknowledgement already.
    async fn latch_restored(
        &self,
        at: Timestamp,
        reason: &str,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// An operator has seen it, and every registry is compared again; `None` when none waits.
    async fn acknowledge_restore(
        &self,
        at: Timestamp,
        by: &str,
        audit: &AuditRow,
    ) -> Result<Option<Restored>, StoreError>;
    /// The timeline of the database itself, where it has one that can be read.
    async fn timeline(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
    /// The timeline that the rows were last written on.
    async fn noted_timeline(&self) -> Result<Option<String>, StoreError>;
    /// Notes the timeline, and has every registry compared at once when it rose.
    async fn note_timeline(
        &self,
        timeline: &str,
        sweep_at: Option<Timestamp>,
    ) -> Result<(), StoreError>;
}

/// Whose counter is raised, as the range of cluster ids that the evidence leaves.
pub(super) fn range_of(beyond: &Beyond) -> (String, String) {
    use crate::state::sweep::Whose;
    match &beyond.whose {
        Whose::Cluster(cluster_id) => (cluster_id.to_string(), cluster_id.to_string()),
        Whose::Slug(slug) => slug_range(slug),
    }
}

/// The cluster ids that may have this slug. `~` sorts behind everything that an id may hold.
pub(super) fn slug_range(slug: &str) -> (String, String) {
    if slug.len() < crate::state::sweep::SLUG_MAY_BE_CUT {
        return (slug.to_owned(), slug.to_owned());
    }
    (slug.to_owned(), format!("{slug}~"))
}
