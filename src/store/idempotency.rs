//! Requests that may be repeated: the first answer is stored with the command, a repetition gets it again.
//!
//! Only keyed hashes come in here; neither a key nor a body is ever stored.

use std::time::Duration;

use uuid::Uuid;

use crate::time::Timestamp;

/// A repeated request gets its first answer for so long.
pub const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Which request it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// Keyed hash of the key and the path.
    pub key_hash: Vec<u8>,
    /// Keyed hash of the caller.
    pub caller_hash: Vec<u8>,
}

/// A request that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyStart {
    /// Which.
    pub key: IdempotencyKey,
    /// Keyed hash of its body.
    pub body_hash: Vec<u8>,
    /// This attempt; only it may store the answer.
    pub holder: Uuid,
    /// Now.
    pub now: Timestamp,
    /// "Running" is a lease: from then on another attempt may take over.
    pub lease_until: Timestamp,
}

/// What the store knows of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyState {
    /// It is new, or its runner is dead: go on.
    Begun,
    /// Another attempt is at it.
    Running,
    /// It was answered: render the resource as it is now.
    Answered {
        /// The first status.
        status: u16,
        /// The first location.
        location: Option<String>,
        /// What to render.
        resource_id: Option<String>,
    },
    /// The same key came with another body.
    OtherBody,
}

/// The answer of a request, committed with its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyAnswer {
    /// Which request.
    pub key: IdempotencyKey,
    /// The attempt that began it.
    pub holder: Uuid,
    /// The status.
    pub status: u16,
    /// The location.
    pub location: Option<String>,
    /// What to render in a repetition.
    pub resource_id: Option<String>,
}

/// A request as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredRequest {
    pub body_hash: Vec<u8>,
    pub holder: Uuid,
    pub lease_until: Timestamp,
    pub created_at: Timestamp,
    pub answer: Option<(u16, Option<String>, Option<String>)>,
}

impl StoredRequest {
    pub(super) fn begun(start: &IdempotencyStart) -> Self {
        Self {
            body_hash: start.body_hash.clone(),
            holder: start.holder,
            lease_until: start.lease_until,
            created_at: start.now,
            answer: None,
        }
    }

    /// What a request is told that finds this one.
    pub(super) fn meets(&self, start: &IdempotencyStart) -> IdempotencyState {
        if self.created_at.plus(REMEMBERED) <= start.now {
            // Too old to mean anything; it only was not removed yet.
            return IdempotencyState::Begun;
        }
        if self.body_hash != start.body_hash {
            return IdempotencyState::OtherBody;
        }
        match &self.answer {
            Some((status, location, resource_id)) => IdempotencyState::Answered {
                status: *status,
                location: location.clone(),
                resource_id: resource_id.clone(),
            },
            None if self.holder != start.holder && self.lease_until > start.now => {
                IdempotencyState::Running
            }
            None => IdempotencyState::Begun,
        }
    }
}
