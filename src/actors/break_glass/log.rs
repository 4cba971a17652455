//! What is logged of break-glass: an entry per event and per call. Knows no secret: events and answers hold none.

use std::time::Duration;

use super::calls::Finished;
use crate::actors::audit::Caller;
use crate::ids::ClusterId;
use crate::state::break_glass::{Answer, Event, Subject};

/// The events of a step that was committed.
pub(super) fn events(cluster_id: &ClusterId, events: &[Event], caller: &Caller) {
    for event in events {
        let (event_name, id) = (event.as_ref(), event.subject().map(id_of));
        let (id, actor) = (id.as_deref(), caller.actor.as_str());
        let (request_id, trace_id) = (caller.request_id.as_deref(), caller.trace_id.as_deref());
        if is_routine(event) {
            tracing::debug!(event_name, %cluster_id, id, actor, request_id, trace_id, "break-glass");
        } else {
            tracing::info!(event_name, %cluster_id, id, actor, request_id, trace_id, "break-glass");
        }
    }
}

/// A call that ended.
pub(super) fn call(cluster_id: &ClusterId, finished: &Finished, took: Duration) {
    let (id, call) = (id_of(finished.subject), finished.answer.call());
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let call = call.as_ref();
    match error_of(&finished.answer) {
        None => tracing::debug!(%cluster_id, id, call, duration_ms, "break-glass call"),
        Some(error) => {
            tracing::warn!(%cluster_id, id, call, duration_ms, error, "break-glass call failed");
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

fn error_of(answer: &Answer) -> Option<&str> {
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

/// What comes again and again while something is waited for.
const fn is_routine(event: &Event) -> bool {
    match event {
        Event::CallAnnounced { .. }
        | Event::CallEnded { .. }
        | Event::CertificateAwaited { .. }
        | Event::EndpointsSet { .. }
        | Event::EndpointsSeen { .. }
        | Event::RotationWatched { .. } => true,
        Event::Opened { .. }
        | Event::CredentialRequested { .. }
        | Event::CredentialApproved { .. }
        | Event::CredentialDenied { .. }
        | Event::CredentialFailed { .. }
        | Event::CredentialIssued { .. }
        | Event::CredentialExpired { .. }
        | Event::CredentialRevoked { .. }
        | Event::CallFailed { .. }
        | Event::CallDeferred { .. }
        | Event::RequestSubmitted { .. }
        | Event::RequestEndorsed { .. }
        | Event::CertificateSigned { .. }
        | Event::RevocationRequested { .. }
        | Event::RotationBegun { .. }
        | Event::RotationLost { .. }
        | Event::RotationDone { .. }
        | Event::ProvingBegan { .. }
        | Event::RevocationCompleted { .. }
        | Event::AuthorityWanted { .. }
        | Event::AuthorityMade { .. }
        | Event::AuthorityDropped { .. }
        | Event::BundleConfirmed { .. }
        | Event::Quarantined { .. }
        | Event::Released { .. } => false,
    }
}
