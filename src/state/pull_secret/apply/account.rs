//! What is true of one account after an event.

use std::time::Duration;

use super::super::Event;
use super::super::model::{Account, AccountPhase, Announcement, Call, Scope, Trouble};
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
            Event::AccountVerified { at, check_at, .. } => {
                self.check_at = *check_at;
                self.dead_looks = 0;
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
            Event::DriftSuspected { .. } => self.dead_looks = self.dead_looks.saturating_add(1),
            Event::DriftFound { .. } => {
                self.verified_at = None;
                self.dead_looks = self.dead_looks.saturating_add(1);
            }
            Event::IssueAccepted { .. }
            | Event::GenerationStarted { .. }
            | Event::AccountPlanned { .. }
            | Event::GenerationServed { .. }
            | Event::RotationRequested { .. }
            | Event::AllCreated { .. }
            | Event::RegistriesAdded { .. }
            | Event::RotationQueued { .. }
            | Event::WaitingEnded { .. }
            | Event::ScheduleChanged { .. }
            | Event::NextRotationMoved { .. }
            | Event::ConsumerSeen { .. }
            | Event::RetirementDecided { .. }
            | Event::AdoptionWithdrawn { .. }
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

    /// What a switch to a generation means for this account. Forward, the verified accounts born in it are
    /// served and those that they replace retire; backward, the two change places. `retires`: whether the
    /// rotation replaces the account of its registry.
    pub(super) fn switch(&mut self, to: &Switch<'_>) {
        let born = self.born_generation == to.generation;
        match self.phase {
            AccountPhase::Serving if to.forward && to.scope.retires(&self.registry_id) => {
                self.retire()
            }
            AccountPhase::Serving if !to.forward && self.born_generation == to.made => {
                self.retire()
            }
            AccountPhase::Verified if to.forward && born => self.serve(to),
            AccountPhase::Retiring if !to.forward && self.served_in == Some(to.generation) => {
                self.serve(to);
            }
            // Kept: it belongs to both.
            AccountPhase::Serving => self.served_in = Some(to.generation),
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

    fn retire(&mut self) {
        self.phase = AccountPhase::Retiring;
        self.check_at = None;
    }

    fn serve(&mut self, to: &Switch<'_>) {
        self.phase = AccountPhase::Serving;
        self.served_in = Some(to.generation);
        self.check_at = to.check_at;
        self.dead_looks = 0;
    }
}

/// A switch of the served generation.
pub(super) struct Switch<'a> {
    /// To this one.
    pub generation: Generation,
    /// The one that the rotation made.
    pub made: Generation,
    /// Not by a rollback.
    pub forward: bool,
    /// Which accounts the rotation replaces.
    pub scope: &'a Scope,
    /// When the accounts that are served from now on are verified again.
    pub check_at: Option<Timestamp>,
}
