//! What is true of one credential after an event.

use super::super::Event;
use super::super::model::{BreakGlass, Call, Credential, CredentialState, IssueStep};
use crate::ids::RevocationId;
use crate::state::shared::Trouble;
use crate::time::Timestamp;

impl Credential {
    pub(super) fn record_event(&mut self, event: &Event) {
        match event {
            Event::CredentialApproved { by, at, .. } => {
                self.decided_by = Some(by.clone());
                self.accepted_at = Some(*at);
                self.next_attempt_at = *at;
                self.enter(CredentialState::Accepted, "", *at);
            }
            Event::CredentialDenied { by, message, at, .. } => {
                if by.is_some() {
                    self.decided_by.clone_from(by);
                }
                self.enter(CredentialState::Denied, message, *at);
            }
            Event::CredentialFailed { message, at, .. } => {
                self.enter(CredentialState::Failed, message, *at);
            }
            Event::CredentialIssued { message, at, .. } => {
                self.issued_at = Some(*at);
                self.enter(CredentialState::Active, message, *at);
            }
            Event::CredentialExpired { at, .. } => self.enter(CredentialState::Expired, "", *at),
            Event::CredentialRevoked { revocation_id, at, .. } => {
                self.revoked_at = Some(*at);
                let state = CredentialState::Revoked { revocation: *revocation_id };
                self.enter(state, "", *at);
            }
            Event::RequestSubmitted { at, .. } => self.go_on(IssueStep::Endorsing, *at),
            Event::RequestEndorsed { at, .. } => self.go_on(IssueStep::Collecting, *at),
            Event::CertificateAwaited { next_attempt_at, .. } => {
                self.settled(*next_attempt_at);
            }
            Event::CertificateSigned { certificate, .. } => {
                self.certificate = Some(*certificate);
                self.expires_at = certificate.not_after;
                self.go_on(IssueStep::Probing, certificate.signed_at);
            }
            Event::EndpointsSet { endpoints, .. } => self.endpoints.clone_from(endpoints),
            Event::EndpointsSeen { endpoints, trouble, next_attempt_at, .. } => {
                self.endpoints.clone_from(endpoints);
                self.settled(*next_attempt_at);
                self.trouble.clone_from(trouble);
                self.message = trouble.last_error.clone().unwrap_or_default();
            }
            Event::Opened { .. }
            | Event::CredentialRequested { .. }
            | Event::CallAnnounced { .. }
            | Event::CallFailed { .. }
            | Event::CallDeferred { .. }
            | Event::CallEnded { .. }
            | Event::RevocationRequested { .. }
            | Event::RotationBegun { .. }
            | Event::RotationWatched { .. }
            | Event::RotationLost { .. }
            | Event::RotationDone { .. }
            | Event::ProvingBegan { .. }
            | Event::RevocationCompleted { .. }
            | Event::AuthorityWanted { .. }
            | Event::AuthorityMade { .. }
            | Event::AuthorityDropped { .. }
            | Event::BundleConfirmed { .. }
            | Event::Quarantined { .. }
            | Event::Released { .. } => {}
        }
    }

    /// With its first call an accepted credential is being issued.
    pub(super) fn effect_began(&mut self, event: &Event) {
        if let Event::CallAnnounced { call: Call::Submit, at, .. } = event
            && self.state == CredentialState::Accepted
        {
            self.enter(CredentialState::Issuing { step: IssueStep::Submitting }, "", *at);
        }
    }

    pub(super) fn enter(&mut self, state: CredentialState, message: &str, at: Timestamp) {
        if self.state.name() != state.name() {
            self.state_since = at;
        }
        self.state = state;
        message.clone_into(&mut self.message);
    }

    /// The next step of issuing; for one that was overtaken only the call has ended.
    fn go_on(&mut self, step: IssueStep, at: Timestamp) {
        self.settled(at);
        if let CredentialState::Issuing { .. } = self.state {
            self.state = CredentialState::Issuing { step };
        }
    }

    fn settled(&mut self, next_attempt_at: Timestamp) {
        self.call = None;
        self.trouble = Trouble::default();
        self.next_attempt_at = next_attempt_at;
    }
}

impl BreakGlass {
    /// What a revocation is about tells what stands in its way, too.
    pub(super) fn tell_revoked(&mut self, id: RevocationId, event: &Event) {
        let Event::EndpointsSeen { trouble, .. } = event else { return };
        let message = trouble.last_error.as_deref().unwrap_or_default();
        let ours = |state: CredentialState| state == CredentialState::Revoking { revocation: id };
        for credential in self.credentials.iter_mut().filter(|one| ours(one.state)) {
            message.clone_into(&mut credential.message);
        }
    }

    /// What awaited the revocation is being revoked.
    pub(super) fn revoking_began(&mut self, id: RevocationId, message: &str, at: Timestamp) {
        for credential in &mut self.credentials {
            let ours = match credential.state {
                CredentialState::AwaitingRevocation { revocation }
                | CredentialState::Revoking { revocation } => revocation == id,
                CredentialState::Requested
                | CredentialState::Accepted
                | CredentialState::Issuing { .. }
                | CredentialState::Active
                | CredentialState::Revoked { .. }
                | CredentialState::Denied
                | CredentialState::Failed
                | CredentialState::Expired => false,
            };
            if ours {
                credential.enter(CredentialState::Revoking { revocation: id }, message, at);
            }
        }
    }
}
