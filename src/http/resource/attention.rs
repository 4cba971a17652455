//! What needs a person, read off one record.

use std::time::Duration;

use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::ids::{ClusterId, RegistryId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, PullSecret, RecordState, Refusal, RotationPhase,
};
use crate::time::Timestamp;

/// Why a person is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum AttentionKind {
    Overdue,
    Stuck,
    Irrevocable,
    Drifted,
    Denied,
    Failed,
    Quarantined,
}

/// One thing that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct AttentionItem {
    pub kind: AttentionKind,
    pub cluster_id: ClusterId,
    pub registry_id: Option<RegistryId>,
    pub rotation_id: Option<RotationId>,
    pub since: Timestamp,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub next_attempt_at: Option<Timestamp>,
}

/// What of a record needs a person now. `stuck_after`: two intervals between tries.
#[must_use]
pub fn attention(record: &PullSecret, stuck_after: Duration, now: Timestamp) -> Vec<AttentionItem> {
    let item = |kind, since| AttentionItem {
        kind,
        cluster_id: record.cluster_id.clone(),
        registry_id: None,
        rotation_id: record.rotation().map(|rotation| rotation.id),
        since,
        attempts: 0,
        last_error: None,
        next_attempt_at: None,
    };
    let mut items = Vec::new();
    if let Some(quarantine) = record.quarantine {
        let mut found = item(AttentionKind::Quarantined, quarantine.since);
        found.next_attempt_at = Some(quarantine.retry_at);
        items.push(found);
    }
    let refused = |kind, refusal: &Refusal| AttentionItem {
        registry_id: Some(refusal.registry_id.clone()),
        last_error: Some(refusal.message.clone()),
        ..item(kind, record.state_since)
    };
    match &record.state {
        RecordState::Denied(refusal) => items.push(refused(AttentionKind::Denied, refusal)),
        RecordState::Failed(refusal) => items.push(refused(AttentionKind::Failed, refusal)),
        RecordState::Rotating { rotation, .. } => {
            if let Some(deadline) = in_dual_period(&rotation.phase).filter(|end| *end <= now) {
                items.push(item(AttentionKind::Overdue, deadline));
            }
            if rotation.drifted() {
                let since = rotation.promoted_at.unwrap_or(rotation.created_at);
                items.push(item(AttentionKind::Drifted, since));
            }
        }
        RecordState::Issuing { .. }
        | RecordState::Active { .. }
        | RecordState::Revoking
        | RecordState::Revoked => {}
    }
    for account in &record.accounts {
        let Some((kind, since)) = of_account(account, stuck_after, now) else { continue };
        items.push(AttentionItem {
            registry_id: Some(account.registry_id.clone()),
            attempts: account.trouble.attempts,
            last_error: account.trouble.last_error.clone(),
            next_attempt_at: Some(account.next_attempt_at),
            ..item(kind, since)
        });
    }
    items
}

fn of_account(
    account: &Account,
    stuck_after: Duration,
    now: Timestamp,
) -> Option<(AttentionKind, Timestamp)> {
    let since = account.trouble.since;
    if account.phase == AccountPhase::Residue {
        return Some((AttentionKind::Irrevocable, since.unwrap_or(account.planned_at)));
    }
    let since = since.filter(|since| account.trouble.blocked && now.since(*since) > stuck_after)?;
    Some((AttentionKind::Stuck, since))
}

fn in_dual_period(phase: &RotationPhase) -> Option<Timestamp> {
    match phase {
        RotationPhase::DualCredentialPeriod { deadline, .. }
        | RotationPhase::RollingBack { deadline, .. } => Some(*deadline),
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => None,
    }
}
