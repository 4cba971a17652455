//! What is logged of steps and calls: one entry per event, with what is needed to find everything about a
//! cluster, a rotation or a request. Knows no secret: neither commands' answers nor events hold one.

use serde_json::Value;

use super::audit::{About, Caller, detail};
use super::calls::{Finished, error_of, outcome_word};
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, Command, End, Event, PullSecret, Rejection, Rotation, Trouble,
};
use crate::time::Timestamp;

/// What a call was made for, so that its end and what follows from it can be found with the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// The request.
    pub request_id: Option<String>,
    /// Its trace.
    pub trace_id: Option<String>,
    /// The rotation that was running.
    pub rotation_id: Option<RotationId>,
    /// Its phase.
    pub phase: Option<&'static str>,
}

impl Cause {
    /// Whoever asked for the step that led to this state.
    #[must_use]
    pub fn of(caller: &Caller, record: Option<&PullSecret>) -> Self {
        let rotation = record.and_then(PullSecret::rotation);
        Self {
            request_id: caller.request_id.clone(),
            trace_id: caller.trace_id.clone(),
            rotation_id: rotation.map(|rotation| rotation.id),
            phase: rotation.map(|rotation| rotation.phase.name()),
        }
    }
}

/// What is logged inside of a step or a call by others, as by a database driver or a panic, is found by the
/// same ids.
pub fn span(cluster_id: &ClusterId, cause: &Cause) -> tracing::Span {
    tracing::info_span!(
        "work",
        %cluster_id,
        rotation_id = cause.rotation_id.map(tracing::field::display),
        request_id = cause.request_id.as_deref(),
        trace_id = cause.trace_id.as_deref(),
    )
}

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loudness {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes an entry with the same fields at whatever level it has.
macro_rules! entry {
    ($loudness:expr, $($rest:tt)*) => {
        match $loudness {
            Loudness::Debug => tracing::debug!($($rest)*),
            Loudness::Info => tracing::info!($($rest)*),
            Loudness::Warn => tracing::warn!($($rest)*),
            Loudness::Error => tracing::error!($($rest)*),
        }
    };
}

/// One entry per event of a step that was committed.
pub fn events(
    cluster_id: &ClusterId,
    before: Option<&PullSecret>,
    after: Option<&PullSecret>,
    events: &[Event],
    caller: &Caller,
) {
    for event in events {
        let about = About::of(event, before, after);
        let rotation = rotation_of(after);
        let event_name = event.as_ref();
        let facts = Facts::of(event);
        let detail = if facts.is_all { Value::Null } else { detail(event) };
        let generation = about.generation.or_else(|| working_on(after));
        entry!(
            loudness(event),
            %cluster_id,
            rotation_id = about.rotation_id.map(tracing::field::display),
            registry = about.registry_id.as_ref().map(RegistryId::as_str),
            account = about.account,
            generation = generation.map(|generation| generation.0),
            phase = rotation.map(|rotation| rotation.phase.name()),
            state = after.map(|record| <&'static str>::from(record.state.name())),
            event_name,
            call = facts.call,
            call_id = facts.call_id,
            attempt = facts.attempt,
            next_attempt_at = facts.next_attempt_at.map(tracing::field::display),
            blocked = facts.blocked,
            error = facts.error,
            detail.json = %detail,
            actor = caller.actor.as_str(),
            request_id = caller.request_id.as_deref(),
            trace_id = caller.trace_id.as_deref(),
            "{}",
            event_name.replace('_', " ")
        );
    }
}

/// The rotation of a step: the running one, or the one that just ended.
fn rotation_of(after: Option<&PullSecret>) -> Option<&Rotation> {
    after.and_then(|record| record.rotation().or_else(|| record.ended.last()))
}

/// The generation that a record is busy with.
fn working_on(after: Option<&PullSecret>) -> Option<Generation> {
    let record = after?;
    let served = record.served().map(|served| served.generation);
    rotation_of(after)
        .map(|rotation| rotation.to)
        .or(served)
        .or_else(|| record.working_generation())
}

fn loudness(event: &Event) -> Loudness {
    match event {
        // Sightings and waiting are many and change nothing by themselves; a call's end is told louder.
        Event::ConsumerSeen { .. } | Event::CallDeferred { .. } | Event::CallAnnounced { .. } => {
            Loudness::Debug
        }
        Event::CallFailed { .. }
        | Event::CallLost { .. }
        | Event::NameTaken { .. }
        | Event::AccountRefused { .. }
        | Event::AccountBurnt { .. }
        | Event::AccountResidue { .. }
        | Event::DriftSuspected { .. }
        | Event::DriftFound { .. }
        | Event::Doubted { .. }
        | Event::RollbackRefused { .. }
        | Event::AdoptionWithdrawn { .. }
        | Event::IssueDenied { .. }
        | Event::IssueFailed { .. }
        | Event::RotationEnded { end: End::Failed(_), .. }
        | Event::RemovalDecided { end: End::Failed(_), .. } => Loudness::Warn,
        Event::Quarantined { .. } => Loudness::Error,
        Event::IssueAccepted { .. }
        | Event::GenerationStarted { .. }
        | Event::AccountPlanned { .. }
        | Event::AccountCreated { .. }
        | Event::AccountVerified { .. }
        | Event::DeletionDecided { .. }
        | Event::AccountGone { .. }
        | Event::GoneUnsettled { .. }
        | Event::GenerationServed { .. }
        | Event::RotationRequested { .. }
        | Event::RegistriesAdded { .. }
        | Event::RotationQueued { .. }
        | Event::WaitingEnded { .. }
        | Event::ScheduleChanged { .. }
        | Event::NextRotationMoved { .. }
        | Event::AllCreated { .. }
        | Event::RetirementDecided { .. }
        | Event::DriftCleared { .. }
        | Event::DeadlineMoved { .. }
        | Event::RollbackRequested { .. }
        | Event::RemovalDecided { .. }
        | Event::RotationEnded { .. }
        | Event::RevocationRequested { .. }
        | Event::Revoked { .. }
        | Event::RetryRequested { .. }
        | Event::Removed { .. }
        | Event::Released { .. } => Loudness::Info,
    }
}

/// What several kinds of event have to tell, as fields of their own.
#[derive(Default)]
struct Facts<'a> {
    call: Option<&'a str>,
    call_id: Option<String>,
    attempt: Option<u32>,
    next_attempt_at: Option<Timestamp>,
    blocked: Option<bool>,
    error: Option<&'a str>,
    /// There is nothing else to tell.
    is_all: bool,
}

impl<'a> Facts<'a> {
    fn of(event: &'a Event) -> Self {
        match event {
            Event::CallAnnounced { call, token, .. } => Self {
                call: Some(call.as_ref()),
                call_id: Some(token.to_string()),
                is_all: true,
                ..Self::default()
            },
            Event::CallFailed { call, trouble, next_attempt_at, .. }
            | Event::CallDeferred { call, trouble, next_attempt_at, .. }
            | Event::CallLost { call, trouble, next_attempt_at, .. } => {
                Self { call: Some(call.as_ref()), ..Self::retry(trouble, *next_attempt_at) }
            }
            Event::AccountRefused { message, .. } => Self::error(message),
            Event::AccountResidue { message, next_attempt_at, .. } => {
                Self { next_attempt_at: Some(*next_attempt_at), ..Self::error(message) }
            }
            Event::IssueDenied { refusal, .. } | Event::IssueFailed { refusal, .. } => {
                Self::error(&refusal.message)
            }
            Event::RotationEnded { end, .. } | Event::RemovalDecided { end, .. } => {
                let error = end.error().map(|error| error.message.as_str());
                Self { error, ..Self::default() }
            }
            Event::Quarantined { quarantine } => {
                Self { next_attempt_at: Some(quarantine.retry_at), is_all: true, ..Self::default() }
            }
            Event::GoneUnsettled { again_at, .. } => {
                Self { next_attempt_at: Some(*again_at), is_all: true, ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    fn error(message: &'a str) -> Self {
        Self { error: Some(message), is_all: true, ..Self::default() }
    }

    fn retry(trouble: &'a Trouble, at: Timestamp) -> Self {
        Self {
            attempt: Some(trouble.attempts),
            next_attempt_at: Some(at),
            blocked: Some(trouble.blocked),
            error: trouble.last_error.as_deref(),
            is_all: true,
            ..Self::default()
        }
    }
}

/// A command was turned down. What the service tells itself is no command of anybody's.
pub fn refused(
    cluster_id: &ClusterId,
    record: Option<&PullSecret>,
    command: &Command,
    rejection: &Rejection,
    caller: &Caller,
) {
    if matches!(
        command,
        Command::Answer { .. } | Command::Announce { .. } | Command::Defer { .. } | Command::Tick
    ) {
        return;
    }
    let rotation = rotation_of(record);
    tracing::info!(
        %cluster_id,
        rotation_id = rotation.map(|rotation| tracing::field::display(rotation.id)),
        generation = working_on(record).map(|generation| generation.0),
        phase = rotation.map(|rotation| rotation.phase.name()),
        state = record.map(|record| <&'static str>::from(record.state.name())),
        event_name = "command_refused",
        command = command.as_ref(),
        why = rejection.as_ref(),
        error = %rejection,
        actor = caller.actor.as_str(),
        request_id = caller.request_id.as_deref(),
        trace_id = caller.trace_id.as_deref(),
        "command refused"
    );
}

/// A call ended. That it began is the event `call_announced`.
pub fn call_ended(
    cluster_id: &ClusterId,
    account: &Account,
    finished: &Finished,
    took: std::time::Duration,
) {
    let cause = &finished.cause;
    tracing::info!(
        %cluster_id,
        rotation_id = cause.rotation_id.map(tracing::field::display),
        registry = account.registry_id.as_str(),
        account = account.name.as_str(),
        generation = account.born_generation.0,
        phase = cause.phase,
        event_name = "call_ended",
        call = finished.answer.call().as_ref(),
        call_id = %finished.token,
        outcome = outcome_word(&finished.answer),
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        error = error_of(&finished.answer),
        request_id = cause.request_id.as_deref(),
        trace_id = cause.trace_id.as_deref(),
        "call ended"
    );
}

/// An outcome came after its call had been given up.
pub fn late_outcome(cluster_id: &ClusterId, finished: &Finished) {
    let cause = &finished.cause;
    tracing::warn!(
        %cluster_id,
        rotation_id = cause.rotation_id.map(tracing::field::display),
        event_name = "late_outcome",
        call = finished.answer.call().as_ref(),
        call_id = %finished.token,
        outcome = outcome_word(&finished.answer),
        request_id = cause.request_id.as_deref(),
        trace_id = cause.trace_id.as_deref(),
        "a late outcome was dropped"
    );
}
