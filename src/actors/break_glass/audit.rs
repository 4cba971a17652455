//! What a step tells the audit. Written in the same transaction as what it tells.
//!
//! Every call has one intent (`call_announced`) and one outcome (`call_answered`), paired by token.

use serde_json::{Value, json};

use crate::actors::audit::Caller;
use crate::ids::{ClusterId, CredentialId};
use crate::state::break_glass::{BreakGlass, Event, Subject};
use crate::store::AuditRow;
use crate::time::Timestamp;

/// The stream of a cluster's break-glass credentials.
#[must_use]
pub fn stream(cluster_id: &ClusterId) -> String {
    format!("break-glass/{cluster_id}")
}

/// The audit rows of a step: the calls that ended, then each event.
#[must_use]
pub fn rows(
    before: Option<&BreakGlass>,
    after: &BreakGlass,
    events: &[Event],
    caller: &Caller,
    at: Timestamp,
) -> Vec<AuditRow> {
    let told = Told { after, caller, at };
    let answered = told.answered(before, events);
    let happened = events.iter().map(|event| {
        let detail = with_subject(detail(event), event.subject());
        told.row(event.as_ref(), event.subject(), detail)
    });
    answered.into_iter().chain(happened).collect()
}

/// Somebody is about to be handed a kubeconfig.
#[must_use]
pub fn read(
    cluster_id: &ClusterId,
    credential: (CredentialId, &str),
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    let (id, username) = credential;
    let subject = Some(Subject::Credential(id));
    let detail = with_subject(Value::Null, subject);
    made(cluster_id, "kubeconfig_read", Some(username.to_owned()), detail, caller, at)
}

struct Told<'a> {
    after: &'a BreakGlass,
    caller: &'a Caller,
    at: Timestamp,
}

impl Told<'_> {
    /// The calls that were open before and are not any more.
    fn answered(&self, before: Option<&BreakGlass>, events: &[Event]) -> Vec<AuditRow> {
        let open = before.into_iter().flat_map(BreakGlass::calls);
        let ended = open.filter_map(|(subject, open)| {
            let now = self.after.call_of(subject);
            if now.is_some_and(|now| now.token == open.token) {
                return None;
            }
            let mut about = events.iter().filter(|event| event.subject() == Some(subject));
            // What the call led to says more than that it ended.
            let ended = about.clone().find(|event| event.outcome_of() == Some(open.call));
            let outcome = about
                .find(|event| event.outcome_of().is_none())
                .filter(|_| matches!(ended, Some(Event::CallEnded { .. })))
                .or(ended)?;
            let detail = json!({
                "call": open.call.as_ref(), "token": open.token, "outcome": outcome.as_ref(),
            });
            Some(self.row("call_answered", Some(subject), with_subject(detail, Some(subject))))
        });
        ended.collect()
    }

    fn row(&self, action: &str, subject: Option<Subject>, detail: Value) -> AuditRow {
        let account = match subject {
            Some(Subject::Credential(id)) => {
                self.after.credential(id).map(|credential| credential.username.clone())
            }
            Some(Subject::Revocation(_) | Subject::Authority(_)) | None => None,
        };
        made(&self.after.cluster_id, action, account, detail, self.caller, self.at)
    }
}

fn made(
    cluster_id: &ClusterId,
    action: &str,
    account: Option<String>,
    detail: Value,
    caller: &Caller,
    at: Timestamp,
) -> AuditRow {
    AuditRow {
        stream: stream(cluster_id),
        at,
        actor: caller.actor.clone(),
        action: action.to_owned(),
        cluster_id: Some(cluster_id.clone()),
        rotation_id: None,
        account,
        registry_id: None,
        generation: None,
        detail,
        reason: caller.reason.clone(),
        request_id: caller.request_id.clone(),
    }
}

fn with_subject(detail: Value, subject: Option<Subject>) -> Value {
    let (key, id) = match subject {
        Some(Subject::Credential(id)) => ("credential_id", id.to_string()),
        Some(Subject::Revocation(id)) => ("revocation_id", id.to_string()),
        Some(Subject::Authority(id)) => ("authority_id", id.to_string()),
        None => return detail,
    };
    let mut map = match detail {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    map.insert(key.to_owned(), Value::String(id));
    Value::Object(map)
}

/// What only this kind of event has to tell. Never a secret: events hold none.
fn detail(event: &Event) -> Value {
    match event {
        Event::CredentialRequested { credential } => json!({
            "state": credential.state.name().as_ref(), "expires_at": credential.expires_at,
            "control": credential.control, "signer": credential.signer.as_ref(),
        }),
        Event::CredentialApproved { by, .. } => json!({ "by": by }),
        Event::CredentialDenied { by, message, .. } => json!({ "by": by, "message": message }),
        Event::CredentialFailed { message, .. } => json!({ "message": message }),
        Event::CredentialRevoked { revocation_id, .. } => {
            json!({ "revocation_id": revocation_id.to_string() })
        }
        Event::CallAnnounced { call, token, .. } => {
            json!({ "call": call.as_ref(), "token": token })
        }
        Event::CallFailed { call, trouble, next_attempt_at, .. }
        | Event::CallDeferred { call, trouble, next_attempt_at, .. } => json!({
            "call": call.as_ref(), "attempts": trouble.attempts, "blocked": trouble.blocked,
            "error": trouble.last_error, "next_attempt_at": next_attempt_at,
        }),
        Event::CallEnded { call, .. } => json!({ "call": call.as_ref() }),
        Event::CertificateSigned { certificate, .. } => {
            json!({ "not_after": certificate.not_after })
        }
        Event::EndpointsSet { endpoints, .. } | Event::EndpointsSeen { endpoints, .. } => {
            json!({ "endpoints": endpoints })
        }
        Event::RevocationRequested { revocation, credentials, .. } => {
            let ids: Vec<String> = credentials.iter().map(ToString::to_string).collect();
            json!({ "scope": revocation.scope.as_ref(), "credentials": ids })
        }
        Event::RotationWatched { progress, .. } => json!({ "progress": progress }),
        Event::RotationLost { message, .. } => json!({ "message": message }),
        Event::RotationDone { cut_off, .. } => json!({ "cut_off": cut_off }),
        Event::AuthorityWanted { authority } => json!({ "kind": authority.kind.as_ref() }),
        Event::AuthorityMade { not_after, .. } => json!({ "not_after": not_after }),
        Event::BundleConfirmed { version, .. } => json!({ "version": version }),
        Event::Quarantined { quarantine } => json!({ "retry_at": quarantine.retry_at }),
        Event::Opened { .. }
        | Event::CredentialIssued { .. }
        | Event::CredentialExpired { .. }
        | Event::RequestSubmitted { .. }
        | Event::RequestEndorsed { .. }
        | Event::CertificateAwaited { .. }
        | Event::RotationBegun { .. }
        | Event::ProvingBegan { .. }
        | Event::RevocationCompleted { .. }
        | Event::AuthorityDropped { .. }
        | Event::Released { .. } => Value::Null,
    }
}
