//! A simulated registry that keeps its own record of the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::time::Timestamp;

/// What the registry lets the service do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// An existing account's secret can be read (Quay).
    Readable,
    /// The secret is shown once (Harbor).
    ShownOnce,
    /// The service chooses it; no room for a marker (htpasswd).
    Chosen,
}

#[derive(Debug, Clone)]
pub struct SimAccount {
    pub secret: u64,
    pub foreign: bool,
}

/// A call that was sent and will be applied later, its answer lost.
#[derive(Debug, Clone)]
pub enum Late {
    Create { at: Timestamp, name: String, chosen: Option<u64> },
    Revoke { at: Timestamp, name: String },
}

impl Late {
    fn at_mut(&mut self) -> &mut Timestamp {
        match self {
            Self::Create { at, .. } | Self::Revoke { at, .. } => at,
        }
    }

    fn at(&self) -> Timestamp {
        match self {
            Self::Create { at, .. } | Self::Revoke { at, .. } => *at,
        }
    }
}

#[derive(Debug, Clone)]
pub struct SimRegistry {
    pub flavour: Flavour,
    pub live: BTreeMap<String, SimAccount>,
    pub late: Vec<Late>,
    /// Every deletion that was applied, for the judge.
    pub deletions: Vec<(Timestamp, String)>,
    /// How often each name was created.
    pub creations: BTreeMap<String, u32>,
    /// Names that somebody else holds.
    pub foreign: BTreeSet<String>,
    /// Names that were deleted behind the service's back.
    pub broken: BTreeSet<String>,
    next_secret: u64,
}

impl SimRegistry {
    pub fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            live: BTreeMap::new(),
            late: Vec::new(),
            deletions: Vec::new(),
            creations: BTreeMap::new(),
            foreign: BTreeSet::new(),
            broken: BTreeSet::new(),
            next_secret: 1,
        }
    }

    /// `None` when the name is taken.
    pub fn create(&mut self, name: &str, chosen: Option<u64>) -> Option<u64> {
        if self.live.contains_key(name) {
            return None;
        }
        let secret = chosen.unwrap_or_else(|| {
            self.next_secret += 1;
            self.next_secret
        });
        *self.creations.entry(name.to_owned()).or_default() += 1;
        self.live.insert(name.to_owned(), SimAccount { secret, foreign: false });
        Some(secret)
    }

    pub fn put_foreign(&mut self, name: &str) {
        let foreign = SimAccount { secret: 0, foreign: true };
        if self.live.contains_key(name) {
            return;
        }
        self.live.insert(name.to_owned(), foreign);
        self.foreign.insert(name.to_owned());
    }

    /// False when it was not there.
    pub fn revoke(&mut self, name: &str, at: Timestamp) -> bool {
        let was = self.live.remove(name).is_some();
        if was {
            self.deletions.push((at, name.to_owned()));
        }
        was
    }

    pub fn shift_back(&mut self, time: Duration) {
        for late in &mut self.late {
            *late.at_mut() = late.at().minus(time);
        }
    }

    pub fn shift_ahead(&mut self, time: Duration) {
        for late in &mut self.late {
            *late.at_mut() = late.at().plus(time);
        }
    }

    pub fn apply_late(&mut self, now: Timestamp) {
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at() <= now);
        self.late = waiting;
        for late in due {
            match late {
                Late::Create { name, chosen, .. } => {
                    let _ = self.create(&name, chosen);
                }
                Late::Revoke { at, name } => {
                    let _ = self.revoke(&name, at);
                }
            }
        }
    }
}
