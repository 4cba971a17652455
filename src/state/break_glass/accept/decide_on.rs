//! `Approve` and `Deny`: a second person decides, never the one who asked.

use super::super::model::{BreakGlass, Credential, CredentialState};
use super::super::{Context, Event, Rejection};
use crate::ids::CredentialId;

pub(super) fn approve(
    record: &BreakGlass,
    credential_id: CredentialId,
    by: &str,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    requested(record, credential_id, by)?;
    let (by, at) = (by.to_owned(), context.now);
    Ok(vec![Event::CredentialApproved { credential_id, by, at }])
}

pub(super) fn deny(
    record: &BreakGlass,
    credential_id: CredentialId,
    by: &str,
    reason: Option<&str>,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    requested(record, credential_id, by)?;
    let message = match reason {
        Some(reason) => format!("denied: {reason}"),
        None => "denied by a second person".to_owned(),
    };
    let (by, at) = (Some(by.to_owned()), context.now);
    Ok(vec![Event::CredentialDenied { credential_id, by, message, at }])
}

fn requested<'a>(
    record: &'a BreakGlass,
    credential_id: CredentialId,
    by: &str,
) -> Result<&'a Credential, Rejection> {
    let credential = record.credential(credential_id).ok_or(Rejection::NotFound)?;
    if credential.state != CredentialState::Requested {
        return Err(Rejection::State { state: credential.state.name() });
    }
    if credential.requested_by == by {
        return Err(Rejection::OwnRequest);
    }
    Ok(credential)
}
