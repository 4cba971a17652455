//! The words of a revocation, which is an object of its own because it may go on for long and be about nothing.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::{Announcement, EndpointProgress, Signer};
use crate::ids::RevocationId;
use crate::state::shared::Trouble;
use crate::time::Timestamp;

/// One revocation, of one credential or of all that a cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Its identity.
    pub id: RevocationId,
    /// Of what.
    pub scope: RevocationScope,
    /// How far it is.
    pub state: RevocationState,
    /// When `state` last changed.
    pub state_since: Timestamp,
    /// Whose authority is rotated, or whose authorities leave the bundle.
    pub signer: Signer,
    /// Which request to the signer this is, from 1: one that ran out of time can never succeed.
    pub attempt: u32,
    /// The signer's latest word on its rotation, made safe.
    pub progress: Option<String>,
    /// What was signed before this is void, as the signer says.
    pub cut_off: Option<Timestamp>,
    /// The first version of the bundle that holds none of the revoked authorities.
    pub bundle_version: u64,
    /// What the API servers say.
    pub endpoints: Vec<EndpointProgress>,
    /// The call that is running now.
    pub call: Option<Announcement>,
    /// What went wrong since the last success.
    pub trouble: Trouble,
    /// The next call is not due before this.
    pub next_attempt_at: Timestamp,
    /// Who asked for it.
    pub requested_by: String,
    /// Why, as the caller said.
    pub reason: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What is revoked.
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
pub enum RevocationScope {
    /// Everything that the cluster has.
    All,
    /// One credential.
    One,
}

/// How far a revocation is.
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
pub enum RevocationState {
    /// Nothing was done yet.
    Pending,
    /// The signer is rotating its authority.
    Rotating,
    /// The authorities are not trusted any more; the API servers have to say so.
    Proving,
    /// Proved.
    Completed,
    /// A revocation of everything has taken it over.
    Superseded,
}

impl Revocation {
    /// True until it has ended.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        match self.state {
            RevocationState::Pending | RevocationState::Rotating | RevocationState::Proving => true,
            RevocationState::Completed | RevocationState::Superseded => false,
        }
    }
}
