//! The machine of one cluster's pull secret and its rotations.
//!
//! | function | question |
//! |---|---|
//! | [`decide`] | may this happen now, and what follows from it? |
//! | [`apply()`] | what is true after an event? Total, never fails |
//! | [`effects()`] | which outside calls does this state want, at most one per account? |
//! | [`due_at`] | when does this state want to be looked at again? |
//!
//! `decide` has two halves. `accept` answers a command; one file per verb. `advance` adds what follows
//! from the state by itself (everything verified, so it is served; everything gone, so it is revoked).
//! Because `advance` looks at nothing but the state and the time, a restart needs no path of its own.

mod accept;
mod adoption;
mod advance;
mod apply;
mod clock;
mod command;
mod effects;
mod event;
mod model;
mod policy;
mod wanted;

pub use super::shared::{Entropy, cluster_hash};
pub use adoption::{Adoption, Verdict};
pub use apply::apply;
pub use command::{
    Answer, Change, Command, CreateAnswer, Evidence, EvidenceSubject, Failure, LookupAnswer,
    Ownership, Rejection, RevokeAnswer, ScheduleChange, VerifyAnswer,
};
pub use effects::{Effect, due_at, effects};
pub use event::Event;
pub use model::{
    Account, AccountPhase, Announcement, Call, Consumer, End, EvidenceSource, GoneHow, Pause,
    PullSecret, Quarantine, RecordState, Refusal, RetireReason, Rotation, RotationError,
    RotationPhase, RotationReason, RotationStatus, Schedule, Scope, Served, Slot, StateName,
    Trouble,
};
pub use policy::{Backoff, OnDeadline, Policy, RegistryPolicy};

use crate::ids::Generation;
use crate::time::Timestamp;

/// What the machine may know besides its state.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The time now.
    pub now: Timestamp,
    /// The configured rules.
    pub policy: &'a Policy,
    /// Random values, drawn by the caller.
    pub entropy: Entropy,
    /// The cluster's generation counter, which outlives the record.
    pub last_generation: Generation,
    /// Whether the fleet's limits let a rotation begin now.
    pub may_start: bool,
    /// When the database was last found to be older than what it has done.
    pub restored_at: Option<Timestamp>,
    /// Whether the wall clock may be believed. While it may not, nothing is deleted or removed because time
    /// has passed.
    pub time_is_trusted: bool,
}

/// Decides what a command does to a cluster's pull secret (`None`: there is no record).
///
/// The events include all that follows by itself at this moment. No events means that the command
/// is already fulfilled.
///
/// # Errors
/// A [`Rejection`] when the command is not allowed in this state; nothing changes then.
pub fn decide(
    state: Option<&PullSecret>,
    command: &Command,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let mut context = context.clone();
    let mut events = accept::accept(state, command, &mut context)?;
    let mut current = events.iter().fold(state.cloned(), apply);
    while let Some(record) = current.as_ref() {
        let Some(event) = advance::advance(record, &mut context) else { break };
        current = apply(current, &event);
        events.push(event);
    }
    Ok(events)
}

#[cfg(test)]
mod tests;
