//! Which accounts come and go by themselves.

use super::super::model::{
    Account, AccountPhase, End, GoneHow, PullSecret, RecordState, RotationPhase,
};
use super::super::{Context, Event};
use super::crowd::makes_room;
use crate::ids::AccountId;

/// Whatever ought to go is marked for deletion; what was never made goes at once.
pub(super) fn removal(record: &PullSecret, context: &Context<'_>) -> Option<Event> {
    let at = context.now;
    let goes = |account: &&Account| ought_to_go(record, account, context);
    record.accounts.iter().filter(goes).find_map(|account| {
        let account_id = account.id;
        let gone = |how| Some(Event::AccountGone { account_id, how, at });
        match account.phase {
            AccountPhase::Planned => gone(GoneHow::NeverCreated),
            // Neither running nor unanswered: the registry said that the name is somebody's.
            AccountPhase::Creating
                if account.call.is_none() && account.unanswered_create_at.is_none() =>
            {
                gone(GoneHow::Foreign)
            }
            AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring => Some(Event::DeletionDecided { account_id, at }),
            AccountPhase::Deleting
            | AccountPhase::Gone
            | AccountPhase::Burnt
            | AccountPhase::Residue => None,
        }
    })
}

/// Which accounts the state has no more use for. What was handed out goes only by a decision.
fn ought_to_go(record: &PullSecret, account: &Account, context: &Context<'_>) -> bool {
    let handed_out = account.phase.is_handed_out();
    match &record.state {
        RecordState::Revoking
        | RecordState::Revoked
        | RecordState::Denied(_)
        | RecordState::Failed(_) => true,
        RecordState::Issuing { generation } => Some(account.born_generation) != *generation,
        RecordState::Active { .. } => !handed_out,
        RecordState::Rotating { rotation, .. } => match &rotation.phase {
            RotationPhase::CreatingCredentials | RotationPhase::VerifyingCredentials => {
                !handed_out && account.born_generation != rotation.to
            }
            RotationPhase::RevokingOld { decided_at, .. } => {
                account.phase != AccountPhase::Serving
                    && (!handed_out || record.served_verified_since(*decided_at))
            }
            RotationPhase::RemovingNew { end } => {
                // A rollback was proved or completed by hand: nothing but what is served is in use.
                let all = *end == End::RolledBack;
                account.phase != AccountPhase::Serving
                    && (!handed_out || all || account.born_generation == rotation.to)
            }
            RotationPhase::Pending => !handed_out || makes_room(record, account, context),
            RotationPhase::DualCredentialPeriod { .. }
            | RotationPhase::RollingBack { .. }
            | RotationPhase::Ended(_) => !handed_out,
        },
    }
}

/// Every registry of the generation being made has one candidate; a spoilt name gets a successor.
pub(super) fn plan(record: &PullSecret, context: &mut Context<'_>) -> Option<Event> {
    let (generation, makes) = record.work()?;
    let registry = makes.iter().find(|id| record.candidate(generation, id).is_none())?.clone();
    let prefix = context.policy.registry(&registry).prefix;
    let name = context.entropy.account_name(&prefix, &record.cluster_id, generation);
    // The successor goes on counting where the spoilt name stopped, or a registry that loses every answer
    // would be asked for ever, at full speed. The first successor begins at once.
    let spoilt = record
        .accounts
        .iter()
        .rfind(|account| account.born_generation == generation && account.registry_id == registry);
    let mut trouble = spoilt.map(|account| account.trouble.clone()).unwrap_or_default();
    // A lost create was counted when it was lost, a name that is somebody else's is counted here.
    if spoilt.is_some_and(|account| account.phase == AccountPhase::Gone) {
        let message = "the name is taken by somebody else";
        trouble.count(message, context.now, &context.policy.retry);
    }
    let next_attempt_at = if trouble.attempts > 1 {
        context.now.plus(context.policy.retry.delay(trouble.attempts - 1, &mut context.entropy))
    } else {
        context.now
    };
    let account = Account {
        id: AccountId(context.entropy.uuid(context.now)),
        registry_id: registry,
        name,
        born_generation: generation,
        phase: AccountPhase::Planned,
        remote_id: None,
        username: None,
        call: None,
        unanswered_create_at: None,
        trouble,
        next_attempt_at,
        planned_at: context.now,
        created_at: None,
        verified_at: None,
        served_in: None,
        check_at: None,
        dead_looks: 0,
        last_used_at: None,
        gone_at: None,
    };
    Some(Event::AccountPlanned { account: Box::new(account) })
}
