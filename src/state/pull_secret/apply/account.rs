//! What is true of one account after an event.

use std::time::Duration;

use super::super::Event;
use super::super::model::{Account, AccountPhase, Announcement, Call, Trouble};
use crate::ids::Generation;
use crate::time::Timestamp;

impl Account {
    pub(super) fn record_event(&mut self, event: &Event) {
        match event {
            Event::CallAnnounced { call, token, at, .. } => {
                self.call = Some(Announcement { call: *call, token: *token, at: *at });
                if *call == Call::Create {
                    self.phase = AccountPhase::Creating;
                }
            }
            Event::CallFailed { call, trouble, next_attempt_at, .. } => {
                self.call = None;
                self.put_off(trouble, *next_attempt_at);
                // Definitely not applied: the name is as good as new.
                if *call == Call::Create && self.phase == AccountPhase::Creating {
                    self.phase = AccountPhase::Planned;
                }
            }
            Event::CallDeferred { trouble, next_attempt_at, .. } => {
                self.put_off(trouble, *next_attempt_at);
            }
            Event::CallLost { call, trouble, next_attempt_at, .. } => {
                if let (Call::Create, Some(running)) = (call, self.call) {
                    // A restore may have set a later one.
                    self.unanswered_create_at = self.unanswered_create_at.max(Some(running.at));
                }
                self.call = None;
                self.put_off(trouble, *next_attempt_at);
            }
            Event::NameTaken { at, .. } => {
                self.call = None;
                self.next_attempt_at = *at;
            }
            Event::AccountCreated { remote_id, username, at, .. } => {
                self.remote_id.clone_from(remote_id);
                self.username = Some(username.clone());
                self.created_at = Some(*at);
                self.settled(*at);
                if self.phase == AccountPhase::Creating {
                    self.phase = AccountPhase::Created;
                }
            }
            Event::AccountVerified { at, .. } => {
                self.verified_at = self.verified_at.max(Some(*at));
                self.settled(*at);
                if self.phase == AccountPhase::Created {
                    self.phase = AccountPhase::Verified;
                }
            }
            Event::AccountRefused { message, at, .. } => {
                self.call = None;
                self.phase = AccountPhase::Planned;
                self.trouble.since = self.trouble.since.or(Some(*at));
                self.trouble.last_error = Some(message.clone());
                self.trouble.refused = true;
            }
            Event::AccountBurnt { at, .. } => self.condemn(AccountPhase::Burnt, *at),
            Event::DeletionDecided { at, .. } => {
                // A running call on this name ends first; its outcome is still wanted.
                let running = self.call;
                self.condemn(AccountPhase::Deleting, *at);
                self.call = running;
            }
            Event::AccountGone { at, .. } => {
                self.call = None;
                self.phase = AccountPhase::Gone;
                self.gone_at = Some(*at);
            }
            Event::GoneUnsettled { again_at, .. } => {
                self.call = None;
                self.next_attempt_at = *again_at;
            }
            Event::AccountResidue { message, next_attempt_at, at, .. } => {
                self.call = None;
                self.phase = AccountPhase::Residue;
                self.trouble.since = self.trouble.since.or(Some(*at));
                self.trouble.attempts = self.trouble.attempts.saturating_add(1);
                self.trouble.last_error = Some(message.clone());
                self.next_attempt_at = *next_attempt_at;
            }
            Event::IssueAccepted { .. }
            | Event::GenerationStarted { .. }
            | Event::AccountPlanned { .. }
            | Event::GenerationServed { .. }
            | Event::RotationRequested { .. }
            | Event::AllCreated { .. }
            | Event::ConsumerSeen { .. }
            | Event::RetirementDecided { .. }
            | Event::AdoptionWithdrawn { .. }
            | Event::DriftFound { .. }
            | Event::DriftCleared { .. }
            | Event::DeadlineMoved { .. }
            | Event::RollbackRequested { .. }
            | Event::RollbackRefused { .. }
            | Event::RemovalDecided { .. }
            | Event::RotationEnded { .. }
            | Event::IssueDenied { .. }
            | Event::IssueFailed { .. }
            | Event::RevocationRequested { .. }
            | Event::Revoked { .. }
            | Event::Doubted { .. }
            | Event::RetryRequested { .. }
            | Event::Removed { .. }
            | Event::Quarantined { .. }
            | Event::Released { .. } => {}
        }
    }

    /// Logins that began before this do not count.
    pub(super) fn forget_checks(&mut self, since: Timestamp) {
        let before = since.minus(Duration::from_micros(1));
        self.verified_at = self.verified_at.map(|at| at.min(before));
        if let Some(running) = self.call.as_mut().filter(|running| running.call == Call::Verify) {
            running.at = running.at.min(before);
        }
    }

    /// Its row is from before the database was restored: whatever was asked of the registry since may have
    /// been applied, a create above all, and "gone" has to be heard anew.
    pub(super) fn doubt(&mut self, restored_at: Timestamp) {
        if self.phase == AccountPhase::Planned {
            // It may have been sent. What a lookup finds is taken over by its marker only, never by its name.
            self.phase = AccountPhase::Creating;
            return;
        }
        self.unanswered_create_at = self.unanswered_create_at.max(Some(restored_at));
        self.forget_checks(restored_at);
        if self.phase == AccountPhase::Verified {
            self.phase = AccountPhase::Created;
        }
    }

    fn put_off(&mut self, trouble: &Trouble, next_attempt_at: Timestamp) {
        self.trouble = trouble.clone();
        self.next_attempt_at = next_attempt_at;
    }

    /// A call ended well: the trouble is over and the next call may come at once.
    fn settled(&mut self, at: Timestamp) {
        self.call = None;
        self.trouble = Trouble::default();
        self.next_attempt_at = at;
    }

    /// The account changes to a life that ends in deletion, with a clock of its own.
    fn condemn(&mut self, phase: AccountPhase, at: Timestamp) {
        self.call = None;
        self.phase = phase;
        self.next_attempt_at = at;
        if phase == AccountPhase::Deleting {
            self.trouble = Trouble::default();
        }
    }

    /// What a switch of the served generation means for this account. Forward, the verified accounts
    /// born in it are served and the served ones retire; backward, the two change places.
    pub(super) fn switch(&mut self, generation: Generation, forward: bool) {
        match self.phase {
            AccountPhase::Serving => self.phase = AccountPhase::Retiring,
            AccountPhase::Verified if forward && self.born_generation == generation => {
                self.phase = AccountPhase::Serving;
            }
            AccountPhase::Retiring if !forward && self.born_generation == generation => {
                self.phase = AccountPhase::Serving;
            }
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Gone
            | AccountPhase::Burnt
            | AccountPhase::Residue => {}
        }
    }
}
