//! What the API servers said. The machine counts; who asks only reports.

use super::super::model::{BreakGlass, EndpointProgress, Subject};
use super::super::{Context, EndpointSeen, Event, Verdict};

/// The progress of each API server after one round of questions.
pub(super) fn seen(
    record: &BreakGlass,
    subject: Subject,
    seen: &[EndpointSeen],
    context: &Context<'_>,
) -> Option<Event> {
    let before = match subject {
        Subject::Credential(id) => record.credential(id).map(|c| &c.endpoints),
        Subject::Revocation(id) => record.revocation(id).map(|r| &r.endpoints),
        Subject::Authority(_) => None,
    }?;
    let after = |row: &EndpointProgress| {
        let said = seen.iter().find(|said| said.endpoint == row.endpoint);
        match (said, subject) {
            // Proved is proved; one that was not asked said nothing.
            _ if row.proved_at.is_some() => row.clone(),
            (None, _) => unknown(row, "was not asked"),
            (Some(said), Subject::Revocation(_)) => rejection(row, said, context),
            (Some(said), Subject::Credential(_) | Subject::Authority(_)) => {
                acceptance(row, said, context)
            }
        }
    };
    let endpoints: Vec<EndpointProgress> = before.iter().map(after).collect();
    let in_the_way = in_the_way(&endpoints).map(|error| match subject {
        Subject::Revocation(_) => unproved(&endpoints, seen, &error),
        Subject::Credential(_) | Subject::Authority(_) => error,
    });
    let trouble = match in_the_way {
        Some(message) => record.trouble_of(subject).put_off(&message, context.now),
        None => crate::state::shared::Trouble::default(),
    };
    let next_attempt_at = context.now.plus(context.policy.probe_interval);
    Some(Event::EndpointsSeen { subject, endpoints, trouble, next_attempt_at })
}

fn in_the_way(endpoints: &[EndpointProgress]) -> Option<String> {
    let error = |row: &EndpointProgress| {
        row.last_error.as_ref().map(|error| format!("{}: {error}", row.endpoint))
    };
    endpoints.iter().find_map(error)
}

/// Says whether anybody's word is there at all: who hears nothing does not know whether what is revoked works.
fn unproved(endpoints: &[EndpointProgress], seen: &[EndpointSeen], error: &str) -> String {
    let silent = |said: &EndpointSeen| matches!(said.verdict, Verdict::Unknown(_));
    let proved = endpoints.iter().filter(|row| row.proved_at.is_some()).count();
    if proved == 0 && seen.iter().all(silent) {
        return format!("cannot be verified, no API server says anything; {error}");
    }
    let (missing, all) = (endpoints.len() - proved, endpoints.len());
    format!("not confirmed by {missing} of {all} API servers; {error}")
}

/// An issuing credential has to be accepted once.
fn acceptance(
    row: &EndpointProgress,
    said: &EndpointSeen,
    context: &Context<'_>,
) -> EndpointProgress {
    let row = EndpointProgress { seen_at: Some(context.now), ..row.clone() };
    match &said.verdict {
        Verdict::Accepted => {
            EndpointProgress { proved_at: Some(context.now), last_error: None, ..row }
        }
        Verdict::Rejected => unknown(&row, "does not accept the credential yet"),
        Verdict::Unknown(message) => unknown(&row, message),
    }
}

/// A revoked one has to be rejected several times in a row, each time by a server that accepts the control:
/// a server that rejects everything proves nothing, and no answer is no rejection.
fn rejection(
    row: &EndpointProgress,
    said: &EndpointSeen,
    context: &Context<'_>,
) -> EndpointProgress {
    let row = EndpointProgress { seen_at: Some(context.now), ..row.clone() };
    match (&said.verdict, &said.control) {
        (Verdict::Rejected, Verdict::Accepted) => {
            let rejections = row.rejections.saturating_add(1);
            let proved = rejections >= context.policy.probe_successes;
            EndpointProgress {
                rejections,
                proved_at: proved.then_some(context.now),
                last_error: None,
                ..row
            }
        }
        (Verdict::Rejected, Verdict::Rejected) => unknown(&row, "rejects the control, too"),
        (Verdict::Rejected, Verdict::Unknown(message)) => {
            unknown(&row, &format!("the control: {message}"))
        }
        (Verdict::Accepted, _) => unknown(&row, "still accepts what is revoked"),
        (Verdict::Unknown(message), _) => unknown(&row, message),
    }
}

fn unknown(row: &EndpointProgress, message: &str) -> EndpointProgress {
    EndpointProgress { rejections: 0, last_error: Some(message.to_owned()), ..row.clone() }
}
