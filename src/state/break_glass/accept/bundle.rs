//! `WantBundle` and `ConfirmBundle`: what the API servers have to trust.

use super::super::model::{AuthorityKind, BreakGlass};
use super::super::{Context, Event, Rejection};
use super::opened;
use crate::ids::ClusterId;

/// A bundle is never empty: without anything else it needs a placeholder.
pub(super) fn want(
    state: Option<&BreakGlass>,
    cluster_id: &ClusterId,
    context: &mut Context<'_>,
) -> Vec<Event> {
    let placeholder = |record: &BreakGlass| {
        record.authorities.iter().any(|authority| authority.kind == AuthorityKind::Placeholder)
    };
    if state.is_some_and(|record| !record.trusted().is_empty() || placeholder(record)) {
        return Vec::new();
    }
    let wanted = super::super::advance::wanted(AuthorityKind::Placeholder, context);
    opened(state, cluster_id, context).into_iter().chain([wanted]).collect()
}

/// A confirmed version settles every change that it contains; an older one says nothing new.
pub(super) fn confirm(
    state: Option<&BreakGlass>,
    version: u64,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let record = state.ok_or(Rejection::UnknownBundle)?;
    if version > record.bundle_version || record.bundle_version == 0 {
        return Err(Rejection::UnknownBundle);
    }
    if version <= record.confirmed_version {
        return Ok(Vec::new());
    }
    Ok(vec![Event::BundleConfirmed { version, at: context.now }])
}
