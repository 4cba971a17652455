//! The comparison of a registry's accounts with ours.
//!
//! Pure: given a listing, the rows that were read after it and what was seen before, it says what is unknown,
//! what is missing and what may be deleted. It deletes nothing and knows no registry, database or clock.
//!
//! The order of reading is what makes it safe: an account's row is committed before its create is sent, so
//! whatever a listing holds has its row by the time that rows are read, unless that row was lost.

mod compare;
mod name;
#[cfg(test)]
mod tests;
mod timeline;

use std::collections::BTreeMap;
use std::time::Duration;

pub use compare::compare;
pub use name::{NameParts, SLUG_MAY_BE_CUT, parts_of};
pub use timeline::{Course, Timeline};

use crate::ids::{AccountId, AccountName, ClusterId, Generation};
use crate::time::Timestamp;

/// One account that a listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The short name, as the registry tells it.
    pub name: String,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// What its marker says.
    pub claim: Claim,
}

/// Whose an account is by its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// This installation's.
    Ours {
        /// None for an account of the pool.
        cluster_id: Option<ClusterId>,
        /// The generation that it was made for.
        generation: Generation,
    },
    /// Another installation's.
    Theirs,
    /// It has no marker, or a text that is none.
    Unsigned,
}

/// What our rows say of a listed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Whose it is.
    pub cluster_id: ClusterId,
    /// What is said.
    pub standing: Standing,
}

/// The three things that a row can say of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The account is not gone: served, being made, being deleted, burnt or residue. Its machine sees to it.
    Wanted,
    /// The account was ours and is gone, or was given up by force.
    Gone {
        /// Since when.
        at: Option<Timestamp>,
    },
    /// The name turned out to be somebody else's.
    Foreign,
}

/// An account that is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Which.
    pub account_id: AccountId,
    /// Whose.
    pub cluster_id: ClusterId,
    /// Its name.
    pub name: String,
    /// When the registry said that it exists.
    pub created_at: Option<Timestamp>,
    /// The last verification that succeeded.
    pub verified_at: Option<Timestamp>,
}

/// An account that an earlier sweep saw and that no row names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// Whether a call that deletes it is announced.
    pub calling: bool,
}

/// Everything that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// When the listing was asked for.
    pub started_at: Timestamp,
    /// When the rows had been read.
    pub now: Timestamp,
    /// The listing.
    pub listed: &'a [Listed],
    /// What the rows say of its names.
    pub named: &'a [Named],
    /// Every account that is handed out at this registry.
    pub serving: &'a [Serving],
    /// What was seen before.
    pub seen: &'a [Seen],
    /// The generation counters of the clusters that markers name.
    pub generations: &'a BTreeMap<ClusterId, Generation>,
    /// The highest counter of all clusters whose accounts have this slug in their names.
    pub slugs: &'a BTreeMap<String, Generation>,
}

/// The rules of one registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Begins every name of ours.
    pub prefix: String,
    /// How long an unknown account is left alone after it was first seen.
    pub safety_age: Duration,
    /// How late the registry may still apply or show a change.
    pub settle_time: Duration,
    /// The database was restored and nobody has acknowledged it: nothing is decided.
    pub restored: bool,
    /// Whether the wall clock may be believed; while it may not, nothing is old enough.
    pub time_is_trusted: bool,
    /// When the last restore was acknowledged; every age begins again with it.
    pub acknowledged_at: Option<Timestamp>,
}

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// How many accounts were listed.
    pub listed: u64,
    /// How many of them a row wants.
    pub ours: u64,
    /// How many of them are somebody else's.
    pub foreign: u64,
    /// Those that are ours and that no row wants, by name.
    pub unknown: Vec<Unknown>,
    /// Those that are handed out and that the registry does not have.
    pub missing: Vec<Missing>,
    /// Names that were unknown before and are not any more.
    pub settled: Vec<String>,
    /// What says that the database went back in time.
    pub beyond: Vec<Beyond>,
}

/// An account that is ours and that no row wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Its name.
    pub name: AccountName,
    /// The registry's own id.
    pub remote_id: Option<String>,
    /// Its marker's cluster, or else its row's.
    pub cluster_id: Option<ClusterId>,
    /// Its marker's generation.
    pub generation: Option<Generation>,
    /// A row says that it is gone.
    pub recorded: bool,
    /// When it was first seen; now, for a new one.
    pub first_seen_at: Timestamp,
    /// When it may be deleted.
    pub deletable_at: Timestamp,
    /// That time has come and nothing is in the way.
    pub delete: bool,
}

/// An account that is handed out and that its registry does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub account_id: AccountId,
    /// Whose.
    pub cluster_id: ClusterId,
    /// Its name.
    pub name: String,
}

/// An account with a generation that our counter never gave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// Of whom.
    pub whose: Whose,
    /// The highest generation that was seen.
    pub generation: Generation,
}

/// Whose an account is, as well as the registry can tell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The cluster that the marker names.
    Cluster(ClusterId),
    /// Without markers: one of the clusters whose ids give this slug.
    Slug(String),
}
