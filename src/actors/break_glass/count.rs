//! What a committed step adds to the metrics. Controls are the service's own and are not counted.

use crate::state::break_glass::{BreakGlass, Credential, Event, StateName};
use crate::telemetry::Metrics;

/// Counts the events that led from one state to the other.
pub(super) fn events(
    metrics: &Metrics,
    before: Option<&BreakGlass>,
    after: &BreakGlass,
    events: &[Event],
) {
    let find = |id| {
        let known = after.credential(id).or_else(|| before?.credential(id));
        known.filter(|credential| !credential.control)
    };
    for event in events {
        let (credential, end) = match event {
            Event::CredentialIssued { credential_id, at, .. } => {
                if let Some(credential) = find(*credential_id) {
                    metrics.break_glass_ended("issued");
                    metrics.break_glass_issued(at.since(asked_at(credential)));
                }
                continue;
            }
            Event::RevocationCompleted { revocation_id, at } => {
                if let Some(revocation) = after.revocation(*revocation_id) {
                    let scope = revocation.scope.into();
                    metrics.break_glass_revoked(scope, at.since(revocation.created_at));
                }
                continue;
            }
            Event::CredentialDenied { credential_id, .. } => {
                (find(*credential_id), StateName::Denied)
            }
            Event::CredentialFailed { credential_id, .. } => {
                (find(*credential_id), StateName::Failed)
            }
            Event::CredentialExpired { credential_id, .. } => {
                (find(*credential_id), StateName::Expired)
            }
            Event::CredentialRevoked { credential_id, .. } => {
                (find(*credential_id), StateName::Revoked)
            }
            _ => continue,
        };
        if credential.is_some() {
            metrics.break_glass_ended(end.into());
        }
    }
}

/// The wait for a person is not the service's.
fn asked_at(credential: &Credential) -> crate::time::Timestamp {
    credential.accepted_at.or(credential.created_at).unwrap_or(credential.state_since)
}
