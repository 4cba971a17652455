//! What both machines keep of a call that is running, and of their own code that keeps failing.

use crate::ids::CallToken;
use crate::time::Timestamp;

/// A call that was announced in the database and has no accepted outcome yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement<C> {
    /// Which call.
    pub call: C,
    /// An outcome counts only while this is current.
    pub token: CallToken,
    /// The time of the announcement; the call itself begins later.
    pub at: Timestamp,
}

/// The credential's own code panicked too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quarantine {
    /// Since when.
    pub since: Timestamp,
    /// When one new try comes.
    pub retry_at: Timestamp,
}
