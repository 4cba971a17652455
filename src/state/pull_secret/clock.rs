//! A wall clock that went back: what happened in a future that has not come yet must not be waited for.
//!
//! Knows times and their order. Nothing is decided here: only the dates of what was decided are drawn in.

use std::time::Duration;

use super::super::shared::clock;
use super::model::{PullSecret, RecordState, RotationPhase};
use crate::time::Timestamp;

impl PullSecret {
    /// The same record with everything that has happened dated now at the latest, in the order in which it
    /// happened; `None` when the clock is as it should be.
    #[must_use]
    pub fn drawn_in(&self, now: Timestamp) -> Option<Self> {
        let mut record = self.clone();
        let put_off = |at: Timestamp| clock::is_put_off(at, now);
        let waits = record.accounts.iter().any(|account| put_off(account.next_attempt_at));
        if !waits && !clock::is_ahead(&record.happened(), now) {
            return None;
        }
        let served_before = record.served().map(|served| served.since);
        clock::draw_in(record.happened(), now);
        for account in record.accounts.iter_mut().filter(|a| put_off(a.next_attempt_at)) {
            account.next_attempt_at = now;
        }
        let served_now = record.served().map(|served| served.since);
        if let (Some(before), Some(now)) = (served_before, served_now) {
            record.count_from_the_switch(before.since(now));
        }
        Some(record)
    }

    /// What counts from the last switch moves with it.
    fn count_from_the_switch(&mut self, earlier: Duration) {
        self.next_rotation_at = self.next_rotation_at.map(|at| at.minus(earlier));
        let RecordState::Rotating { rotation, .. } = &mut self.state else { return };
        match &mut rotation.phase {
            RotationPhase::DualCredentialPeriod { deadline, .. }
            | RotationPhase::RevokingOld { deadline, .. }
            | RotationPhase::RollingBack { deadline, .. } => *deadline = deadline.minus(earlier),
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials
            | RotationPhase::RemovingNew { .. }
            | RotationPhase::Ended(_) => {}
        }
    }

    /// The times of what has happened.
    fn happened(&mut self) -> Vec<&mut Timestamp> {
        let mut times = vec![&mut self.state_since, &mut self.created_at];
        times.extend(&mut self.last_rotated_at);
        match &mut self.state {
            RecordState::Active { served } => times.push(&mut served.since),
            RecordState::Rotating { served, rotation } => {
                times.extend([&mut served.since, &mut rotation.created_at]);
                times.extend(rotation.started_at.iter_mut().chain(&mut rotation.promoted_at));
                match &mut rotation.phase {
                    RotationPhase::DualCredentialPeriod { rollback_at, .. } => {
                        times.extend(rollback_at);
                    }
                    RotationPhase::RevokingOld { decided_at, .. } => times.push(decided_at),
                    RotationPhase::RollingBack { decided, .. } => {
                        times.extend(decided.iter_mut().map(|(at, _)| at));
                    }
                    RotationPhase::Pending
                    | RotationPhase::CreatingCredentials
                    | RotationPhase::VerifyingCredentials
                    | RotationPhase::RemovingNew { .. }
                    | RotationPhase::Ended(_) => {}
                }
            }
            RecordState::Issuing { .. }
            | RecordState::Revoking
            | RecordState::Revoked
            | RecordState::Denied(_)
            | RecordState::Failed(_) => {}
        }
        for account in &mut self.accounts {
            times.push(&mut account.planned_at);
            times.extend(account.call.iter_mut().map(|call| &mut call.at));
            times.extend(&mut account.unanswered_create_at);
            times.extend(&mut account.trouble.since);
            times.extend(&mut account.trouble.counting_since);
            times.extend(&mut account.created_at);
            times.extend(&mut account.verified_at);
            times.extend(&mut account.last_used_at);
        }
        times.extend(self.consumers.iter_mut().map(|consumer| &mut consumer.observed_at));
        times
    }
}
