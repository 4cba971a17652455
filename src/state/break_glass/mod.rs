//! The machine of one cluster's break-glass credentials and of their revocations.
//!
//! | function | question |
//! |---|---|
//! | [`decide`] | may this happen now, and what follows from it? |
//! | [`apply()`] | what is true after an event? Total, never fails |
//! | [`effects()`] | which calls does this state want, at most one per subject? |
//! | [`due_at`] | when does this state want to be looked at again? |
//!
//! Split as the pull secret's machine is: `accept` answers a command, `advance` adds what follows by itself.
//! Knows no certificate: it is told until when one is valid, and who keeps what sealed is not its matter.

mod accept;
mod advance;
mod apply;
mod bundle;
mod clock;
mod command;
mod effects;
mod event;
mod model;
mod policy;
mod retention;

pub use apply::apply;
pub use bundle::{bundle_etag, bundle_version};
pub use command::{
    Answer, CheckAnswer, CollectAnswer, Command, EndorseAnswer, EndpointSeen, MakeAnswer,
    ProbeAnswer, Rejection, RotateAnswer, SubmitAnswer, Verdict,
};
pub use effects::{Effect, due_at, effects};
pub use event::Event;
pub use model::{
    Announcement, Authority, AuthorityKind, BreakGlass, Call, Certificate, Credential,
    CredentialState, EndpointProgress, IssueStep, Revocation, RevocationScope, RevocationState,
    Signer, StateName, Subject, Surface, Word,
};
pub use policy::{ClusterRules, Policy};
pub use retention::removable_at;

use crate::state::shared::Entropy;
use crate::time::Timestamp;

/// What the machine may know besides its state.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The time now.
    pub now: Timestamp,
    /// The configured rules.
    pub policy: &'a Policy,
    /// What is configured for this cluster.
    pub rules: &'a ClusterRules,
    /// Random values, drawn by the caller.
    pub entropy: Entropy,
    /// False while the wall clock is not to be believed: nothing ends by time alone then.
    pub time_is_certain: bool,
}

/// Decides what a command does to a cluster's credentials (`None`: it never had any).
///
/// The events include all that follows by itself at this moment. No events means that the command
/// is already fulfilled.
///
/// # Errors
/// A [`Rejection`] when the command is not allowed in this state; nothing changes then.
pub fn decide(
    state: Option<&BreakGlass>,
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
