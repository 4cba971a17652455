//! `RevokeAll` and `RevokeOne`.

use super::super::model::{
    BreakGlass, Credential, CredentialState, Revocation, RevocationScope, RevocationState,
};
use super::super::{Context, Event, Rejection};
use super::opened;
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::state::shared::Trouble;

/// Who asks for what.
pub(super) struct Asked<'a> {
    pub id: RevocationId,
    pub by: &'a str,
    pub reason: Option<&'a str>,
}

/// A revocation of all is made even when nothing is listed: one may be in flight. A second one joins it.
pub(super) fn all(
    state: Option<&BreakGlass>,
    cluster_id: &ClusterId,
    asked: &Asked<'_>,
    context: &Context<'_>,
) -> Vec<Event> {
    if state.is_some_and(|record| record.fence().is_some()) {
        return Vec::new();
    }
    let live = state.into_iter().flat_map(BreakGlass::live);
    // What has come to its end, noted or not, stays expired.
    let credentials = live.filter(|c| !is_over(c, context)).map(|c| c.id).collect();
    let running = state.into_iter().flat_map(|record| &record.revocations);
    let supersedes = running.filter(|revocation| revocation.is_running()).map(|r| r.id).collect();
    let requested = Event::RevocationRequested {
        revocation: Box::new(revocation(asked, RevocationScope::All, context)),
        credentials,
        supersedes,
    };
    opened(state, cluster_id, context).into_iter().chain([requested]).collect()
}

pub(super) fn one(
    state: Option<&BreakGlass>,
    credential_id: CredentialId,
    asked: &Asked<'_>,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let credential = state.and_then(|record| record.credential(credential_id));
    let signer = credential.map_or(context.rules.signer, |credential| credential.signer);
    if !signer.revokes_one() {
        return Err(Rejection::CannotRevokeOne);
    }
    let credential = credential.ok_or(Rejection::NotFound)?;
    match credential.state {
        CredentialState::Requested
        | CredentialState::Accepted
        | CredentialState::Issuing { .. }
        | CredentialState::Active => {}
        // It is being, or has been, done; or there is nothing left to revoke.
        CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => return Ok(Vec::new()),
    }
    if is_over(credential, context) {
        return Ok(Vec::new());
    }
    let mut revocation = revocation(asked, RevocationScope::One, context);
    revocation.signer = signer;
    Ok(vec![Event::RevocationRequested {
        revocation: Box::new(revocation),
        credentials: vec![credential_id],
        supersedes: Vec::new(),
    }])
}

fn is_over(credential: &Credential, context: &Context<'_>) -> bool {
    let over = credential.expires_at <= context.now && context.time_is_certain;
    over && credential.state == CredentialState::Active
}

fn revocation(asked: &Asked<'_>, scope: RevocationScope, context: &Context<'_>) -> Revocation {
    let now = context.now;
    Revocation {
        id: asked.id,
        scope,
        state: RevocationState::Pending,
        state_since: now,
        signer: context.rules.signer,
        attempt: 1,
        progress: None,
        cut_off: None,
        bundle_version: 0,
        endpoints: Vec::new(),
        call: None,
        trouble: Trouble::default(),
        next_attempt_at: now,
        requested_by: asked.by.to_owned(),
        reason: asked.reason.map(str::to_owned),
        created_at: now,
        ended_at: None,
    }
}
