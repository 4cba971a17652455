//! `Request`: somebody wants a credential.

use super::super::model::{BreakGlass, Credential, CredentialState};
use super::super::{Command, Context, Event, Rejection};
use super::opened;
use crate::state::shared::Trouble;

const RANDOM_LENGTH: usize = 10;

pub(super) fn request(
    state: Option<&BreakGlass>,
    command: &Command,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let Command::Request {
        cluster_id,
        credential_id,
        username,
        expires_at,
        signing_request,
        by,
        reason,
    } = command
    else {
        return Ok(Vec::new());
    };
    if let Some(record) = state {
        may_request(record, username.as_deref(), context)?;
    }
    let username = username.clone().unwrap_or_else(|| free_name(state, context));
    let (now, required) = (context.now, context.policy.approval_required);
    let credential = Credential {
        id: *credential_id,
        username,
        signer: context.rules.signer,
        state: if required { CredentialState::Requested } else { CredentialState::Accepted },
        state_since: now,
        message: if required {
            "waits for a second person to approve it".into()
        } else {
            String::new()
        },
        requested_by: by.clone(),
        reason: reason.clone(),
        decided_by: None,
        signing_request: signing_request.clone(),
        expires_at: *expires_at,
        certificate: None,
        endpoints: Vec::new(),
        call: None,
        trouble: Trouble::default(),
        next_attempt_at: now,
        created_at: Some(now),
        accepted_at: (!required).then_some(now),
        issued_at: None,
        revoked_at: None,
    };
    let requested = Event::CredentialRequested { credential: Box::new(credential) };
    Ok(opened(state, cluster_id, context).into_iter().chain([requested]).collect())
}

/// Nothing is issued during a revocation, so that none is signed by a dying signer.
fn may_request(
    record: &BreakGlass,
    username: Option<&str>,
    context: &Context<'_>,
) -> Result<(), Rejection> {
    if let Some(revocation) = record.fence() {
        return Err(Rejection::BeingRevoked { revocation_id: revocation.id });
    }
    if username.is_some_and(|username| is_taken(record, username)) {
        return Err(Rejection::UsernameTaken);
    }
    match context.rules.signer.most_live() {
        Some(limit) if record.live().count() >= limit => Err(Rejection::TooMany { limit }),
        Some(_) | None => Ok(()),
    }
}

fn is_taken(record: &BreakGlass, username: &str) -> bool {
    record.live().any(|credential| credential.username == username)
}

fn free_name(state: Option<&BreakGlass>, context: &mut Context<'_>) -> String {
    loop {
        let name = format!("admin-{}", context.entropy.letters(RANDOM_LENGTH));
        if !state.is_some_and(|record| is_taken(record, &name)) {
            return name;
        }
    }
}
