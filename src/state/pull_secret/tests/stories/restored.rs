//! The database was restored: no row is taken at its word before its registry was asked. And what a listing
//! says of an account that is handed out.

use std::time::Duration;

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;

fn restored(mut told: Told) -> (Told, Vec<Event>) {
    told.pass(MINUTE);
    told.restored_at = Some(told.now);
    let events = told.pass(Duration::ZERO);
    (told, events)
}

#[test]
fn a_create_that_may_have_been_sent_is_looked_up_first() {
    let mut told = Told::new();
    told.issue().unwrap();
    assert!(told.wants(Call::Create));
    let (mut told, events) = restored(told);
    assert_eq!(names(&events), ["doubted"]);
    assert!(told.wants(Call::Lookup) && !told.wants(Call::Create));
    let events = told.call(Answer::Lookup(LookupAnswer::Absent));
    assert_eq!(names(&events), ["account_gone", "account_planned"]);
    assert!(told.wants(Call::Create), "the new name is not doubted");
    told.work();
    assert_eq!(told.name(), StateName::Active);
}

#[test]
fn what_is_handed_out_is_verified_anew_and_only_once() {
    let (mut told, events) = restored(Told::active());
    assert_eq!(names(&events), ["doubted"]);
    assert_eq!(told.pass(Duration::ZERO), Vec::new(), "once");
    assert!(told.wants(Call::Verify));
    told.call(valid());
    assert_eq!(told.due(), Vec::new());
    // A second restore doubts everything again.
    let (told, events) = restored(told);
    assert_eq!(names(&events), ["doubted"]);
    assert!(told.wants(Call::Verify));
}

#[test]
fn a_dead_account_that_is_handed_out_is_drifted_until_it_lives_again() {
    let (mut told, _) = restored(Told::active());
    assert_eq!(names(&told.call(invalid())), ["call_failed", "drift_suspected"]);
    told.pass(MINUTE);
    assert_eq!(names(&told.call(invalid())), ["call_failed", "drift_found"]);
    assert_eq!(told.account(1).verified_at, None);
    told.pass(HOUR);
    told.call(valid());
    assert!(told.account(1).verified_at.is_some());
    assert_eq!(told.due(), Vec::new());
}

#[test]
fn nothing_is_gone_before_the_settle_time_after_a_restore() {
    let mut told = Told::active();
    told.delete().unwrap();
    let (mut told, _) = restored(told);
    assert_eq!(names(&told.call(gone())), ["gone_unsettled"]);
    told.pass(11 * MINUTE);
    told.call(gone());
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn a_decision_from_before_is_verified_once_more() {
    let mut told = Told::dual();
    told.pass(MINUTE);
    told.complete().unwrap();
    let (mut told, _) = restored(told);
    assert!(told.wants(Call::Verify) && !told.wants(Call::Revoke));
    told.call(valid());
    assert!(told.wants(Call::Revoke));
}

#[test]
fn an_account_that_was_not_served_yet_is_verified_anew() {
    let mut told = Told::with(&["quay", "harbor"]);
    told.issue().unwrap();
    told.call_at("quay", created());
    told.call_at("quay", valid());
    let (mut told, _) = restored(told);
    told.call_at("harbor", Answer::Lookup(LookupAnswer::Absent));
    told.call_at("harbor", created());
    told.call_at("harbor", valid());
    assert_eq!(told.name(), StateName::Issuing, "quay's login is from before");
    told.call_at("quay", valid());
    assert_eq!(told.name(), StateName::Active);
}

#[test]
fn a_clock_that_went_back_makes_no_names_in_vain() {
    let mut told = Told::new();
    told.restored_at = Some(told.now.plus(HOUR));
    told.issue().unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Active);
    assert_eq!(names(&told.pass(2 * HOUR)), ["doubted"]);
}

#[test]
fn a_listing_without_a_served_account_makes_it_drifted() {
    let mut told = Told::active();
    told.pass(MINUTE);
    let (account_id, listed_at) = (told.account(1).id, told.now);
    let missing = Command::Missing { account_id, listed_at };
    assert_eq!(names(&told.tell(&missing).unwrap()), ["drift_found"]);
    assert_eq!(told.tell(&missing), Ok(Vec::new()), "it is known");
    assert!(told.wants(Call::Verify), "a login tells more than a listing");
    told.call(valid());
    assert_eq!(told.tell(&missing), Ok(Vec::new()), "the login came after the listing");
    told.delete().unwrap();
    assert_eq!(told.tell(&missing), Ok(Vec::new()), "it is not handed out any more");
}

/// A decision to delete is final: whoever learns that the served account is dead cannot go back to what is
/// being deleted.
#[test]
fn a_dead_account_calls_nothing_back_that_is_being_deleted() {
    let mut told = Told::dual();
    told.pass(MINUTE);
    told.complete().unwrap();
    told.call(valid());
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
    told.pass(MINUTE);
    let missing = Command::Missing { account_id: told.account(2).id, listed_at: told.now };
    assert_eq!(names(&told.tell(&missing).unwrap()), ["drift_found"]);
    assert_eq!(told.phase(), "revoking_old");
    assert!(told.rollback().is_err());
    told.call(deleted());
    assert_eq!((told.name(), told.served()), (StateName::Active, 2));
    assert_eq!(told.account(2).verified_at, None, "drifted all the same");
}
