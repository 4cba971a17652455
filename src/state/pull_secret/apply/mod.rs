//! What is true after an event. Total: an event is a fact and is never refused. What it means for one
//! account is in `account`.

mod account;

use std::time::Duration;

use super::Event;
use super::model::{
    Account, AccountPhase, Call, Consumer, End, EvidenceSource, PullSecret, RecordState, Rotation,
    RotationPhase, Served,
};
use super::policy::OnDeadline;
use crate::ids::{AccountId, Generation};
use crate::time::Timestamp;

/// The state after the event; `None` when there is no record.
#[must_use]
pub fn apply(state: Option<PullSecret>, event: &Event) -> Option<PullSecret> {
    if let Event::IssueAccepted { cluster_id, registries, last_generation, at } = event {
        let mut record = state.unwrap_or_else(|| PullSecret {
            cluster_id: cluster_id.clone(),
            state: RecordState::Issuing { generation: None },
            state_since: *at,
            registries: Vec::new(),
            last_generation: *last_generation,
            accounts: Vec::new(),
            consumers: Vec::new(),
            ended: Vec::new(),
            created_at: *at,
            last_rotated_at: None,
            next_rotation_at: None,
            slot: None,
            quarantine: None,
        });
        record.registries.clone_from(registries);
        record.enter(RecordState::Issuing { generation: None }, *at);
        return Some(record);
    }
    let mut record = state?;
    if matches!(event, Event::Removed { .. }) {
        return None;
    }
    record.record_event(event);
    Some(record)
}

impl PullSecret {
    fn record_event(&mut self, event: &Event) {
        match event {
            Event::IssueAccepted { .. } | Event::Removed { .. } => {}
            Event::GenerationStarted { generation, at } => {
                self.generation_started(*generation, *at)
            }
            Event::AccountPlanned { account } => self.accounts.push(Account::clone(account)),
            Event::RotationRequested { rotation } => self.rotation_requested(rotation),
            Event::GenerationServed { generation, deadline, on_deadline, next_rotation_at, at } => {
                self.generation_served(*generation, *deadline, *on_deadline, *at);
                self.next_rotation_at = *next_rotation_at;
            }
            Event::AllCreated { .. } => self.set_phase(RotationPhase::VerifyingCredentials),
            Event::ConsumerSeen { consumer, account_id, forgotten } => {
                self.consumer_seen(consumer, *account_id, forgotten.as_ref());
            }
            Event::RetirementDecided { why, at } => self.retirement_decided(*why, *at),
            Event::AdoptionWithdrawn { .. } => self.adoption_withdrawn(),
            Event::DriftFound { account_id, .. } => self.drift_found(*account_id),
            Event::DriftCleared { .. } => self.set_drifted(false),
            Event::DeadlineMoved { deadline: to, .. } => {
                if let Some(RotationPhase::DualCredentialPeriod { deadline, .. }) = self.phase_mut()
                {
                    *deadline = *to;
                }
            }
            Event::RollbackRequested { at } => {
                self.forget_checks(*at);
                if let Some(RotationPhase::DualCredentialPeriod { rollback_at, .. }) =
                    self.phase_mut()
                {
                    *rollback_at = Some(*at);
                }
            }
            Event::RollbackRefused { .. } => {
                if let Some(RotationPhase::DualCredentialPeriod {
                    rollback_at, on_deadline, ..
                }) = self.phase_mut()
                {
                    *rollback_at = None;
                    *on_deadline = OnDeadline::Hold;
                }
            }
            Event::RemovalDecided { end, .. } => {
                self.set_phase(RotationPhase::RemovingNew { end: end.clone() });
            }
            Event::RotationEnded { end, slot, next_rotation_at, at } => {
                self.slot = *slot;
                self.next_rotation_at = *next_rotation_at;
                self.rotation_ended(end, *at);
            }
            Event::IssueDenied { refusal, at } => {
                self.enter(RecordState::Denied(refusal.clone()), *at);
            }
            Event::IssueFailed { refusal, at } => {
                self.enter(RecordState::Failed(refusal.clone()), *at);
            }
            Event::RevocationRequested { at } => {
                self.enter(RecordState::Revoking, *at);
                self.consumers.clear();
                self.next_rotation_at = None;
                self.slot = None;
            }
            Event::Revoked { at } => self.enter(RecordState::Revoked, *at),
            Event::RetryRequested { at } => {
                let waiting = |account: &&mut Account| account.phase == AccountPhase::Residue;
                self.accounts
                    .iter_mut()
                    .filter(waiting)
                    .for_each(|account| account.next_attempt_at = *at);
            }
            Event::Quarantined { quarantine } => self.quarantine = Some(*quarantine),
            Event::Released { .. } => self.quarantine = None,
            Event::CallAnnounced { account_id, .. }
            | Event::CallFailed { account_id, .. }
            | Event::CallDeferred { account_id, .. }
            | Event::CallLost { account_id, .. }
            | Event::NameTaken { account_id, .. }
            | Event::AccountCreated { account_id, .. }
            | Event::AccountVerified { account_id, .. }
            | Event::AccountRefused { account_id, .. }
            | Event::AccountBurnt { account_id, .. }
            | Event::DeletionDecided { account_id, .. }
            | Event::AccountGone { account_id, .. }
            | Event::GoneUnsettled { account_id, .. }
            | Event::AccountResidue { account_id, .. } => {
                if let Some(account) = self.accounts.iter_mut().find(|a| a.id == *account_id) {
                    account.record_event(event);
                }
            }
        }
    }

    fn enter(&mut self, state: RecordState, at: Timestamp) {
        if self.state.name() != state.name() {
            self.state_since = at;
        }
        self.state = state;
    }

    fn rotation_mut(&mut self) -> Option<&mut Rotation> {
        match &mut self.state {
            RecordState::Rotating { rotation, .. } => Some(rotation),
            RecordState::Issuing { .. }
            | RecordState::Active { .. }
            | RecordState::Revoking
            | RecordState::Revoked
            | RecordState::Denied(_)
            | RecordState::Failed(_) => None,
        }
    }

    fn phase_mut(&mut self) -> Option<&mut RotationPhase> {
        self.rotation_mut().map(|rotation| &mut rotation.phase)
    }

    fn set_phase(&mut self, to: RotationPhase) {
        if let Some(phase) = self.phase_mut() {
            *phase = to;
        }
    }

    fn set_drifted(&mut self, to: bool) {
        match self.phase_mut() {
            Some(
                RotationPhase::DualCredentialPeriod { drifted, .. }
                | RotationPhase::RollingBack { drifted, .. },
            ) => *drifted = to,
            Some(
                RotationPhase::Pending
                | RotationPhase::CreatingCredentials
                | RotationPhase::VerifyingCredentials
                | RotationPhase::RevokingOld { .. }
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_),
            )
            | None => {}
        }
    }

    fn generation_started(&mut self, generation: Generation, at: Timestamp) {
        self.last_generation = self.last_generation.max(generation);
        if let Some(rotation) = self.rotation_mut() {
            rotation.phase = RotationPhase::CreatingCredentials;
            rotation.started_at = Some(at);
        } else {
            self.enter(RecordState::Issuing { generation: Some(generation) }, at);
        }
    }

    fn rotation_requested(&mut self, rotation: &Rotation) {
        self.last_generation = self.last_generation.max(rotation.to);
        if let Some(served) = self.served() {
            let rotation = Box::new(rotation.clone());
            let at = rotation.created_at;
            self.enter(RecordState::Rotating { served, rotation }, at);
            // Older accounts go before it begins: the decision is as old as the request.
            if self.crowded_out().is_some() {
                self.forget_checks(at);
            }
        }
    }

    fn generation_served(
        &mut self,
        generation: Generation,
        deadline: Timestamp,
        on_deadline: OnDeadline,
        at: Timestamp,
    ) {
        let forward = self.rotation().is_none_or(|rotation| rotation.to == generation);
        for account in &mut self.accounts {
            account.switch(generation, forward);
        }
        // What was seen before the switch proves nothing after it, whatever the clocks said then.
        for consumer in &mut self.consumers {
            consumer.observed_at = consumer.observed_at.min(at);
        }
        let served = Served { generation, since: at };
        let RecordState::Rotating { served: current, rotation } = &mut self.state else {
            self.enter(RecordState::Active { served }, at);
            return;
        };
        *current = served;
        if !forward {
            rotation.phase = RotationPhase::RollingBack { deadline, drifted: false, decided: None };
            return;
        }
        rotation.promoted_at = Some(at);
        rotation.phase = RotationPhase::DualCredentialPeriod {
            deadline,
            on_deadline,
            drifted: false,
            rollback_at: None,
        };
        self.last_rotated_at = Some(at);
    }

    fn consumer_seen(
        &mut self,
        consumer: &Consumer,
        account_id: Option<AccountId>,
        forgotten: Option<&(EvidenceSource, String)>,
    ) {
        if let Some((source, name)) = forgotten {
            self.consumers.retain(|known| known.source != *source || known.name != *name);
        }
        let same =
            |known: &&mut Consumer| known.source == consumer.source && known.name == consumer.name;
        match self.consumers.iter_mut().find(same) {
            Some(known) => *known = consumer.clone(),
            None => self.consumers.push(consumer.clone()),
        }
        let used = account_id.and_then(|id| self.accounts.iter_mut().find(|a| a.id == id));
        if let Some(account) = used {
            account.last_used_at = account.last_used_at.max(Some(consumer.observed_at));
        }
    }

    /// Logins that began before a decision do not count for it, whatever the clocks said then.
    fn forget_checks(&mut self, decided_at: Timestamp) {
        let before = decided_at.minus(Duration::from_micros(1));
        for account in &mut self.accounts {
            account.verified_at = account.verified_at.map(|at| at.min(before));
            if let Some(running) = account.call.as_mut().filter(|c| c.call == Call::Verify) {
                running.at = running.at.min(before);
            }
        }
    }

    fn retirement_decided(&mut self, why: super::RetireReason, at: Timestamp) {
        self.forget_checks(at);
        let Some(phase) = self.phase_mut() else { return };
        match phase {
            RotationPhase::DualCredentialPeriod { deadline, on_deadline, .. } => {
                *phase = RotationPhase::RevokingOld {
                    decided_at: at,
                    why,
                    deadline: *deadline,
                    on_deadline: *on_deadline,
                };
            }
            RotationPhase::RollingBack { decided, .. } => *decided = Some((at, why)),
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RevokingOld { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => {}
        }
    }

    /// Back to waiting for proof, in either direction.
    fn adoption_withdrawn(&mut self) {
        let Some(phase) = self.phase_mut() else { return };
        match phase {
            RotationPhase::RevokingOld { deadline, on_deadline, .. } => {
                *phase = RotationPhase::DualCredentialPeriod {
                    deadline: *deadline,
                    on_deadline: *on_deadline,
                    drifted: false,
                    rollback_at: None,
                };
            }
            RotationPhase::RollingBack { decided, .. } => *decided = None,
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => {}
        }
    }

    /// Nothing is deleted while the served credential is dead.
    fn drift_found(&mut self, account_id: AccountId) {
        if let Some(account) = self.accounts.iter_mut().find(|account| account.id == account_id) {
            account.verified_at = None;
        }
        self.adoption_withdrawn();
        self.set_drifted(true);
    }

    fn rotation_ended(&mut self, end: &End, at: Timestamp) {
        let RecordState::Rotating { served, rotation } = &self.state else { return };
        let served = *served;
        let mut rotation = Rotation::clone(rotation);
        rotation.phase = RotationPhase::Ended(end.clone());
        rotation.completed_at = Some(at);
        self.ended.push(rotation);
        self.enter(RecordState::Active { served }, at);
    }
}
