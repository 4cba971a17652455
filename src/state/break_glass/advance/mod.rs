//! What follows by itself: from the state, the time and the configuration, one event at a time.
//!
//! Level-triggered: each rule asks "is this so and not yet done?", never "what just happened?". A rule's
//! event makes the rule false, so the loop in `decide` ends.

mod revocation;

use super::accept::answer::outcome;
use super::bundle::bundle_etag;
use super::effects::all_proved;
use super::model::{
    Authority, AuthorityKind, BreakGlass, Credential, CredentialState, EndpointProgress, IssueStep,
    Signer, Subject,
};
use super::policy::{ClusterRules, Policy};
use super::{Answer, Context, Event};
use crate::ids::AuthorityId;
use crate::state::shared::Trouble;
use crate::time::Timestamp;

pub(super) use revocation::proving;

pub(super) fn advance(record: &BreakGlass, context: &mut Context<'_>) -> Option<Event> {
    match record.quarantine {
        Some(quarantine) if quarantine.retry_at > context.now => return None,
        // The pause is over: one new try. Another row of panics puts it back.
        Some(_) => return Some(Event::Released { at: context.now }),
        None => {}
    }
    lost_call(record, context)
        .or_else(|| authorities(record, context))
        .or_else(|| record.credentials.iter().find_map(|c| credential(record, c, context)))
        .or_else(|| record.revocations.iter().find_map(|r| revocation::step(record, r, context)))
}

/// A call that has been running for too long will not be answered any more.
fn lost_call(record: &BreakGlass, context: &mut Context<'_>) -> Option<Event> {
    let lost_after = context.policy.call_lost_after();
    let (subject, running) =
        record.calls().find(|(_, running)| running.at.plus(lost_after) <= context.now)?;
    let answer = Answer::lost(running.call, "the call was not answered in time");
    outcome(record, subject, running, &answer, context).into_iter().next()
}

fn authorities(record: &BreakGlass, context: &mut Context<'_>) -> Option<Event> {
    let at = context.now;
    let over = |authority: &&Authority| authority.drops_at().is_some_and(|end| end <= at);
    if let Some(authority) =
        record.authorities.iter().find(over).filter(|_| context.time_is_certain)
    {
        return Some(Event::AuthorityDropped { authority_id: authority.id, at });
    }
    if record.control_due_at(context.rules).is_some_and(|due| due <= at) {
        return Some(wanted(AuthorityKind::Control, context));
    }
    // What was published once must not become empty: an API server may not start with an empty file.
    let is = |kind| move |authority: &Authority| authority.kind == kind && !authority.dropped;
    let placeholder = record.authorities.iter().any(is(AuthorityKind::Placeholder));
    (record.bundle_version > 0 && record.trusted().is_empty() && !placeholder)
        .then(|| wanted(AuthorityKind::Placeholder, context))
}

pub(super) fn wanted(kind: AuthorityKind, context: &mut Context<'_>) -> Event {
    let authority = Authority {
        id: AuthorityId(context.entropy.uuid(context.now)),
        kind,
        made_at: None,
        not_after: None,
        dropped: false,
        call: None,
        trouble: Trouble::default(),
        // At once, even when the clock goes back meanwhile.
        next_attempt_at: Timestamp::EPOCH,
    };
    Event::AuthorityWanted { authority: Box::new(authority) }
}

impl BreakGlass {
    /// When a new control is due: as long as a credential of the embedded signer may have to be asked about,
    /// there is one that is not older than a day.
    pub(super) fn control_due_at(&self, rules: &ClusterRules) -> Option<Timestamp> {
        let asked_about = |credential: &Credential| {
            credential.signer == Signer::LocalCa && credential.state != CredentialState::Requested
        };
        if rules.endpoints.is_empty() || !self.live().any(asked_about) {
            return None;
        }
        let controls = || {
            let own = self.authorities.iter().filter(|a| a.kind == AuthorityKind::Control);
            own.filter(|authority| !authority.dropped)
        };
        if controls().any(|authority| authority.made_at.is_none()) {
            return None;
        }
        let newest = controls().filter_map(|authority| authority.made_at).max();
        Some(newest.map_or(Timestamp::EPOCH, |at| at.plus(Policy::CONTROL_RENEWAL)))
    }
}

fn credential(
    record: &BreakGlass,
    credential: &Credential,
    context: &Context<'_>,
) -> Option<Event> {
    let (credential_id, at) = (credential.id, context.now);
    let over = credential.ends_at(context.policy).is_some_and(|end| end <= at);
    let over = over && context.time_is_certain;
    match credential.state {
        // A request that nobody decided about in time is as good as one that ran out.
        CredentialState::Requested | CredentialState::Active => {
            over.then_some(Event::CredentialExpired { credential_id, at })
        }
        CredentialState::Accepted | CredentialState::Issuing { .. } if over => {
            let why = credential.trouble.last_error.as_deref();
            let message = match why {
                Some(why) => format!("not issued in time: {why}"),
                None => "not issued in time".to_owned(),
            };
            Some(Event::CredentialFailed { credential_id, message, at })
        }
        CredentialState::Issuing { step: IssueStep::Probing } => {
            probing(record, credential, context)
        }
        CredentialState::Accepted
        | CredentialState::Issuing { .. }
        | CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => None,
    }
}

/// Signed: it is issued when every API server that can be asked accepts it.
fn probing(record: &BreakGlass, credential: &Credential, context: &Context<'_>) -> Option<Event> {
    let configured: &[String] =
        if credential.can_be_probed() { &context.rules.endpoints } else { &[] };
    let subject = Subject::Credential(credential.id);
    if let Some(endpoints) = changed(&credential.endpoints, configured) {
        return Some(Event::EndpointsSet { subject, endpoints });
    }
    let blind = credential.endpoints.is_empty() && credential.signer == Signer::LocalCa;
    let message = if blind {
        let etag = bundle_etag(&record.cluster_id, record.bundle_version);
        format!("works once the API servers have loaded trust bundle {etag}")
    } else {
        String::new()
    };
    let (credential_id, at) = (credential.id, context.now);
    all_proved(&credential.endpoints).then_some(Event::CredentialIssued {
        credential_id,
        message,
        at,
    })
}

/// The rows for the configured API servers, where they are not those that there are. What is known of one
/// that stays is kept.
fn changed(rows: &[EndpointProgress], configured: &[String]) -> Option<Vec<EndpointProgress>> {
    let same = rows.iter().map(|row| &row.endpoint).eq(configured);
    let row = |endpoint: &String| {
        let known = rows.iter().find(|row| row.endpoint == *endpoint).cloned();
        known.unwrap_or_else(|| EndpointProgress::new(endpoint.clone()))
    };
    (!same).then(|| configured.iter().map(row).collect())
}
