//! What a step tells the audit. Written in the same transaction as what it tells.
//!
//! Every outside call has one intent (`call_announced`) and one outcome (`call_answered`), paired by token.

use serde_json::{Value, json};

use super::log::Cause;
use super::step::Working;
use crate::ids::{AccountId, ClusterId, Generation, RegistryId, RotationId};
use crate::state::pull_secret::{Account, Event, GoneHow, PullSecret};
use crate::store::AuditRow;
use crate::time::Timestamp;

/// Who asks, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the principal, or of a part of this service.
    pub actor: String,
    /// The caller's own words (`X-Reason`).
    pub reason: Option<String>,
    /// The request.
    pub request_id: Option<String>,
    /// Its trace.
    pub trace_id: Option<String>,
}

impl Caller {
    /// A part of this service.
    #[must_use]
    pub fn service(part: &str) -> Self {
        Self::caused(part, &Cause::default())
    }

    /// A part of this service that goes on with what a request began.
    #[must_use]
    pub fn caused(part: &str, cause: &Cause) -> Self {
        Self {
            actor: format!("service:{part}"),
            reason: None,
            request_id: cause.request_id.clone(),
            trace_id: cause.trace_id.clone(),
        }
    }
}

/// The audit rows of a step.
#[must_use]
pub fn rows(
    cluster_id: &ClusterId,
    before: &Working,
    after: Option<&PullSecret>,
    events: &[Event],
    caller: &Caller,
    at: Timestamp,
) -> Vec<AuditRow> {
    let told = Told { cluster_id, before: before.record.as_ref(), after, caller, at };
    let answered = told.answered(events);
    let happened = events.iter().map(|event| told.row(event, action(event), detail(event)));
    answered.into_iter().chain(happened).collect()
}

/// What an event is called in the audit: by its own name, but for what only a person can do.
fn action(event: &Event) -> &str {
    match event {
        Event::AccountGone { how: GoneHow::Forced, .. } => "residue_given_up",
        other => other.as_ref(),
    }
}

struct Told<'a> {
    cluster_id: &'a ClusterId,
    before: Option<&'a PullSecret>,
    after: Option<&'a PullSecret>,
    caller: &'a Caller,
    at: Timestamp,
}

impl Told<'_> {
    /// The calls that were open before and are not any more.
    fn answered(&self, events: &[Event]) -> Vec<AuditRow> {
        let accounts = self.before.iter().flat_map(|record| &record.accounts);
        let ended = accounts.filter_map(|account| {
            let open = account.call?;
            let now = self.after.and_then(|record| record.account(account.id)?.call);
            if now.is_some_and(|now| now.token == open.token) {
                return None;
            }
            let event = events.iter().find(|event| event.account_id() == Some(account.id))?;
            let detail = json!({
                "call": open.call.as_ref(), "token": open.token, "outcome": event.as_ref(),
            });
            Some(self.row(event, "call_answered", detail))
        });
        ended.collect()
    }

    fn row(&self, event: &Event, action: &str, detail: Value) -> AuditRow {
        let about = About::of(event, self.before, self.after);
        AuditRow {
            stream: format!("pull-secret/{}", self.cluster_id),
            at: self.at,
            actor: self.caller.actor.clone(),
            action: action.to_owned(),
            cluster_id: Some(self.cluster_id.clone()),
            rotation_id: about.rotation_id,
            account: about.account,
            registry_id: about.registry_id,
            generation: about.generation,
            detail,
            reason: self.caller.reason.clone(),
            request_id: self.caller.request_id.clone(),
        }
    }
}

/// What an event is about.
#[derive(Default)]
pub(super) struct About {
    pub(super) rotation_id: Option<RotationId>,
    pub(super) account: Option<String>,
    pub(super) registry_id: Option<RegistryId>,
    pub(super) generation: Option<Generation>,
}

impl About {
    pub(super) fn of(
        event: &Event,
        before: Option<&PullSecret>,
        after: Option<&PullSecret>,
    ) -> Self {
        let find = |id: AccountId| -> Option<&Account> {
            after.and_then(|r| r.account(id)).or_else(|| before.and_then(|r| r.account(id)))
        };
        let account = event.account_id().and_then(find);
        let running = after.and_then(PullSecret::rotation).map(|rotation| rotation.id);
        let ended = after.and_then(|record| record.ended.last()).map(|rotation| rotation.id);
        let generation =
            event.generation().or_else(|| account.map(|account| account.born_generation));
        Self {
            rotation_id: running.or(ended),
            account: account.map(|account| account.name.to_string()),
            registry_id: account.map(|a| a.registry_id.clone()).or_else(|| refuser(event)),
            generation,
        }
    }
}

/// The registry that a whole record was refused by.
fn refuser(event: &Event) -> Option<RegistryId> {
    if let Event::IssueDenied { refusal, .. } | Event::IssueFailed { refusal, .. } = event {
        return Some(refusal.registry_id.clone());
    }
    None
}

/// What only this kind of event has to tell. Never a secret: events hold none.
pub(super) fn detail(event: &Event) -> Value {
    match event {
        Event::IssueAccepted { registries, .. } => json!({ "registries": registries }),
        Event::CallAnnounced { call, token, .. } => {
            json!({ "call": call.as_ref(), "token": token })
        }
        Event::CallFailed { call, trouble, next_attempt_at, .. }
        | Event::CallDeferred { call, trouble, next_attempt_at, .. }
        | Event::CallLost { call, trouble, next_attempt_at, .. } => json!({
            "call": call.as_ref(), "attempts": trouble.attempts, "blocked": trouble.blocked,
            "error": trouble.last_error, "next_attempt_at": next_attempt_at,
        }),
        Event::AccountCreated { adopted, .. } => json!({ "adopted": adopted }),
        Event::AccountRefused { message, .. } | Event::AccountResidue { message, .. } => {
            json!({ "message": message })
        }
        Event::AccountGone { how, .. } => json!({ "how": how.as_ref() }),
        Event::GoneUnsettled { again_at, .. } => json!({ "again_at": again_at }),
        Event::GenerationServed { deadline, on_deadline, .. } => {
            json!({ "deadline": deadline, "on_deadline": on_deadline.as_ref() })
        }
        Event::RotationRequested { rotation } | Event::RotationQueued { rotation } => json!({
            "reason": rotation.reason.as_ref(), "force_immediate": rotation.force_immediate,
            "from_generation": rotation.from, "to_generation": rotation.to, "slot": rotation.slot,
            "scope": rotation.scope,
        }),
        Event::RegistriesAdded { registries, .. } => json!({ "registries": registries }),
        Event::ScheduleChanged { schedule, .. } => json!({
            "enabled": schedule.enabled, "next_rotation_at": schedule.next_at,
            "window": schedule.window.as_ref().map(|window| json!({
                "cron": window.cron(), "length_seconds": window.length().as_secs(),
            })),
        }),
        Event::NextRotationMoved { next_rotation_at, .. } => {
            json!({ "next_rotation_at": next_rotation_at })
        }
        Event::ConsumerSeen { consumer, .. } => {
            json!({ "source": consumer.source.as_ref(), "consumer": consumer.name })
        }
        Event::RetirementDecided { why, .. } => json!({ "why": why.as_ref() }),
        Event::DeadlineMoved { deadline, .. } => json!({ "deadline": deadline }),
        Event::RemovalDecided { end, .. }
        | Event::RotationEnded { end, .. }
        | Event::WaitingEnded { end, .. } => {
            let error =
                end.error().map(|error| json!({ "code": error.code, "message": error.message }));
            json!({ "end": end.word(), "error": error })
        }
        Event::IssueDenied { refusal, .. } | Event::IssueFailed { refusal, .. } => {
            json!({ "registry_id": refusal.registry_id, "message": refusal.message })
        }
        Event::Doubted { restored_at, .. } => json!({ "restored_at": restored_at }),
        Event::Quarantined { quarantine } => json!({ "retry_at": quarantine.retry_at }),
        Event::GenerationStarted { .. }
        | Event::AccountPlanned { .. }
        | Event::NameTaken { .. }
        | Event::AccountVerified { .. }
        | Event::AccountBurnt { .. }
        | Event::DeletionDecided { .. }
        | Event::AllCreated { .. }
        | Event::AdoptionWithdrawn { .. }
        | Event::DriftSuspected { .. }
        | Event::DriftFound { .. }
        | Event::DriftCleared { .. }
        | Event::RollbackRequested { .. }
        | Event::RollbackRefused { .. }
        | Event::RevocationRequested { .. }
        | Event::Revoked { .. }
        | Event::RetryRequested { .. }
        | Event::Removed { .. }
        | Event::Released { .. } => Value::Null,
    }
}
