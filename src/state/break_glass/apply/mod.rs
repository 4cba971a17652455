//! What is true after an event. Total: an event is a fact and is never refused. What it means for one
//! credential is in `credential`, for one revocation in `revocation`.

mod credential;
mod revocation;

use super::Event;
use super::model::{Announcement, Authority, BreakGlass, Credential, Revocation, Subject};
use crate::ids::{AuthorityId, CredentialId, RevocationId};
use crate::state::shared::Trouble;
use crate::time::Timestamp;

/// The state after the event; `None` when the cluster never had to do with break-glass.
#[must_use]
pub fn apply(state: Option<BreakGlass>, event: &Event) -> Option<BreakGlass> {
    if let Event::Opened { cluster_id, at } = event {
        return state.or_else(|| Some(BreakGlass::new(cluster_id.clone(), *at)));
    }
    let mut record = state?;
    let before = record.trusted();
    record.record_event(event);
    if record.trusted() != before {
        record.bundle_version = record.bundle_version.saturating_add(1);
    }
    if let Event::RevocationRequested { revocation, .. } = event {
        let version = record.bundle_version;
        record.change_revocation(revocation.id, |revocation| revocation.bundle_version = version);
    }
    Some(record)
}

impl BreakGlass {
    fn record_event(&mut self, event: &Event) {
        match event {
            Event::Opened { .. } => {}
            Event::CredentialRequested { credential } => {
                self.credentials.push(Credential::clone(credential));
            }
            Event::CredentialApproved { credential_id, .. }
            | Event::CredentialDenied { credential_id, .. }
            | Event::CredentialFailed { credential_id, .. }
            | Event::CredentialIssued { credential_id, .. }
            | Event::CredentialExpired { credential_id, .. }
            | Event::CredentialRevoked { credential_id, .. }
            | Event::RequestSubmitted { credential_id, .. }
            | Event::RequestEndorsed { credential_id, .. }
            | Event::CertificateAwaited { credential_id, .. }
            | Event::CertificateSigned { credential_id, .. } => {
                self.change_credential(*credential_id, |credential| credential.record_event(event));
            }
            Event::CallAnnounced { subject, .. }
            | Event::CallFailed { subject, .. }
            | Event::CallDeferred { subject, .. }
            | Event::CallEnded { subject, .. } => self.record_call(*subject, event),
            Event::EndpointsSet { subject, .. } | Event::EndpointsSeen { subject, .. } => {
                match subject {
                    Subject::Credential(id) => {
                        self.change_credential(*id, |c| c.record_event(event))
                    }
                    Subject::Revocation(id) => {
                        self.change_revocation(*id, |r| r.record_event(event));
                        self.tell_revoked(*id, event);
                    }
                    Subject::Authority(_) => {}
                }
            }
            Event::RevocationRequested { revocation, credentials, supersedes } => {
                self.revocation_requested(revocation, credentials, supersedes);
            }
            Event::RotationBegun { revocation_id, at } => {
                self.change_revocation(*revocation_id, |revocation| revocation.record_event(event));
                self.revoking_began(*revocation_id, "", *at);
            }
            Event::ProvingBegan { revocation_id, message, at, .. } => {
                self.change_revocation(*revocation_id, |revocation| revocation.record_event(event));
                self.revoking_began(*revocation_id, message, *at);
            }
            Event::RotationWatched { revocation_id, .. }
            | Event::RotationLost { revocation_id, .. }
            | Event::RotationDone { revocation_id, .. }
            | Event::RevocationCompleted { revocation_id, .. } => {
                self.change_revocation(*revocation_id, |revocation| revocation.record_event(event));
            }
            Event::AuthorityWanted { authority } => {
                self.authorities.push(Authority::clone(authority))
            }
            Event::AuthorityMade { authority_id, not_after, at } => {
                self.change_authority(*authority_id, |authority| {
                    authority.call = None;
                    authority.trouble = Trouble::default();
                    authority.made_at = Some(*at);
                    authority.not_after = Some(*not_after);
                });
            }
            Event::AuthorityDropped { authority_id, .. } => {
                self.change_authority(*authority_id, |authority| authority.dropped = true);
            }
            Event::BundleConfirmed { version, .. } => {
                self.confirmed_version = self.confirmed_version.max(*version);
            }
            Event::Quarantined { quarantine } => self.quarantine = Some(*quarantine),
            Event::Released { .. } => self.quarantine = None,
        }
    }

    fn change_credential(&mut self, id: CredentialId, change: impl FnOnce(&mut Credential)) {
        if let Some(credential) = self.credentials.iter_mut().find(|c| c.id == id) {
            change(credential);
        }
    }

    fn change_revocation(&mut self, id: RevocationId, change: impl FnOnce(&mut Revocation)) {
        if let Some(revocation) = self.revocations.iter_mut().find(|r| r.id == id) {
            change(revocation);
        }
    }

    fn change_authority(&mut self, id: AuthorityId, change: impl FnOnce(&mut Authority)) {
        if let Some(authority) = self.authorities.iter_mut().find(|a| a.id == id) {
            change(authority);
        }
    }

    /// A call was announced, put off, or ended without a word about its subject.
    fn record_call(&mut self, subject: Subject, event: &Event) {
        match subject {
            Subject::Credential(id) => self.change_credential(id, |credential| {
                credential.effect_began(event);
                let slot = (&mut credential.call, &mut credential.trouble);
                record_call(slot, &mut credential.next_attempt_at, event);
            }),
            Subject::Revocation(id) => self.change_revocation(id, |revocation| {
                let slot = (&mut revocation.call, &mut revocation.trouble);
                record_call(slot, &mut revocation.next_attempt_at, event);
            }),
            Subject::Authority(id) => self.change_authority(id, |authority| {
                let slot = (&mut authority.call, &mut authority.trouble);
                record_call(slot, &mut authority.next_attempt_at, event);
            }),
        }
    }
}

/// What every subject keeps of its calls.
fn record_call(
    (running, current): (&mut Option<Announcement>, &mut Trouble),
    due: &mut Timestamp,
    event: &Event,
) {
    if let Event::CallAnnounced { call, token, at, .. } = event {
        *running = Some(Announcement { call: *call, token: *token, at: *at });
    }
    if matches!(event, Event::CallFailed { .. } | Event::CallEnded { .. }) {
        *running = None;
    }
    if let Event::CallFailed { trouble, next_attempt_at, .. }
    | Event::CallDeferred { trouble, next_attempt_at, .. } = event
    {
        current.clone_from(trouble);
        *due = *next_attempt_at;
    }
}
