//! `RotatePartly`, and an `Issue` that names more registries: the recorded set changes by a rotation of its
//! own, which waits while another one runs.

use super::super::model::{
    PullSecret, RecordState, Rotation, RotationPhase, RotationReason, Scope,
};
use super::super::{Context, Event, Rejection};
use super::rotate::requested;
use crate::ids::{RegistryId, RotationId};

/// The set grows and shrinks.
pub(super) fn rotate_partly(
    record: &PullSecret,
    id: RotationId,
    added: &[RegistryId],
    removed: &[RegistryId],
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let unknown = |id: &&RegistryId| !context.policy.registry(id).enabled;
    if let Some(id) = added.iter().find(unknown) {
        return Err(Rejection::UnknownRegistry(id.to_string()));
    }
    let missing: Vec<String> = removed
        .iter()
        .filter(|id| !record.registries.contains(id) || added.contains(id))
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        return Err(Rejection::RegistryMissing(missing));
    }
    let added = fresh(record, added);
    let removed = super::issue::dedup(removed);
    if added.is_empty() && removed.is_empty() {
        return Ok(Vec::new());
    }
    let left = record.registries.len() + added.len() - removed.len();
    if left == 0 {
        return Err(Rejection::NoRegistry);
    }
    let scope = Scope::Registries { added, removed };
    let rotation = requested(record, id, RotationReason::Registries, scope, context);
    match &record.state {
        RecordState::Active { .. } => Ok(vec![Event::RotationRequested { rotation }]),
        RecordState::Rotating { .. } => match &record.waiting {
            None => Ok(vec![Event::RotationQueued { rotation }]),
            Some(waiting) => {
                let rotation = Box::new(Rotation {
                    scope: merged(&waiting.scope, &rotation.scope),
                    ..Rotation::clone(waiting)
                });
                Ok(vec![Event::RotationQueued { rotation }])
            }
        },
        RecordState::Revoked => Err(Rejection::NoRecord),
        RecordState::Issuing { .. }
        | RecordState::Revoking
        | RecordState::Denied(_)
        | RecordState::Failed(_) => Err(Rejection::State { state: record.state.name() }),
    }
}

/// Those that are neither recorded nor on their way.
fn fresh(record: &PullSecret, added: &[RegistryId]) -> Vec<RegistryId> {
    let running = record.rotation().filter(|rotation| comes(&rotation.phase));
    let coming: Vec<&RegistryId> = running
        .into_iter()
        .chain(record.waiting.as_deref())
        .flat_map(|rotation| match &rotation.scope {
            Scope::Registries { added, .. } => added.as_slice(),
            Scope::Whole | Scope::Accounts { .. } => &[],
        })
        .collect();
    let mut fresh = super::issue::dedup(added);
    fresh.retain(|id| !record.registries.contains(id) && !coming.contains(&id));
    fresh
}

/// Whether what a rotation adds is still going to be served by it.
const fn comes(phase: &RotationPhase) -> bool {
    match phase {
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials => true,
        RotationPhase::DualCredentialPeriod { .. }
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RollingBack { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}

/// A rotation that waits has not begun, so it takes more on.
fn merged(waiting: &Scope, more: &Scope) -> Scope {
    let parts = |scope: &Scope| match scope {
        Scope::Registries { added, removed } => (added.clone(), removed.clone()),
        Scope::Whole | Scope::Accounts { .. } => (Vec::new(), Vec::new()),
    };
    let ((mut added, mut removed), (more_added, more_removed)) = (parts(waiting), parts(more));
    // The later wish wins.
    added.retain(|id| !more_removed.contains(id));
    removed.retain(|id| !more_added.contains(id));
    added.extend(more_added);
    removed.extend(more_removed);
    Scope::Registries { added: super::issue::dedup(&added), removed: super::issue::dedup(&removed) }
}
