//! The words of an account: its life, its calls, its troubles.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use crate::ids::{AccountId, AccountName, Generation, RegistryId};
use crate::state::shared::Trouble;
use crate::time::Timestamp;

/// One account at one registry, for one cluster, born in one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its identity; its secret is sealed for it.
    pub id: AccountId,
    /// Where it lives.
    pub registry_id: RegistryId,
    /// Its name, fixed before the first call and never used again.
    pub name: AccountName,
    /// The generation it was made for.
    pub born_generation: Generation,
    /// Where it is in its life.
    pub phase: AccountPhase,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// The full login name as the registry gave it.
    pub username: Option<String>,
    /// The call that is running now; at most one per account.
    pub call: Option<Announcement>,
    /// When the create whose answer was lost had been announced. Never cleared: such a create may still be
    /// applied, so "gone" needs a call that began later than this plus the registry's settle time.
    pub unanswered_create_at: Option<Timestamp>,
    /// What went wrong since the last success.
    pub trouble: Trouble,
    /// The next call is not due before this.
    pub next_attempt_at: Timestamp,
    /// When it was planned.
    pub planned_at: Timestamp,
    /// When the registry said that it exists.
    pub created_at: Option<Timestamp>,
    /// The announcement of the last verification that succeeded.
    pub verified_at: Option<Timestamp>,
    /// The last generation that it was part of; empty until it is served.
    pub served_in: Option<Generation>,
    /// While it is served: when it is verified again without any other cause.
    pub check_at: Option<Timestamp>,
    /// How many verifications in a row said that it is dead, since it is served.
    pub dead_looks: u32,
    /// When somebody else than this service was last seen using it.
    pub last_used_at: Option<Timestamp>,
    /// When it went.
    pub gone_at: Option<Timestamp>,
}

/// The life of an account.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum AccountPhase {
    /// Named, nothing sent; or its create was definitely not applied.
    Planned,
    /// Its create was sent; without a running call it has to be looked up.
    Creating,
    /// It exists and we hold its secret.
    Created,
    /// A login with it succeeded.
    Verified,
    /// It is part of what is handed out.
    Serving,
    /// It was handed out and may still be in use.
    Retiring,
    /// Its deletion is decided, which is final.
    Deleting,
    /// The registry said that it is gone, late enough.
    Gone,
    /// Its name is spoilt by a lost create; it is deleted until that is certain.
    Burnt,
    /// The registry does not let it go.
    Residue,
}

/// How an account came to be `gone`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum GoneHow {
    /// The registry said so.
    Deleted,
    /// Nothing was ever made under its name.
    NeverCreated,
    /// The name belongs to somebody else; it was left alone.
    Foreign,
    /// An operator ended it without the registry's word.
    Forced,
}

/// The outside calls.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "named as in the registry trait")]
pub enum Call {
    Create,
    Lookup,
    Verify,
    Revoke,
}

/// A call of this machine that is running.
pub type Announcement = crate::state::shared::Announcement<Call>;

/// So many verifications in a row make sure that an account is dead: registries answer stale.
pub(in super::super) const SURE: u32 = 2;

impl Account {
    /// It was served as part of this generation last, and is not any more.
    #[must_use]
    pub fn retired_from(&self, generation: Generation) -> bool {
        self.phase == AccountPhase::Retiring && self.served_in == Some(generation)
    }

    /// The generation that somebody has who presents it after it was served.
    #[must_use]
    pub fn presented_as(&self) -> Generation {
        self.served_in.unwrap_or(self.born_generation)
    }

    /// It is served, and its registry has said more than once that it does not work.
    #[must_use]
    pub const fn is_surely_dead(&self) -> bool {
        matches!(self.phase, AccountPhase::Serving)
            && self.verified_at.is_none()
            && self.dead_looks >= SURE
    }
}

impl AccountPhase {
    /// True while the account may still become, or is, part of what is handed out.
    #[must_use]
    pub const fn is_candidate(self) -> bool {
        match self {
            Self::Planned | Self::Creating | Self::Created | Self::Verified | Self::Serving => true,
            Self::Retiring | Self::Deleting | Self::Gone | Self::Burnt | Self::Residue => false,
        }
    }

    /// True while the cluster may log in with it as far as this service is concerned.
    #[must_use]
    pub const fn is_handed_out(self) -> bool {
        matches!(self, Self::Serving | Self::Retiring)
    }
}
