//! What may go wrong with one request, and how a test chooses it.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use super::wire::Reply;

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    CreateRobot,
    GetRobot,
    DeleteRobot,
    Regenerate,
    ListRobots,
    RobotPermissions,
    JoinTeam,
    LeaveTeam,
    TeamMembers,
    Grant,
    OrgLog,
    /// `/v2/`
    Version,
    /// `/v2/auth`
    Auth,
    /// Manifests and blobs.
    Pull,
    Tags,
    /// Anything else.
    Other,
}

/// What a script sees of a request before it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInfo {
    pub op: Op,
    /// The robot's full name where the request is about one; else empty.
    pub robot: String,
    /// How many requests of this kind came before.
    pub nth: usize,
}

/// A door that a test opens. Clones are the same door; once open it stays open.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Gives up after a minute, so that no thread outlives its test for long.
    pub fn passed(&self) {
        let open = self.0.0.lock().unwrap();
        let minute = Duration::from_secs(60);
        drop(self.0.1.wait_timeout_while(open, minute, |open| !*open).unwrap());
    }
}

/// When a late change takes effect.
#[derive(Debug, Clone)]
pub enum When {
    After(Duration),
    Opened(Gate),
}

impl When {
    pub fn come(&self) {
        match self {
            Self::After(time) => sleep(*time),
            Self::Opened(gate) => gate.passed(),
        }
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Waits, then is handled as if nothing had happened.
    Before(When),
    /// Handled, then the answer waits.
    After(When),
    /// The connection is closed and nothing is applied.
    LoseBefore,
    /// Applied, then the connection is closed without an answer.
    LoseAfter,
    /// The connection is closed at once; the change comes later, whoever still cares.
    AppliedLate(When),
    /// This answer in place of any work.
    Instead(Reply),
    /// Applied, but this is the answer.
    InsteadAfter(Reply),
    /// Applied; the answer breaks off in the middle of its body.
    Truncated,
    /// Applied; the answer comes byte by byte with so much time between.
    Drip(Duration),
}
