//! What is true of one revocation after an event.

use super::super::Event;
use super::super::model::{BreakGlass, CredentialState, Revocation, RevocationState};
use crate::ids::{CredentialId, RevocationId};
use crate::state::shared::Trouble;
use crate::time::Timestamp;

impl Revocation {
    pub(super) fn record_event(&mut self, event: &Event) {
        match event {
            Event::EndpointsSet { endpoints, .. } => self.endpoints.clone_from(endpoints),
            Event::EndpointsSeen { endpoints, trouble, next_attempt_at, .. } => {
                self.endpoints.clone_from(endpoints);
                self.settled(*next_attempt_at);
                self.trouble.clone_from(trouble);
            }
            Event::RotationBegun { at, .. } => {
                self.settled(*at);
                self.enter(RevocationState::Rotating, *at);
            }
            Event::RotationWatched { progress, next_attempt_at, .. } => {
                self.settled(*next_attempt_at);
                self.progress = Some(progress.clone());
            }
            Event::RotationLost { message, next_attempt_at, .. } => {
                self.settled(*next_attempt_at);
                self.attempt = self.attempt.saturating_add(1);
                self.progress = Some(message.clone());
                self.enter(RevocationState::Pending, *next_attempt_at);
            }
            Event::RotationDone { cut_off, at, .. } => {
                self.settled(*at);
                self.cut_off = *cut_off;
            }
            Event::ProvingBegan { endpoints, at, .. } => {
                self.endpoints.clone_from(endpoints);
                self.next_attempt_at = *at;
                self.enter(RevocationState::Proving, *at);
            }
            Event::RevocationCompleted { at, .. } => {
                self.ended_at = Some(*at);
                self.enter(RevocationState::Completed, *at);
            }
            Event::Opened { .. }
            | Event::CredentialRequested { .. }
            | Event::CredentialApproved { .. }
            | Event::CredentialDenied { .. }
            | Event::CredentialFailed { .. }
            | Event::CredentialIssued { .. }
            | Event::CredentialExpired { .. }
            | Event::CredentialRevoked { .. }
            | Event::CallAnnounced { .. }
            | Event::CallFailed { .. }
            | Event::CallDeferred { .. }
            | Event::CallEnded { .. }
            | Event::RequestSubmitted { .. }
            | Event::RequestEndorsed { .. }
            | Event::CertificateAwaited { .. }
            | Event::CertificateSigned { .. }
            | Event::RevocationRequested { .. }
            | Event::AuthorityWanted { .. }
            | Event::AuthorityMade { .. }
            | Event::AuthorityDropped { .. }
            | Event::BundleConfirmed { .. }
            | Event::Quarantined { .. }
            | Event::Released { .. } => {}
        }
    }

    fn enter(&mut self, state: RevocationState, at: Timestamp) {
        if self.state != state {
            self.state = state;
            self.state_since = at;
        }
    }

    fn settled(&mut self, next_attempt_at: Timestamp) {
        self.call = None;
        self.trouble = Trouble::default();
        self.next_attempt_at = next_attempt_at;
    }
}

impl BreakGlass {
    pub(super) fn revocation_requested(
        &mut self,
        revocation: &Revocation,
        credentials: &[CredentialId],
        supersedes: &[RevocationId],
    ) {
        let at = revocation.created_at;
        for old in self.revocations.iter_mut().filter(|old| supersedes.contains(&old.id)) {
            old.ended_at = Some(at);
            old.enter(RevocationState::Superseded, at);
        }
        let id = revocation.id;
        for credential in self.credentials.iter_mut().filter(|c| credentials.contains(&c.id)) {
            match credential.state {
                CredentialState::Requested
                | CredentialState::Accepted
                | CredentialState::Issuing { .. }
                | CredentialState::Active
                | CredentialState::AwaitingRevocation { .. } => {
                    let state = CredentialState::AwaitingRevocation { revocation: id };
                    credential.enter(state, "", at);
                }
                CredentialState::Revoking { .. } => {
                    credential.enter(CredentialState::Revoking { revocation: id }, "", at);
                }
                CredentialState::Revoked { .. }
                | CredentialState::Denied
                | CredentialState::Failed
                | CredentialState::Expired => {}
            }
            credential.endpoints.clear();
        }
        self.revocations.push(revocation.clone());
    }
}
