//! What the reader of the registries' own records of use asks and stores.

use std::time::Duration;

use strum::{AsRefStr, Display, IntoStaticStr, VariantArray};

use crate::ids::{AccountId, AccountName, ClusterId};
use crate::state::pull_secret::AccountPhase;
use crate::time::Timestamp;

/// Whose use is read.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    AsRefStr,
    Display,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum UsageScope {
    /// Accounts of clusters whose rotation waits for proof.
    Rotating,
    /// Every account that is handed out.
    All,
}

/// One account whose use is worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCandidate {
    /// Whose.
    pub cluster_id: ClusterId,
    /// Which.
    pub account_id: AccountId,
    /// Its name at the registry.
    pub name: AccountName,
    /// Where it is in its life: serving or retiring.
    pub phase: AccountPhase,
    /// When the last verification that succeeded was announced.
    pub verified_at: Option<Timestamp>,
    /// A verification that was announced since has not succeeded, or not yet.
    pub unsure: bool,
    /// The last switch of the served generation.
    pub served_since: Timestamp,
}

/// A due time further ahead than this many pauses was set by a clock that has gone back since.
const MOST_PAUSES: u32 = 2;

/// The due time that nobody could have set with the clock as it is.
pub(in crate::store) fn too_far(now: Timestamp, pause: Duration) -> Timestamp {
    now.plus(pause.saturating_mul(MOST_PAUSES))
}
