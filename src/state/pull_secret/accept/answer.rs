//! `Answer`: a call ended. The rules of `DESIGN` section 3, "Accounts", are here.

use std::time::Duration;

use super::super::model::{
    Account, AccountPhase, Announcement, Call, GoneHow, PullSecret, RotationPhase, SURE, Trouble,
};
use super::super::{
    Answer, Context, CreateAnswer, Event, Failure, LookupAnswer, Ownership, Rejection,
    RevokeAnswer, VerifyAnswer,
};
use crate::ids::{AccountId, CallToken};
use crate::state::shared::cluster_hash;
use crate::time::Timestamp;

/// Between two looks at a served account that seems dead.
const BETWEEN_LOOKS: Duration = Duration::from_secs(60);
const DAILY: Duration = Duration::from_secs(24 * 60 * 60);

/// An outcome is accepted only while its token is current.
pub(super) fn answer(
    record: &PullSecret,
    account_id: AccountId,
    token: CallToken,
    answer: &Answer,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let account = record.account(account_id).ok_or(Rejection::NotCurrent)?;
    let Some(running) = account.call else { return Err(Rejection::NotCurrent) };
    if running.token != token || running.call != answer.call() {
        return Err(Rejection::NotCurrent);
    }
    Ok(outcome(record, account, running, answer, context))
}

/// Nobody will answer the calls of the owner before: each is closed as unknown.
pub(super) fn take_over(state: Option<&PullSecret>, context: &mut Context<'_>) -> Vec<Event> {
    let Some(record) = state else { return Vec::new() };
    record
        .accounts
        .iter()
        .filter_map(|account| account.call.map(|running| (account, running)))
        .flat_map(|(account, running)| {
            outcome(record, account, running, &Answer::abandoned(running.call), context)
        })
        .collect()
}

/// What an answer means for its account.
pub(in super::super) fn outcome(
    record: &PullSecret,
    account: &Account,
    running: Announcement,
    answer: &Answer,
    context: &mut Context<'_>,
) -> Vec<Event> {
    match answer {
        Answer::Create(answer) => vec![create(account, answer, context)],
        Answer::Lookup(answer) => vec![lookup(account, answer, context)],
        Answer::Verify(answer) => verify(record, account, running, answer, context),
        Answer::Revoke(answer) => vec![revoke(account, running, answer, context)],
    }
}

/// The create of an account whose deletion was decided meanwhile still tells what there is to delete.
fn create(account: &Account, answer: &CreateAnswer, context: &mut Context<'_>) -> Event {
    let account_id = account.id;
    let at = context.now;
    let overtaken = account.phase != AccountPhase::Creating;
    match answer {
        CreateAnswer::Created { remote_id, username } => Event::AccountCreated {
            account_id,
            remote_id: remote_id.clone(),
            username: username.clone(),
            adopted: false,
            at,
        },
        CreateAnswer::AlreadyExists if overtaken => gone(account_id, GoneHow::Foreign, at),
        CreateAnswer::AlreadyExists => Event::NameTaken { account_id, at },
        CreateAnswer::Refused(_) if overtaken => gone(account_id, GoneHow::NeverCreated, at),
        CreateAnswer::Refused(message) => {
            Event::AccountRefused { account_id, message: message.clone(), at }
        }
        CreateAnswer::NotApplied(_) if overtaken => gone(account_id, GoneHow::NeverCreated, at),
        CreateAnswer::NotApplied(failure) => failed(account, Call::Create, failure, context),
        CreateAnswer::Unknown(failure) => {
            let (trouble, next_attempt_at) = after_failure(account, failure, context);
            // The first look comes at once; a registry that keeps losing answers is given time.
            let first = trouble.attempts <= 1 && failure.retry_after.is_none();
            let next_attempt_at = if first { at } else { next_attempt_at };
            Event::CallLost { account_id, call: Call::Create, trouble, next_attempt_at }
        }
    }
}

fn lookup(account: &Account, answer: &LookupAnswer, context: &mut Context<'_>) -> Event {
    let account_id = account.id;
    let at = context.now;
    let unanswered = account.unanswered_create_at.is_some();
    if account.phase != AccountPhase::Creating {
        // Overtaken by a deletion, which must not touch what is somebody else's.
        let foreign = |ownership: &Ownership| *ownership == Ownership::Foreign;
        return match answer {
            LookupAnswer::Present { ownership, .. } if foreign(ownership) => {
                gone(account_id, GoneHow::Foreign, at)
            }
            LookupAnswer::Present { .. } | LookupAnswer::Absent | LookupAnswer::Failed(_)
                if !unanswered =>
            {
                gone(account_id, GoneHow::Foreign, at)
            }
            LookupAnswer::Present { .. } | LookupAnswer::Absent | LookupAnswer::Failed(_) => {
                overtaken(account, Call::Lookup, context)
            }
        };
    }
    match answer {
        LookupAnswer::Present { remote_id, username, ownership, adoptable } => {
            // Without room for a marker the record of names decides: a name whose create may have been
            // applied is ours, one that was definitely taken before is not.
            let ours = match ownership {
                Ownership::ThisIntent => true,
                Ownership::Foreign => false,
                Ownership::NoMarker => unanswered,
            };
            match (ours, adoptable) {
                (true, true) => Event::AccountCreated {
                    account_id,
                    remote_id: remote_id.clone(),
                    username: username.clone(),
                    adopted: true,
                    at,
                },
                (true, false) => Event::AccountBurnt { account_id, at },
                (false, _) => gone(account_id, GoneHow::Foreign, at),
            }
        }
        LookupAnswer::Absent if unanswered => Event::AccountBurnt { account_id, at },
        // It was somebody else's and they removed it; the name is spent all the same.
        LookupAnswer::Absent => gone(account_id, GoneHow::Foreign, at),
        LookupAnswer::Failed(failure) => failed(account, Call::Lookup, failure, context),
    }
}

fn verify(
    record: &PullSecret,
    account: &Account,
    running: Announcement,
    answer: &VerifyAnswer,
    context: &mut Context<'_>,
) -> Vec<Event> {
    let account_id = account.id;
    let at = context.now;
    let dead = |message: &str, context: &mut Context<'_>| {
        let failure = Failure { message: message.to_owned(), retry_after: None, blocked: false };
        failed(account, Call::Verify, &failure, context)
    };
    let wanted = match account.phase {
        AccountPhase::Created | AccountPhase::Serving | AccountPhase::Retiring => true,
        AccountPhase::Planned
        | AccountPhase::Creating
        | AccountPhase::Verified
        | AccountPhase::Deleting
        | AccountPhase::Gone
        | AccountPhase::Burnt
        | AccountPhase::Residue => false,
    };
    if !wanted {
        return vec![overtaken(account, Call::Verify, context)];
    }
    let failure = match answer {
        VerifyAnswer::Valid => {
            let hash = cluster_hash(&record.cluster_id);
            let check_at = context.policy.next_check(hash, at);
            return vec![Event::AccountVerified { account_id, at: running.at, check_at }];
        }
        VerifyAnswer::Failed(failure) => {
            return vec![failed(account, Call::Verify, failure, context)];
        }
        VerifyAnswer::CannotPull => dead("the account may not pull", context),
        VerifyAnswer::Invalid => dead("the registry refuses the credential", context),
    };
    match account.phase {
        // A decision to delete must not rest on it for a moment; else a second look makes sure.
        AccountPhase::Serving if record.deletes() || account.dead_looks + 1 >= SURE => {
            vec![second_look(failure, context), Event::DriftFound { account_id, at }]
        }
        AccountPhase::Serving => {
            vec![second_look(failure, context), Event::DriftSuspected { account_id, at }]
        }
        // Nobody waits for the answer any more when the rotation was superseded or completed.
        AccountPhase::Retiring if record.wanted_call(account).is_some() => {
            vec![failure, Event::RollbackRefused { account_id, at }]
        }
        AccountPhase::Retiring
        | AccountPhase::Planned
        | AccountPhase::Creating
        | AccountPhase::Created
        | AccountPhase::Verified
        | AccountPhase::Deleting
        | AccountPhase::Gone
        | AccountPhase::Burnt
        | AccountPhase::Residue => vec![failure],
    }
}

/// Registries answer stale for a moment: no two looks come at once.
fn second_look(failure: Event, context: &Context<'_>) -> Event {
    let pause = context.policy.drift_interval.map_or(BETWEEN_LOOKS, |it| it.min(BETWEEN_LOOKS));
    let earliest = context.now.plus(pause);
    match failure {
        Event::CallFailed { account_id, call, trouble, next_attempt_at } => {
            let next_attempt_at = next_attempt_at.max(earliest);
            Event::CallFailed { account_id, call, trouble, next_attempt_at }
        }
        other => other,
    }
}

impl PullSecret {
    /// Whether something that was handed out is about to be deleted, if what is served turns out alive.
    fn deletes(&self) -> bool {
        match self.rotation().map(|rotation| &rotation.phase) {
            Some(
                RotationPhase::RevokingOld { .. }
                | RotationPhase::RollingBack { decided: Some(_), .. },
            ) => true,
            Some(RotationPhase::Pending) => self.crowded_out().is_some(),
            Some(
                RotationPhase::CreatingCredentials
                | RotationPhase::VerifyingCredentials
                | RotationPhase::DualCredentialPeriod { .. }
                | RotationPhase::RollingBack { decided: None, .. }
                | RotationPhase::RemovingNew { .. }
                | RotationPhase::Ended(_),
            )
            | None => false,
        }
    }
}

fn revoke(
    account: &Account,
    running: Announcement,
    answer: &RevokeAnswer,
    context: &mut Context<'_>,
) -> Event {
    let account_id = account.id;
    let at = context.now;
    match answer {
        RevokeAnswer::Done | RevokeAnswer::AlreadyGone => match settles_at(account, context) {
            Some(settled) if running.at <= settled => {
                let again_at = settled.plus(Duration::from_millis(1));
                Event::GoneUnsettled { account_id, again_at }
            }
            // It seems to have settled, but by a clock that jumped.
            Some(settled) if !context.time_is_trusted => {
                let settle_time = context.policy.registry(&account.registry_id).settle_time;
                Event::GoneUnsettled { account_id, again_at: at.max(settled).plus(settle_time) }
            }
            Some(_) | None => gone(account_id, GoneHow::Deleted, at),
        },
        RevokeAnswer::Refused(message) => Event::AccountResidue {
            account_id,
            message: message.clone(),
            next_attempt_at: at.plus(DAILY),
            at,
        },
        RevokeAnswer::Failed(failure) => {
            let (trouble, next_attempt_at) = after_failure(account, failure, context);
            let given_up = trouble.spent >= context.policy.give_up_after;
            if account.phase == AccountPhase::Residue || given_up {
                let message = failure.message.clone();
                let next_attempt_at = at.plus(DAILY);
                return Event::AccountResidue { account_id, message, next_attempt_at, at };
            }
            Event::CallFailed { account_id, call: Call::Revoke, trouble, next_attempt_at }
        }
    }
}

/// Until then a lost create may still be applied: only a call that begins later can say "gone".
fn settles_at(account: &Account, context: &Context<'_>) -> Option<Timestamp> {
    let settle_time = context.policy.registry(&account.registry_id).settle_time;
    account.unanswered_create_at.map(|announced| announced.plus(settle_time))
}

const fn gone(account_id: AccountId, how: GoneHow, at: Timestamp) -> Event {
    Event::AccountGone { account_id, how, at }
}

/// The call ran for a state that is no longer: its end only frees the name for the next call.
fn overtaken(account: &Account, call: Call, context: &Context<'_>) -> Event {
    let trouble = account.trouble.clone();
    Event::CallFailed { account_id: account.id, call, trouble, next_attempt_at: context.now }
}

fn failed(account: &Account, call: Call, failure: &Failure, context: &mut Context<'_>) -> Event {
    let (trouble, next_attempt_at) = after_failure(account, failure, context);
    Event::CallFailed { account_id: account.id, call, trouble, next_attempt_at }
}

/// Counts a failure. A blocked registry costs no attempt and stops the clock of `give_up_after`.
fn after_failure(
    account: &Account,
    failure: &Failure,
    context: &mut Context<'_>,
) -> (Trouble, Timestamp) {
    let (now, retry) = (context.now, &context.policy.retry);
    account.trouble.after(failure, now, retry, &mut context.entropy)
}
