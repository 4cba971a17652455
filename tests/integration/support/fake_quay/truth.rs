//! The fake's own log of the truth: which requests came, and what they really changed.
//!
//! Tests judge the service by it, never by what the service says about itself. No secret is in it.

use std::collections::{BTreeMap, BTreeSet};

use hyperfleet_credentials::time::Timestamp;

use super::fault::Op;

/// One line of the log. `seq` is the place in the order of everything that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    /// The request it belongs to; none for what the test itself did.
    pub request: Option<u64>,
    /// When, on the fake's clock.
    pub at: Timestamp,
    pub what: What,
}

/// What a line of the log tells; robots by their full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Request {
        op: Op,
        method: String,
        path: String,
        robot: String,
    },
    Created {
        robot: String,
    },
    Deleted {
        robot: String,
    },
    SecretChanged {
        robot: String,
    },
    Joined {
        robot: String,
        team: String,
    },
    Left {
        robot: String,
        team: String,
    },
    Granted {
        robot: String,
        repository: String,
    },
    /// A Basic login that went well.
    LoggedIn {
        robot: String,
    },
    /// A pull that went well.
    Pulled {
        robot: String,
        repository: String,
    },
    Answered {
        status: u16,
    },
    /// The connection was closed without a whole answer.
    Lost,
}

impl What {
    /// Whether something at the registry is different afterwards that was meant to be.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Created { .. }
            | Self::Deleted { .. }
            | Self::SecretChanged { .. }
            | Self::Joined { .. }
            | Self::Left { .. }
            | Self::Granted { .. } => true,
            Self::Request { .. }
            | Self::LoggedIn { .. }
            | Self::Pulled { .. }
            | Self::Answered { .. }
            | Self::Lost => false,
        }
    }
}

/// Robots that were created more than once. Must always be empty: an old token works again then.
pub fn reused(log: &[Entry]) -> Vec<String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in log {
        if let What::Created { robot } = &entry.what {
            *times.entry(robot).or_default() += 1;
        }
    }
    times.into_iter().filter(|(_, times)| *times > 1).map(|(robot, _)| robot.to_owned()).collect()
}

/// After each creation and deletion: the robots that begin with `prefix` and live then.
pub fn live_over_time(log: &[Entry], prefix: &str) -> Vec<(u64, Timestamp, BTreeSet<String>)> {
    let mut live = BTreeSet::new();
    let mut history = Vec::new();
    for entry in log {
        let mut changed = false;
        if let What::Created { robot } = &entry.what
            && robot.starts_with(prefix)
        {
            changed = live.insert(robot.clone());
        } else if let What::Deleted { robot } = &entry.what {
            changed = live.remove(robot);
        }
        if changed {
            history.push((entry.seq, entry.at, live.clone()));
        }
    }
    history
}
