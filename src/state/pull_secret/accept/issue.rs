//! `Issue`: there shall be a pull secret. Idempotent: a hundred equal calls do what one does.

use super::super::model::{PullSecret, RecordState};
use super::super::{Context, Event, Rejection};
use super::partly;
use crate::ids::{ClusterId, Generation, RegistryId, RotationId};

pub(super) fn issue(
    state: Option<&PullSecret>,
    cluster_id: &ClusterId,
    wanted: Option<&[RegistryId]>,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    if let Some(list) = wanted {
        refuse_unknown(state, list, context)?;
    }
    let Some(record) = state else {
        let registries = wanted.map_or_else(|| context.policy.enabled_registries(), dedup);
        if registries.is_empty() {
            return Err(Rejection::NoRegistry);
        }
        return Ok(vec![accepted(cluster_id, registries, context.last_generation, context)]);
    };
    match &record.state {
        RecordState::Issuing { .. } | RecordState::Active { .. } | RecordState::Rotating { .. } => {
            match wanted {
                None => Ok(Vec::new()),
                Some(list) => grow(record, list, context),
            }
        }
        RecordState::Revoking => Err(Rejection::State { state: record.state.name() }),
        RecordState::Revoked | RecordState::Denied(_) | RecordState::Failed(_) => {
            let registries = wanted.map_or_else(|| record.registries.clone(), dedup);
            Ok(vec![accepted(&record.cluster_id, registries, record.last_generation, context)])
        }
    }
}

fn accepted(
    cluster_id: &ClusterId,
    registries: Vec<RegistryId>,
    last_generation: Generation,
    context: &Context<'_>,
) -> Event {
    let cluster_id = cluster_id.clone();
    Event::IssueAccepted { cluster_id, registries, last_generation, at: context.now }
}

/// A recorded registry may be named even when it was switched off since.
fn refuse_unknown(
    state: Option<&PullSecret>,
    list: &[RegistryId],
    context: &Context<'_>,
) -> Result<(), Rejection> {
    if list.is_empty() {
        return Err(Rejection::NoRegistry);
    }
    let recorded = |id: &RegistryId| state.is_some_and(|record| record.registries.contains(id));
    match list.iter().find(|id| !recorded(id) && !context.policy.registry(id).enabled) {
        Some(id) => Err(Rejection::UnknownRegistry(id.to_string())),
        None => Ok(()),
    }
}

/// A longer list adds, by a rotation of its own once something is served; a shorter one is refused.
fn grow(
    record: &PullSecret,
    list: &[RegistryId],
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    lacks_none(record, list)?;
    let is_new = |id: &&RegistryId| !record.registries.contains(id);
    let added: Vec<RegistryId> = list.iter().filter(is_new).cloned().collect();
    if record.served().is_none() {
        let registries = dedup(&[record.registries.as_slice(), &added].concat());
        let grown = Event::RegistriesAdded { registries, at: context.now };
        return Ok(if added.is_empty() { Vec::new() } else { vec![grown] });
    }
    let id = RotationId(context.entropy.uuid(context.now));
    partly::rotate_partly(record, id, &added, &[], context)
}

fn lacks_none(record: &PullSecret, list: &[RegistryId]) -> Result<(), Rejection> {
    let missing: Vec<String> =
        record.registries.iter().filter(|id| !list.contains(id)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Err(Rejection::RegistryMissing(missing));
    }
    Ok(())
}

pub(super) fn dedup(list: &[RegistryId]) -> Vec<RegistryId> {
    let mut sorted = list.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted
}
