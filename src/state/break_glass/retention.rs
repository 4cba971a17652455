//! When a credential that has ended is forgotten. The store removes rows by the same rule.

use super::model::{Credential, StateName};
use super::policy::Policy;
use crate::time::Timestamp;

/// The time at which it may be removed: when both its creation and its last change of state are older than
/// its kind is kept. One without a creation time is from before that was written down, and is never removed
/// by age.
#[must_use]
pub fn removable_at(credential: &Credential, policy: &Policy) -> Option<Timestamp> {
    let kept = match credential.state.name() {
        StateName::Denied => policy.denied_after,
        StateName::Failed => policy.failed_after,
        StateName::Revoked | StateName::Expired => policy.history_after,
        StateName::Requested
        | StateName::Accepted
        | StateName::Issuing
        | StateName::Active
        | StateName::AwaitingRevocation
        | StateName::Revoking => return None,
    };
    let created_at = credential.created_at?;
    Some(created_at.max(credential.state_since).plus(kept))
}
