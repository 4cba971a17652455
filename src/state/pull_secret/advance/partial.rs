//! Rotations that replace only some accounts: those that wait for another one, and those of dead accounts.

use super::super::accept::{renewed, requested, superseded};
use super::super::model::{
    Account, End, PullSecret, RecordState, Rotation, RotationError, RotationPhase, RotationReason,
    Scope,
};
use super::super::{Context, Event};
use crate::ids::{RegistryId, RotationId};
use crate::time::Timestamp;

/// What waited begins as soon as nothing else runs. Its generations are those of that moment, and it does
/// what is still to be done: the rotation before it may have been rolled back, or have done it.
pub(super) fn next_in_line(record: &PullSecret, at: Timestamp) -> Option<Event> {
    let waiting = record.waiting.as_deref()?;
    let mut rotation = renewed(record, waiting);
    let left = match &mut rotation.scope {
        Scope::Registries { added, removed } => {
            added.retain(|id| !record.registries.contains(id));
            removed.retain(|id| record.registries.contains(id));
            if added.is_empty() && removed.is_empty() {
                let end = End::Completed { old_credentials_revoked: true };
                return Some(Event::WaitingEnded { end, at });
            }
            record.registries.len() + added.len() - removed.len()
        }
        Scope::Whole | Scope::Accounts { .. } => record.registries.len(),
    };
    if left == 0 {
        let error = RotationError {
            code: "last_registry".to_owned(),
            message: "the last registry cannot be removed".to_owned(),
            registry_id: None,
        };
        return Some(Event::WaitingEnded { end: End::Cancelled(Some(error)), at });
    }
    Some(Event::RotationRequested { rotation })
}

/// Served accounts that are surely dead are made anew, where that is wanted. Nothing else heals the cluster,
/// so a running rotation that does not replace them anyway gives way.
pub(super) fn reissue(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let replaced = record.reissued(context)?;
    match &record.state {
        RecordState::Active { .. } => {
            let id = RotationId(context.entropy.uuid(context.now));
            let (reason, scope) = (RotationReason::Drift, Scope::Accounts { replaced });
            let rotation = requested(record, id, reason, scope, context);
            Some(Event::RotationRequested { rotation })
        }
        RecordState::Rotating { rotation, .. } => {
            gives_way(rotation, &replaced, &record.registries)
                .then(|| superseded(record, "a rotation because of drift took its place", context))
        }
        RecordState::Issuing { .. }
        | RecordState::Revoking
        | RecordState::Revoked
        | RecordState::Denied(_)
        | RecordState::Failed(_) => None,
    }
}

fn gives_way(rotation: &Rotation, dead: &[RegistryId], recorded: &[RegistryId]) -> bool {
    // A compromise has a deadline that must not get lost.
    if rotation.reason == RotationReason::Compromise {
        return false;
    }
    match &rotation.phase {
        // It replaces the dead account already, or goes on to the next once it has replaced its own.
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials => {
            let makes = rotation.scope.makes(recorded);
            rotation.reason != RotationReason::Drift && !dead.iter().all(|id| makes.contains(id))
        }
        // A rollback that is being tried may heal it at once.
        RotationPhase::DualCredentialPeriod { rollback_at, .. } => rollback_at.is_none(),
        RotationPhase::RollingBack { .. } => true,
        // It ends by itself, and what it deletes has to be gone in any case.
        RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}

impl PullSecret {
    /// The registries of served accounts that are to be made anew now.
    fn reissued(&self, context: &Context<'_>) -> Option<Vec<RegistryId>> {
        let paused = self.reissue_pause.is_some_and(|pause| pause.until > context.now);
        if !context.policy.reissue || paused {
            return None;
        }
        let enabled = |account: &&Account| context.policy.registry(&account.registry_id).enabled;
        let dead = self.accounts.iter().filter(|account| account.is_surely_dead());
        let dead: Vec<_> =
            dead.filter(enabled).map(|account| account.registry_id.clone()).collect();
        (!dead.is_empty()).then_some(dead)
    }
}
