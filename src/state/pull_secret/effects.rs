//! Which outside calls a state wants, and when it wants to be looked at again. Derived from the stored
//! state and nothing else, so a restart needs no path of its own.

use super::adoption::Verdict;
use super::model::{Account, AccountPhase, Call, PullSecret, RecordState, Rotation, RotationPhase};
use super::policy::{OnDeadline, Policy};
use crate::ids::{AccountId, RegistryId};
use crate::time::Timestamp;

/// One call that the state wants. It is announced before it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// For which account.
    pub account_id: AccountId,
    /// Where.
    pub registry_id: RegistryId,
    /// Which call.
    pub call: Call,
    /// How often it has failed.
    pub attempt: u32,
    /// Not before this.
    pub due: Timestamp,
    /// A daily look at residue, which must never delay fresh work.
    pub residue: bool,
}

/// The wanted calls, at most one per account and none for an account whose call is running, those of the
/// future included.
#[must_use]
pub fn effects(record: &PullSecret, now: Timestamp) -> Vec<Effect> {
    if record.quarantine.is_some_and(|quarantine| quarantine.retry_at > now) {
        return Vec::new();
    }
    record.accounts.iter().filter_map(|account| effect(record, account)).collect()
}

fn effect(record: &PullSecret, account: &Account) -> Option<Effect> {
    if account.call.is_some() {
        return None;
    }
    let (call, due) = record.wanted_call(account)?;
    Some(Effect {
        account_id: account.id,
        registry_id: account.registry_id.clone(),
        call,
        attempt: account.trouble.attempts,
        due,
        residue: account.phase == AccountPhase::Residue,
    })
}

/// The earliest time at which something is to be done without anybody asking.
#[must_use]
pub fn due_at(record: &PullSecret, policy: &Policy) -> Option<Timestamp> {
    if let Some(quarantine) = record.quarantine {
        return Some(quarantine.retry_at);
    }
    let calls = record.accounts.iter().filter_map(|account| match account.call {
        Some(running) => Some(running.at.plus(policy.call_lost_after(&account.registry_id))),
        None => effect(record, account).map(|effect| effect.due),
    });
    calls.chain(timer(record, policy)).min()
}

fn timer(record: &PullSecret, policy: &Policy) -> Option<Timestamp> {
    let ends = record.state_since.max(record.created_at);
    let left = record.accounts.iter().any(|account| account.phase != AccountPhase::Gone);
    match &record.state {
        RecordState::Issuing { .. } | RecordState::Revoking => None,
        RecordState::Active { .. } => {
            record.next_rotation_at.into_iter().chain(reissue(record, policy)).min()
        }
        RecordState::Rotating { rotation, .. } => rotation_timer(record, rotation, policy),
        RecordState::Revoked => (!left).then(|| ends.plus(policy.history_after)),
        RecordState::Denied(_) => (!left).then(|| ends.plus(policy.denied_after)),
        RecordState::Failed(_) => (!left).then(|| ends.plus(policy.failed_after)),
    }
}

/// When dead accounts are tried again to be replaced.
fn reissue(record: &PullSecret, policy: &Policy) -> Option<Timestamp> {
    let dead = policy.reissue && record.accounts.iter().any(Account::is_surely_dead);
    record.reissue_pause.filter(|_| dead).map(|pause| pause.until)
}

fn rotation_timer(record: &PullSecret, rotation: &Rotation, policy: &Policy) -> Option<Timestamp> {
    let since = record.served()?.since;
    let proof = || {
        let min_overlap = policy.min_overlap_for(rotation.reason);
        match record.retirement(policy, min_overlap, since) {
            Verdict::Now => Some(since),
            Verdict::NotYet { again_at } => again_at,
        }
    };
    match &rotation.phase {
        RotationPhase::Pending if record.crowded_out().is_some() => record
            .crowd_deadline(policy)
            .map(|deadline| proof().map_or(deadline, |at| at.min(deadline))),
        // The end of a deletion wakes it, or whoever knows whose turn it is; and its window's end.
        RotationPhase::Pending => {
            let window = rotation.slot.and(record.window(policy));
            window.and_then(|window| window.closes_at(rotation.created_at))
        }
        RotationPhase::DualCredentialPeriod { rollback_at: Some(_), .. }
        | RotationPhase::RollingBack { drifted: true, .. }
        | RotationPhase::RollingBack { decided: Some(_), .. } => None,
        RotationPhase::DualCredentialPeriod { deadline, on_deadline, drifted, .. } => {
            let deadline = match on_deadline {
                OnDeadline::Hold => None,
                OnDeadline::Revoke if *drifted => None,
                OnDeadline::Revoke | OnDeadline::Rollback => Some(*deadline),
            };
            let proof = if *drifted { None } else { proof() };
            proof.into_iter().chain(deadline).min()
        }
        RotationPhase::RollingBack { decided: None, .. } => proof(),
        RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => None,
    }
}
