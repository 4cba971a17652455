//! Drain, DELETE in every state, retention, quarantine.

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::Generation;

#[test]
fn issuing_is_idempotent() {
    let mut told = Told::new();
    told.issue().unwrap();
    let before = told.state.clone();
    for _ in 0..100 {
        assert!(told.issue().unwrap().is_empty());
    }
    assert_eq!(told.state, before);
}

#[test]
fn the_recorded_set_is_what_counts_afterwards() {
    let mut told = Told::with(&["harbor", "quay"]);
    assert!(matches!(told.issue_at(&["nexus"]), Err(Rejection::UnknownRegistry(_))));
    told.issue_at(&["quay", "quay"]).unwrap();
    assert_eq!(told.record().registries, [registry("quay")]);
    told.issue().unwrap();
    assert_eq!(told.record().registries, [registry("quay")]);
    assert_eq!(told.issue_at(&[]), Err(Rejection::NoRegistry));
    assert!(matches!(told.issue_at(&["harbor"]), Err(Rejection::RegistryMissing(_))));
    told.call(refused());
    told.issue_at(&["harbor"]).unwrap();
    assert_eq!(told.record().registries, [registry("harbor")], "a new start replaces it");
}

/// A rotation failed and left a burnt name that has to settle first.
fn undrained() -> Told {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(Answer::lost(Call::Create, "reset"));
    told.cancel().unwrap();
    told.call(gone());
    assert_eq!(told.phases(2), [AccountPhase::Deleting]);
    told
}

#[test]
fn a_rotation_waits_until_the_last_one_is_drained() {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(Answer::lost(Call::Create, "reset"));
    told.call(Answer::Lookup(LookupAnswer::Absent));
    told.cancel().unwrap();
    assert_eq!(told.name(), StateName::Active);
    assert_eq!(told.phases(2), [AccountPhase::Burnt]);
    told.rotate().unwrap();
    assert_eq!(told.phase(), "pending");
    assert!(told.due_at().is_some(), "the deletion will wake it");
    told.pass(HOUR);
    told.work();
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 3));
}

#[test]
fn a_compromise_does_not_wait() {
    let mut told = undrained();
    told.may_start = false;
    told.compromise().unwrap();
    assert_eq!(told.phase(), "creating_credentials");
    assert!(told.wants(Call::Create));
}

#[test]
fn a_rotation_waits_for_its_turn() {
    let mut told = Told::active();
    told.may_start = false;
    told.rotate().unwrap();
    told.pass(DAY);
    assert_eq!(told.phase(), "pending");
    assert!(told.record().waits_for_turn());
    assert_eq!(told.due_at(), None, "nothing to look at until it is called");
    told.may_start = true;
    told.pass(MINUTE);
    assert_eq!(told.phase(), "creating_credentials");
}

#[test]
fn delete_without_a_record_is_done() {
    assert_eq!(Told::new().delete(), Ok(Vec::new()));
}

/// DELETE while a call runs: the call's end is awaited, then the account is deleted.
fn delete_during(mut told: Told, running: (crate::ids::AccountId, crate::ids::CallToken)) -> Told {
    told.delete().unwrap();
    assert_eq!((told.name(), told.served()), (StateName::Revoking, 0));
    assert!(
        told.due().iter().all(|effect| effect.account_id != running.0),
        "at most one call per name"
    );
    told
}

#[test]
fn delete_during_a_create_deletes_what_the_create_made() {
    let mut told = Told::new();
    told.issue().unwrap();
    let running = told.announce(Call::Create);
    let mut told = delete_during(told, running);
    let mut unanswered = told.clone();
    told.answer(running, created()).unwrap();
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
    told.call(deleted());
    assert_eq!(told.name(), StateName::Revoked);

    let mut refusing = unanswered.clone();
    refusing.answer(running, refused()).unwrap();
    assert_eq!(refusing.name(), StateName::Revoked, "nothing was made");

    let mut taken = unanswered.clone();
    taken.answer(running, Answer::Create(CreateAnswer::AlreadyExists)).unwrap();
    assert_eq!(taken.name(), StateName::Revoked, "somebody else's is left alone");

    unanswered.answer(running, Answer::lost(Call::Create, "reset")).unwrap();
    unanswered.call(gone());
    assert_eq!(unanswered.name(), StateName::Revoking, "it may still appear");
}

#[test]
fn delete_during_a_login_awaits_its_end() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(created());
    let running = told.announce(Call::Verify);
    let mut told = delete_during(told, running);
    told.answer(running, valid()).unwrap();
    assert_eq!(told.served(), 0, "a decision to delete is final");
    told.work();
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn delete_ends_a_rotation_and_revokes_both_generations() {
    let mut told = Told::dual();
    told.complete().unwrap();
    let running = told.announce(Call::Verify);
    let mut told = delete_during(told, running);
    let Some(End::Cancelled(Some(error))) = told.ended() else { panic!("{:?}", told.ended()) };
    assert_eq!(error.code, "revoked");
    told.answer(running, invalid()).unwrap();
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
    assert_eq!(told.phases(2), [AccountPhase::Deleting]);
    told.work();
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn delete_is_allowed_on_what_failed() {
    for answer in [refused(), created()] {
        let mut told = Told::with(&["harbor", "quay"]);
        told.issue().unwrap();
        told.call_at("quay", created());
        told.call_at("harbor", answer);
        let denied = told.name() == StateName::Denied;
        told.delete().unwrap();
        assert_eq!(told.name(), StateName::Revoking, "denied before: {denied}");
        assert!(matches!(told.issue(), Err(Rejection::State { .. })));
        told.work();
        assert_eq!(told.name(), StateName::Revoked);
    }
}

#[test]
fn a_generation_number_is_never_used_twice() {
    let mut told = Told::dual();
    told.delete().unwrap();
    told.work();
    told.issue().unwrap();
    assert_eq!(
        told.record().state,
        RecordState::Issuing { generation: Some(Generation(3)) },
        "after revoked"
    );
    told.delete().unwrap();
    told.pass(91 * DAY);
    assert!(told.state.is_none(), "removed");
    told.issue().unwrap();
    assert_eq!(
        told.record().state,
        RecordState::Issuing { generation: Some(Generation(4)) },
        "the counter outlives the record"
    );
}

#[test]
fn records_go_after_their_retention() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(refused());
    assert_eq!(told.due_at(), Some(told.now.plus(48 * HOUR)));
    told.pass(47 * HOUR);
    assert_eq!(told.name(), StateName::Denied);
    told.pass(HOUR);
    assert!(told.state.is_none());

    let mut told = Told::active();
    told.delete().unwrap();
    told.work();
    assert_eq!(told.due_at(), Some(told.now.plus(90 * DAY)));
    told.pass(90 * DAY);
    assert!(told.state.is_none());
}

#[test]
fn a_record_stays_while_anything_of_it_is_left() {
    let mut told = Told::with(&["harbor", "quay"]);
    told.issue().unwrap();
    told.call_at("harbor", created());
    told.call_at("quay", refused());
    told.call_at("harbor", not_deletable());
    told.pass(400 * DAY);
    assert_eq!(told.name(), StateName::Denied);
    told.call_at("harbor", deleted());
    assert!(told.state.is_none());
}

#[test]
fn a_quarantined_credential_stands_still_but_listens() {
    let mut told = Told::dual();
    told.pass(MINUTE);
    let retry_at = told.now.plus(HOUR);
    told.tell(&Command::Quarantine { retry_at }).unwrap();
    assert_eq!(told.complete(), Err(Rejection::Quarantined { retry_at }));
    assert_eq!(told.delete(), Err(Rejection::Quarantined { retry_at }));
    told.heartbeat("pool", 2).unwrap();
    assert_eq!((told.served(), told.due_at()), (2, Some(retry_at)));
    assert!(told.due().is_empty());
    told.policy.min_overlap = MINUTE;
    told.now = retry_at;
    told.tell(&Command::Release).unwrap();
    assert_eq!(told.phase(), "revoking_old", "it goes on where it was");
}
