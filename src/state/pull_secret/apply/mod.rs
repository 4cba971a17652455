//! What is true after an event. Total: an event is a fact and is never refused. What it means for one
//! account is in `account`.

mod account;
mod drift;

use super::Event;
use super::advance::is_doubted;
use super::model::{
    Account, AccountPhase, Consumer, End, EvidenceSource, PullSecret, RecordState, Rotation,
    RotationPhase, Schedule, Scope, Served,
};
use super::policy::OnDeadline;
use crate::ids::{AccountId, Generation};
use crate::time::Timestamp;
use account::Switch;

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
            interval_from: None,
            schedule: Schedule::default(),
            slot: None,
            reissue_pause: None,
            waiting: None,
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
            Event::GenerationServed { generation, deadline, on_deadline, check_at, at } => {
                self.generation_served(*generation, *deadline, *on_deadline, *check_at, *at);
            }
            Event::RegistriesAdded { registries, .. } => self.registries.clone_from(registries),
            Event::RotationQueued { rotation } => self.waiting = Some(rotation.clone()),
            Event::WaitingEnded { end, at } => {
                if let Some(waiting) = self.waiting.take() {
                    self.ended.push(over(*waiting, end, *at));
                }
            }
            Event::ScheduleChanged { schedule, slot, .. } => {
                self.schedule = Schedule::clone(schedule);
                self.slot = *slot;
            }
            Event::NextRotationMoved { next_rotation_at, .. } => {
                self.next_rotation_at = *next_rotation_at;
            }
            Event::AllCreated { .. } => self.set_phase(RotationPhase::VerifyingCredentials),
            Event::ConsumerSeen { consumer, account_id, forgotten } => {
                self.consumer_seen(consumer, *account_id, forgotten.as_ref());
            }
            Event::RetirementDecided { why, at } => self.retirement_decided(*why, *at),
            Event::AdoptionWithdrawn { .. } => self.adoption_withdrawn(),
            Event::DriftFound { account_id, .. } => {
                self.account_event(*account_id, event);
                self.drift_found();
            }
            Event::AccountVerified { account_id, .. } => {
                self.account_event(*account_id, event);
                if !self.has_dead() {
                    self.reissue_pause = None;
                }
            }
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
            Event::RotationEnded { end, slot, reissue_pause, at } => {
                self.slot = *slot;
                self.reissue_pause = *reissue_pause;
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
                self.interval_from = None;
                self.schedule = Schedule::default();
                self.slot = None;
                self.reissue_pause = None;
            }
            Event::Revoked { at } => self.enter(RecordState::Revoked, *at),
            Event::Doubted { restored_at, .. } => {
                let doubted = |account: &&mut Account| is_doubted(account, *restored_at);
                self.accounts
                    .iter_mut()
                    .filter(doubted)
                    .for_each(|account| account.doubt(*restored_at));
            }
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
            | Event::DriftSuspected { account_id, .. }
            | Event::AccountRefused { account_id, .. }
            | Event::AccountBurnt { account_id, .. }
            | Event::DeletionDecided { account_id, .. }
            | Event::AccountGone { account_id, .. }
            | Event::GoneUnsettled { account_id, .. }
            | Event::AccountResidue { account_id, .. } => {
                self.account_event(*account_id, event);
            }
        }
    }

    fn account_event(&mut self, id: AccountId, event: &Event) {
        if let Some(account) = self.accounts.iter_mut().find(|account| account.id == id) {
            account.record_event(event);
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
        if self.waiting.as_ref().is_some_and(|waiting| waiting.id == rotation.id) {
            self.waiting = None;
        }
        if let Some(served) = self.served() {
            let rotation = Box::new(rotation.clone());
            let at = rotation.created_at;
            self.enter(RecordState::Rotating { served, rotation }, at);
            // Older accounts may have to go before it begins, also when that is only known later because a
            // dead account is in the way now: the decision is as old as the request.
            if self.is_crowded() {
                self.forget_checks(at);
            }
        }
    }

    fn generation_served(
        &mut self,
        generation: Generation,
        deadline: Timestamp,
        on_deadline: OnDeadline,
        check_at: Option<Timestamp>,
        at: Timestamp,
    ) {
        let rotation = self.rotation();
        let made = rotation.map_or(generation, |rotation| rotation.to);
        let scope = rotation.map_or(Scope::Whole, |rotation| rotation.scope.clone());
        let slot = rotation.and_then(|rotation| rotation.slot);
        let forward = made == generation;
        let switch = Switch { generation, made, forward, scope: &scope, check_at };
        for account in &mut self.accounts {
            account.switch(&switch);
        }
        self.registries_switched(&scope, forward);
        if forward && scope.is_whole() {
            // No later slot is one that this has filled, whatever the clocks say.
            self.interval_from = Some(slot.map_or(at, |slot| slot.max(at)));
            self.schedule.next_at = None;
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
        if scope.is_whole() {
            self.last_rotated_at = Some(at);
        }
    }

    /// The recorded set is that of what is served.
    fn registries_switched(&mut self, scope: &Scope, forward: bool) {
        let Scope::Registries { added, removed } = scope else { return };
        let (come, go) = if forward { (added, removed) } else { (removed, added) };
        self.registries.retain(|id| !go.contains(id));
        self.registries.extend(come.iter().cloned());
        self.registries.sort();
        self.registries.dedup();
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
        for account in &mut self.accounts {
            account.forget_checks(decided_at);
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

    fn rotation_ended(&mut self, end: &End, at: Timestamp) {
        let RecordState::Rotating { served, rotation } = &self.state else { return };
        let served = *served;
        self.ended.push(over(Rotation::clone(rotation), end, at));
        self.enter(RecordState::Active { served }, at);
    }
}

fn over(rotation: Rotation, end: &End, at: Timestamp) -> Rotation {
    Rotation { phase: RotationPhase::Ended(end.clone()), completed_at: Some(at), ..rotation }
}
