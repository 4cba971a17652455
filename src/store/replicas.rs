//! Who works on what: replicas, their rows, and which of them owns a credential.
//!
//! Knows no clock: whether a replica is dead is decided by whoever watches its counter, and told here.

use async_trait::async_trait;

use super::StoreError;
use crate::ids::{ClusterId, ReplicaId};

/// Which replica may run a credential's effects, and how often that changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnedBy {
    /// Nobody while there is nothing to do.
    pub owner: Option<ReplicaId>,
    /// Raised whenever another replica becomes the owner. Guards every write beside the version.
    pub epoch: u64,
}

impl OwnedBy {
    /// The ownership after this replica, or nobody, became the owner. Who gives it back and takes it again is
    /// another owner, too.
    #[must_use]
    pub fn passed_to(self, owner: Option<ReplicaId>) -> Self {
        let raised = owner.is_some() && owner != self.owner;
        Self { owner, epoch: self.epoch + u64::from(raised) }
    }
}

/// Work that a replica has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Which cluster's credential.
    pub cluster_id: ClusterId,
    /// The row's version when it was taken.
    pub version: u64,
    /// The taker is the owner, since this epoch.
    pub ownership: OwnedBy,
    /// The owner before, where that was somebody else.
    pub from: Option<ReplicaId>,
}

/// A replica's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Which replica.
    pub replica_id: ReplicaId,
    /// Raised by it for as long as it lives.
    pub counter: u64,
    /// The keys that it holds.
    pub key_ids: Vec<String>,
}

/// What one replica tells the others. Only ever a hint: it may get lost, and nothing depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// There is something to do for a credential that this replica owns.
    Wake {
        /// Its owner.
        to: ReplicaId,
        /// Which credential.
        cluster_id: ClusterId,
    },
    /// A credential has changed.
    Changed {
        /// Which.
        cluster_id: ClusterId,
    },
    /// A replica came, went, or left work behind.
    Members,
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wake { to, cluster_id } => write!(f, "wake {to} {cluster_id}"),
            Self::Changed { cluster_id } => write!(f, "changed {cluster_id}"),
            Self::Members => f.write_str("members"),
        }
    }
}

impl Hint {
    /// Reads what [`Display`](std::fmt::Display) wrote; nothing for a word of a newer program.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let hint = match words.next()? {
            "wake" => Self::Wake {
                to: ReplicaId(uuid::Uuid::try_parse(words.next()?).ok()?),
                cluster_id: words.next()?.parse().ok()?,
            },
            "changed" => Self::Changed { cluster_id: words.next()?.parse().ok()? },
            "members" => Self::Members,
            _ => return None,
        };
        words.next().is_none().then_some(hint)
    }
}

/// What the others tell.
#[async_trait]
pub trait Hints: Send {
    /// The next hint. After an error hints may have been missed, and none come any more.
    async fn next(&mut self) -> Result<Hint, StoreError>;
}

/// Whether hints can be heard.
pub enum Listening {
    /// There are no others.
    Alone,
    /// What stands between lets none through.
    Deaf,
    /// From here on.
    Hears(Box<dyn Hints>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_as_they_were_written() {
        let cluster_id: ClusterId = "cls-1".parse().unwrap();
        let to = ReplicaId(uuid::Uuid::from_u128(7));
        let changed = Hint::Changed { cluster_id: cluster_id.clone() };
        for hint in [Hint::Wake { to, cluster_id }, changed, Hint::Members] {
            assert_eq!(Hint::read(&hint.to_string()), Some(hint));
        }
        for strange in ["", "wake", "wake x cls-1", "changed", "changed a b", "members 1", "hello"]
        {
            assert_eq!(Hint::read(strange), None, "{strange}");
        }
    }

    #[test]
    fn the_epoch_is_raised_by_each_new_owner() {
        let (a, b) = (ReplicaId(uuid::Uuid::from_u128(1)), ReplicaId(uuid::Uuid::from_u128(2)));
        let owned = OwnedBy::default().passed_to(Some(a));
        assert_eq!(owned, OwnedBy { owner: Some(a), epoch: 1 });
        assert_eq!(owned.passed_to(Some(a)), owned);
        assert_eq!(owned.passed_to(Some(b)).epoch, 2);
        let free = owned.passed_to(None);
        assert_eq!(free, OwnedBy { owner: None, epoch: 1 });
        assert_eq!(free.passed_to(Some(a)).epoch, 2);
    }
}
