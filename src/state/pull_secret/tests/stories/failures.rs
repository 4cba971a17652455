//! Whose fault is it? Refusals, blocked registries, giving up, residue.

use std::time::Duration;

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::Generation;

fn not_applied(blocked: bool) -> Answer {
    Answer::Create(CreateAnswer::NotApplied(failure(blocked)))
}

/// Answers every due create the same way until the record or the rotation moves on.
fn fail_for(told: &mut Told, time: std::time::Duration, blocked: bool) {
    let until = told.now.plus(time);
    while told.due_at().is_some_and(|due| due <= until) {
        told.now = told.due_at().unwrap().max(told.now);
        told.tell(&Command::Tick).unwrap();
        if !told.wants(Call::Create) {
            return;
        }
        told.call(not_applied(blocked));
    }
    told.now = until;
    told.tell(&Command::Tick).unwrap();
}

#[test]
fn all_or_nothing() {
    let mut told = Told::with(&["harbor", "quay"]);
    told.issue().unwrap();
    told.call_at("harbor", created());
    told.call_at("harbor", valid());
    assert_eq!((told.name(), told.served()), (StateName::Issuing, 0));
    told.call_at("quay", created());
    assert_eq!(told.served(), 0, "made is not verified");
    told.call_at("quay", valid());
    assert_eq!((told.name(), told.served()), (StateName::Active, 1));
}

#[test]
fn a_refusal_of_the_account_denies_and_deletes_what_was_made() {
    let mut told = Told::with(&["harbor", "quay"]);
    told.issue().unwrap();
    told.call_at("harbor", created());
    told.call_at("quay", refused());
    assert_eq!(told.name(), StateName::Denied);
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
    told.issue().unwrap();
    assert_eq!(told.record().state, RecordState::Issuing { generation: None }, "it waits: drain");
    told.call(deleted());
    assert_eq!(
        told.record().state,
        RecordState::Issuing { generation: Some(Generation(2)) },
        "the next generation"
    );
}

#[test]
fn a_refused_rotation_fails_with_the_old_one_served() {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(refused());
    let Some(End::Failed(error)) = told.ended() else { panic!("{:?}", told.ended()) };
    assert_eq!(error.code, "denied");
    assert_eq!((told.name(), told.served()), (StateName::Active, 1));
}

#[test]
fn trouble_that_outlasts_give_up_after_fails() {
    let mut told = Told::new();
    told.issue().unwrap();
    fail_for(&mut told, 23 * HOUR, false);
    assert_eq!(told.name(), StateName::Issuing);
    fail_for(&mut told, 3 * HOUR, false);
    assert_eq!(told.name(), StateName::Failed);
}

#[test]
fn a_rotation_that_gives_up_fails_with_the_old_one_served() {
    let mut told = Told::active();
    told.rotate().unwrap();
    fail_for(&mut told, 26 * HOUR, false);
    let Some(End::Failed(error)) = told.ended() else { panic!("{:?}", told.ended()) };
    assert_eq!(error.code, "gave_up");
    assert_eq!(told.served(), 1);
}

#[test]
fn a_blocked_registry_costs_no_attempt_and_stops_the_clock() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(not_applied(true));
    assert_eq!(told.account(1).trouble.attempts, 0);
    told.policy.retry.max = 6 * HOUR;
    told.policy.retry.initial = HOUR;
    told.pass(HOUR);
    fail_for(&mut told, 10 * HOUR, false);
    let spent = told.account(1).trouble.spent;
    assert!(spent > HOUR);
    fail_for(&mut told, 30 * DAY, true);
    assert_eq!(told.name(), StateName::Issuing, "only the registry's own time has passed");
    assert_eq!(told.account(1).trouble.spent, spent);
    fail_for(&mut told, 10 * HOUR, false);
    assert!(told.account(1).trouble.spent > spent, "it resumes when the registry heals");
}

#[test]
fn a_call_that_is_put_off_costs_nothing_either() {
    let mut told = Told::new();
    told.issue().unwrap();
    let until = told.now.plus(HOUR);
    let account_id = told.account(1).id;
    let reason = "breaker open".to_owned();
    told.tell(&Command::Defer { account_id, until, reason }).unwrap();
    let trouble = &told.account(1).trouble;
    assert!(trouble.blocked && trouble.attempts == 0 && trouble.counting_since.is_none());
    assert!(told.due().is_empty());
    assert_eq!(told.due_at(), Some(until));
}

#[test]
fn a_registry_may_say_when_to_come_back() {
    let mut told = Told::new();
    told.issue().unwrap();
    let retry_after = Some(3 * HOUR);
    let failure = Failure { retry_after, ..failure(false) };
    told.call(Answer::Create(CreateAnswer::NotApplied(failure)));
    assert_eq!(told.due_at(), Some(told.now.plus(3 * HOUR)));
}

#[test]
fn no_wish_of_a_registry_puts_a_cluster_off_for_good() {
    for blocked in [false, true] {
        let mut told = Told::new();
        told.issue().unwrap();
        let retry_after = Some(Duration::from_secs(u64::MAX));
        let failure = Failure { retry_after, ..failure(blocked) };
        told.call(Answer::Create(CreateAnswer::NotApplied(failure)));
        assert_eq!(told.due_at(), Some(told.now.plus(24 * HOUR)));
    }
}

#[test]
fn an_invalid_login_before_promotion_is_tried_again() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(created());
    told.call(invalid());
    told.pass(MINUTE);
    told.call(Answer::Verify(VerifyAnswer::CannotPull));
    assert_eq!((told.name(), told.served()), (StateName::Issuing, 0));
    told.pass(HOUR);
    told.call(valid());
    assert_eq!(told.served(), 1);
}

#[test]
fn a_refused_deletion_is_residue_and_the_rotation_completes() {
    let mut told = Told::dual();
    told.complete().unwrap();
    told.call(valid());
    told.call(not_deletable());
    assert_eq!(told.ended(), Some(&End::Completed { old_credentials_revoked: false }));
    assert_eq!(told.name(), StateName::Active);
    told.pass(MINUTE);
    told.rotate().unwrap();
    assert_eq!(told.phase(), "creating_credentials", "residue does not block the next one");
    told.work();
    told.complete().unwrap();
    told.work();
    let end = End::Completed { old_credentials_revoked: true };
    assert_eq!(told.ended(), Some(&end), "the residue is not this rotation's");
}

#[test]
fn a_deletion_that_is_given_up_is_residue() {
    let mut told = Told::active();
    told.delete().unwrap();
    let mut tries = 0;
    while told.phases(1) == [AccountPhase::Deleting] {
        told.now = told.due_at().unwrap().max(told.now);
        told.call(Answer::Revoke(RevokeAnswer::Failed(failure(false))));
        tries += 1;
        assert!(tries < 100);
    }
    assert_eq!(told.phases(1), [AccountPhase::Residue]);
    assert_eq!(told.name(), StateName::Revoking);
}

#[test]
fn residue_is_tried_daily_and_at_once_by_a_repeated_delete() {
    let mut told = Told::active();
    told.delete().unwrap();
    told.call(not_deletable());
    assert_eq!(told.name(), StateName::Revoking);
    assert_eq!(told.due_at(), Some(told.now.plus(DAY)));
    told.pass(DAY);
    assert!(told.due()[0].residue);
    told.call(Answer::Revoke(RevokeAnswer::Failed(failure(false))));
    assert_eq!(told.due_at(), Some(told.now.plus(DAY)));
    assert_eq!(names(&told.delete().unwrap()), ["retry_requested"]);
    told.call(deleted());
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn residue_ends_without_the_registrys_word_only_by_force() {
    let mut told = Told::active();
    let account_id = told.account(1).id;
    let force = Command::ForceGone { account_id };
    assert!(told.tell(&force).is_err(), "a served account");
    told.delete().unwrap();
    assert!(told.tell(&force).is_err(), "not tried yet");
    told.call(not_deletable());
    let events = told.tell(&force).unwrap();
    assert_eq!(names(&events), ["account_gone", "revoked"]);
}

#[test]
fn a_clock_that_jumps_does_not_use_up_the_patience() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(not_applied(false));
    told.pass(365 * DAY);
    told.call(not_applied(false));
    assert_eq!(told.name(), StateName::Issuing);
}
