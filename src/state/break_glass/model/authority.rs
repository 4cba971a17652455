//! The words of an authority that no credential owns.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::Announcement;
use crate::ids::AuthorityId;
use crate::state::shared::Trouble;
use crate::time::Timestamp;

/// A certificate authority of the embedded signer that is not a credential's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its identity; what it signed is sealed for it.
    pub id: AuthorityId,
    /// What it is good for.
    pub kind: AuthorityKind,
    /// When it was made; until then it is only wanted.
    pub made_at: Option<Timestamp>,
    /// Its end, once made.
    pub not_after: Option<Timestamp>,
    /// It left in the step being decided.
    pub dropped: bool,
    /// The call that is running now.
    pub call: Option<Announcement>,
    /// What went wrong since the last success.
    pub trouble: Trouble,
    /// The next call is not due before this.
    pub next_attempt_at: Timestamp,
}

/// What an authority is good for.
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
pub enum AuthorityKind {
    /// Signed a login without rights that API servers have to accept: it tells "rejects this one" from
    /// "rejects everything".
    Control,
    /// Keeps a bundle from being empty. Its key was dropped, it signed nothing.
    Placeholder,
}
