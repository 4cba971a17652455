//! Whose turn it is to rotate: how much of the fleet is at work, and who waits.
//!
//! A rotation is at work while its new accounts are made and verified, and while one of its deletions is due;
//! one that waits for a cluster, a registry's pause or another rotation takes no place. Beginning is decided in
//! the transaction that begins, one at a time for the whole fleet: whatever each replica believed before, there
//! are never more than the limit in the first two phases (a compromise aside), and none begins while those
//! and the due deletions fill it. Who waits is kept in a table, in order.

use async_trait::async_trait;

use super::StoreError;
use super::commit::Commit;
use crate::ids::ClusterId;
use crate::state::pull_secret::{PullSecret, Rotation, RotationPhase, RotationReason};
use crate::time::Timestamp;

/// Who goes first; among equals, who has waited longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TurnRank {
    /// Somebody asked for it.
    Asked,
    /// The schedule wants it.
    Scheduled,
}

impl TurnRank {
    /// The rank of a reason.
    #[must_use]
    pub const fn of(reason: RotationReason) -> Self {
        match reason {
            RotationReason::Scheduled => Self::Scheduled,
            RotationReason::Manual
            | RotationReason::Compromise
            | RotationReason::Registries
            | RotationReason::Drift => Self::Asked,
        }
    }

    /// As the databases have it.
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Asked => 0,
            Self::Scheduled => 1,
        }
    }
}

/// What a step does with a cluster's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Its rotation begins, if fewer than `max` are at work.
    Take {
        /// Its rank.
        rank: TurnRank,
        /// The limit of the fleet.
        max: u32,
    },
    /// Its rotation waits.
    Wait {
        /// Its rank.
        rank: TurnRank,
    },
}

/// Whose turn it is.
#[async_trait]
pub trait Turns {
    /// Whether this cluster's rotation could begin now. The commit has the last word.
    async fn has_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        max: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
    /// The cluster waits, from now on or as before. A call that it could not follow is forgotten.
    async fn wait_for_turn(
        &self,
        cluster_id: &ClusterId,
        rank: TurnRank,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    /// Makes as many due as may begin, in order, and answers how many. Places are kept for them until
    /// `until`; whoever has not come by then goes to the end of the line.
    async fn call_turns(
        &self,
        max: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<u64, StoreError>;
}

/// Whether a commit takes its cluster out of the line.
pub(super) fn leaves_line(commit: &Commit<'_>) -> bool {
    let pending = |rotation: &Rotation| matches!(rotation.phase, RotationPhase::Pending);
    let waited = commit.before.and_then(PullSecret::rotation).is_some_and(pending);
    match commit.turn {
        Some(Turn::Wait { .. }) => false,
        Some(Turn::Take { .. }) | None => waited,
    }
}
