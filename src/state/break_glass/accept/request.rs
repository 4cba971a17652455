//! `Request`: somebody wants a credential.

use super::super::model::{BreakGlass, Credential, CredentialState};
use super::super::{Command, Context, Event, Rejection};
use super::opened;

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
    let mut credential = Credential {
        username,
        reason: reason.clone(),
        signing_request: signing_request.clone(),
        expires_at: *expires_at,
        ..Credential::new(*credential_id, context.rules.signer, by, context.now)
    };
    if context.policy.approval_required {
        credential.state = CredentialState::Requested;
        credential.accepted_at = None;
        credential.message = "waits for a second person to approve it".to_owned();
    }
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
        Some(limit) if record.live().filter(|c| !c.control).count() >= limit => {
            Err(Rejection::TooMany { limit })
        }
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
