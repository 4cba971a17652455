//! The scripted registry's own log of the truth: which calls came, and what they really changed.
//!
//! Tests judge the service by this log, never by what the service says about itself. No secret is
//! in it.

use tokio::time::Instant;

use super::fault::Verb;
use crate::registries::{Marker, TroubleKind};

/// One line of the log. `seq` is the place in the order of everything that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the order, from 1.
    pub seq: u64,
    /// The call it belongs to; none for what the test itself did to the accounts.
    pub call: Option<u64>,
    /// When, on tokio's clock.
    pub at: Instant,
    /// What happened.
    pub what: What,
}

/// What a line of the log tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A call came in.
    Begin {
        /// Which.
        verb: Verb,
        /// About which name (see `CallInfo`).
        name: String,
    },
    /// An account came into being.
    Created {
        /// Its short name.
        name: String,
        /// The intent it was made for; none for a foreign one.
        marker: Option<Marker>,
    },
    /// An account ceased to be.
    Deleted {
        /// Its short name.
        name: String,
    },
    /// A call ended.
    End {
        /// How.
        answer: Answer,
    },
}

/// How a call ended, without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Answer {
    /// `Created`
    Created,
    /// `AlreadyExists`
    AlreadyExists,
    /// `Refused`
    Refused,
    /// `Unavailable`
    Unavailable(TroubleKind),
    /// `Unknown`
    Unknown(TroubleKind),
    /// `Absent`
    Absent,
    /// `Present`
    Present,
    /// `Done`
    Done,
    /// `AlreadyGone`
    AlreadyGone,
    /// `Valid`
    Valid,
    /// `Invalid`
    Invalid,
    /// A listing or a reading of usage with so many rows.
    Rows(usize),
    /// The call panicked.
    Panicked,
    /// The caller gave up waiting.
    Dropped,
}
