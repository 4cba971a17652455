//! What is logged of break-glass: an entry per event and per call, found by the cluster, the credential or
//! revocation, and the request. Knows no secret: events and answers hold none.

use super::calls::Finished;
use crate::actors::audit::Caller;
use crate::actors::log::Cause;
use crate::ids::ClusterId;
use crate::state::break_glass::{Answer, BreakGlass, Command, Event, Rejection, Subject};

/// The events of a step that was committed.
pub(super) fn events(
    cluster_id: &ClusterId,
    before: Option<&BreakGlass>,
    after: &BreakGlass,
    events: &[Event],
    caller: &Caller,
) {
    for event in events {
        let (event_name, id) = (event.as_ref(), event.subject().map(id_of));
        let (id, actor) = (id.as_deref(), caller.actor.as_str());
        let username = event.subject().and_then(|subject| username(before, after, subject));
        let (request_id, trace_id) = (caller.request_id.as_deref(), caller.trace_id.as_deref());
        let text = "break-glass";
        match loudness(event) {
            Loudness::Debug => {
                tracing::debug!(event_name, %cluster_id, id, username, actor, request_id, trace_id, "{text}");
            }
            Loudness::Info => {
                tracing::info!(event_name, %cluster_id, id, username, actor, request_id, trace_id, "{text}");
            }
            Loudness::Warn => {
                let error = error_in(event);
                tracing::warn!(event_name, %cluster_id, id, username, actor, error, request_id, trace_id, "{text}");
            }
            Loudness::Error => {
                tracing::error!(event_name, %cluster_id, id, username, actor, request_id, trace_id, "{text}");
            }
        }
    }
}

fn username<'a>(
    before: Option<&'a BreakGlass>,
    after: &'a BreakGlass,
    subject: Subject,
) -> Option<&'a str> {
    match subject {
        Subject::Credential(id) => {
            let known = after.credential(id).or_else(|| before?.credential(id));
            known.map(|credential| credential.username.as_str())
        }
        Subject::Revocation(_) | Subject::Authority(_) => None,
    }
}

/// The machine said no.
pub(super) fn refused(
    cluster_id: &ClusterId,
    command: &Command,
    rejection: &Rejection,
    caller: &Caller,
) {
    let (request_id, trace_id) = (caller.request_id.as_deref(), caller.trace_id.as_deref());
    tracing::debug!(
        %cluster_id,
        command = command.as_ref(),
        %rejection,
        actor = caller.actor,
        request_id,
        trace_id,
        "refused"
    );
}

/// An outcome came after its call had been given up.
pub(super) fn late(cluster_id: &ClusterId, finished: &Finished) {
    let Cause { request_id, trace_id, .. } = &finished.cause;
    tracing::warn!(
        event_name = "late_outcome",
        %cluster_id,
        id = id_of(finished.subject),
        call = finished.answer.call().as_ref(),
        call_id = %finished.token,
        request_id,
        trace_id,
        "a late outcome was dropped"
    );
}

/// A call that ended.
pub(super) fn call(cluster_id: &ClusterId, finished: &Finished) {
    let (id, call) = (id_of(finished.subject), finished.answer.call());
    let duration_ms = u64::try_from(finished.took.as_millis()).unwrap_or(u64::MAX);
    let (call, call_id) = (call.as_ref(), finished.token);
    let Cause { request_id, trace_id, .. } = &finished.cause;
    match error_of(&finished.answer) {
        None => {
            tracing::debug!(%cluster_id, id, call, %call_id, duration_ms, request_id, trace_id, "call ended");
        }
        Some(error) => {
            tracing::warn!(%cluster_id, id, call, %call_id, duration_ms, error, request_id, trace_id, "call ended");
        }
    }
}

fn id_of(subject: Subject) -> String {
    match subject {
        Subject::Credential(id) => id.to_string(),
        Subject::Revocation(id) => id.to_string(),
        Subject::Authority(id) => id.to_string(),
    }
}

pub(super) fn error_of(answer: &Answer) -> Option<&str> {
    use crate::state::break_glass::{
        CheckAnswer, CollectAnswer, EndorseAnswer, MakeAnswer, ProbeAnswer, RotateAnswer,
        SubmitAnswer,
    };
    match answer {
        Answer::Submit(SubmitAnswer::Failed(failure))
        | Answer::Endorse(EndorseAnswer::Failed(failure))
        | Answer::Collect(CollectAnswer::Failed(failure))
        | Answer::Probe(ProbeAnswer::Failed(failure))
        | Answer::Rotate(RotateAnswer::Failed(failure))
        | Answer::Check(CheckAnswer::Failed(failure))
        | Answer::Make(MakeAnswer::Failed(failure)) => Some(&failure.message),
        Answer::Submit(SubmitAnswer::Refused(message) | SubmitAnswer::Broken(message))
        | Answer::Endorse(EndorseAnswer::Refused(message))
        | Answer::Collect(CollectAnswer::Refused(message) | CollectAnswer::Broken(message))
        | Answer::Rotate(RotateAnswer::Lost(message))
        | Answer::Check(CheckAnswer::Lost(message)) => Some(message),
        Answer::Submit(SubmitAnswer::Submitted | SubmitAnswer::Signed { .. })
        | Answer::Endorse(EndorseAnswer::Endorsed)
        | Answer::Collect(CollectAnswer::Signed { .. } | CollectAnswer::Pending)
        | Answer::Probe(ProbeAnswer::Seen(_))
        | Answer::Rotate(RotateAnswer::Begun)
        | Answer::Check(CheckAnswer::Running { .. } | CheckAnswer::Done { .. })
        | Answer::Make(MakeAnswer::Made { .. }) => None,
    }
}

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loudness {
    Debug,
    Info,
    Warn,
    Error,
}

/// What comes again and again while something is waited for is for whoever looks closely.
const fn loudness(event: &Event) -> Loudness {
    match event {
        Event::CallAnnounced { .. }
        | Event::CallEnded { .. }
        | Event::CertificateAwaited { .. }
        | Event::EndpointsSet { .. }
        | Event::EndpointsSeen { .. }
        | Event::RotationWatched { .. } => Loudness::Debug,
        Event::CredentialDenied { .. }
        | Event::CredentialFailed { .. }
        | Event::CallFailed { .. }
        | Event::CallDeferred { .. }
        | Event::RotationLost { .. } => Loudness::Warn,
        Event::Quarantined { .. } => Loudness::Error,
        Event::Opened { .. }
        | Event::CredentialRequested { .. }
        | Event::CredentialApproved { .. }
        | Event::CredentialIssued { .. }
        | Event::CredentialExpired { .. }
        | Event::CredentialRevoked { .. }
        | Event::RequestSubmitted { .. }
        | Event::RequestEndorsed { .. }
        | Event::CertificateSigned { .. }
        | Event::RevocationRequested { .. }
        | Event::RotationBegun { .. }
        | Event::RotationDone { .. }
        | Event::ProvingBegan { .. }
        | Event::RevocationCompleted { .. }
        | Event::AuthorityWanted { .. }
        | Event::AuthorityMade { .. }
        | Event::AuthorityDropped { .. }
        | Event::BundleConfirmed { .. }
        | Event::Released { .. } => Loudness::Info,
    }
}

fn error_in(event: &Event) -> Option<&str> {
    match event {
        Event::CredentialDenied { message, .. }
        | Event::CredentialFailed { message, .. }
        | Event::RotationLost { message, .. } => Some(message),
        Event::CallFailed { trouble, .. } | Event::CallDeferred { trouble, .. } => {
            trouble.last_error.as_deref()
        }
        _ => None,
    }
}
