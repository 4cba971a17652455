//! Lost creates, spoilt names, foreign accounts, and when "gone" is true.

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;

fn lookup(answer: LookupAnswer) -> Answer {
    Answer::Lookup(answer)
}

#[test]
fn a_lost_create_is_looked_up_at_once() {
    let told = Told::lost_create();
    assert_eq!(told.phases(1), [AccountPhase::Creating]);
    assert!(told.wants(Call::Lookup) && !told.wants(Call::Create));
}

#[test]
fn a_lost_create_is_never_sent_again_however_often_its_lookup_fails() {
    let mut told = Told::lost_create();
    for _ in 0..5 {
        told.call(lookup(LookupAnswer::Failed(failure(false))));
        told.pass(HOUR);
        assert!(told.wants(Call::Lookup) && !told.wants(Call::Create));
    }
}

#[test]
fn a_lost_create_is_adopted_when_its_secret_is_at_hand() {
    for ownership in [Ownership::ThisIntent, Ownership::NoMarker] {
        let mut told = Told::lost_create();
        let events = told.call(present(ownership, true));
        assert!(matches!(events[0], Event::AccountCreated { adopted: true, .. }));
        told.work();
        assert_eq!(told.name(), StateName::Active);
    }
}

#[test]
fn a_lost_create_whose_secret_was_shown_once_burns_the_name() {
    let mut told = Told::lost_create();
    let burnt = told.account(1).name.clone();
    told.call(present(Ownership::ThisIntent, false));
    assert_eq!(told.phases(1), [AccountPhase::Burnt, AccountPhase::Planned]);
    assert_ne!(told.record().accounts[1].name, burnt);
    assert!(told.wants(Call::Create), "the work goes on at once");
    assert!(told.wants(Call::Revoke), "and the burnt one is deleted");
}

#[test]
fn a_lost_create_that_is_not_there_burns_the_name_too() {
    let mut told = Told::lost_create();
    told.call(lookup(LookupAnswer::Absent));
    assert_eq!(told.phases(1), [AccountPhase::Burnt, AccountPhase::Planned]);
    let creates = told.due().iter().filter(|effect| effect.call == Call::Create).count();
    assert_eq!(creates, 1, "the burnt name is never created again");
}

#[test]
fn gone_counts_only_from_a_call_that_began_after_the_settle_time() {
    let mut told = Told::lost_create();
    let announced = told.now;
    told.call(lookup(LookupAnswer::Absent));
    assert_eq!(names(&told.call(gone())), ["gone_unsettled"]);
    assert_eq!(told.phases(1)[0], AccountPhase::Burnt);
    told.now = announced.plus(10 * MINUTE);
    assert!(!told.wants(Call::Revoke), "not before the settle time has passed");
    told.pass(std::time::Duration::from_millis(1));
    assert_eq!(names(&told.call(gone()))[0], "account_gone");
}

#[test]
fn a_call_that_began_before_the_settle_time_and_ends_after_it_does_not_count() {
    let mut told = Told::lost_create();
    told.delete().unwrap();
    told.pass(10 * MINUTE - std::time::Duration::from_secs(5));
    let early = told.announce(Call::Revoke);
    told.pass(std::time::Duration::from_secs(10));
    assert_eq!(names(&told.answer(early, deleted()).unwrap()), ["gone_unsettled"]);
    assert_eq!(told.name(), StateName::Revoking);
    told.call(gone());
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn an_answered_create_needs_no_settle_time() {
    let mut told = Told::active();
    told.delete().unwrap();
    told.call(gone());
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn a_burnt_name_blocks_revoked_until_it_is_settled() {
    let mut told = Told::lost_create();
    told.call(lookup(LookupAnswer::Absent));
    told.work();
    told.delete().unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Revoking);
    told.pass(HOUR);
    told.work();
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn a_name_that_is_taken_is_looked_up_and_spent() {
    for ownership in [Ownership::Foreign, Ownership::NoMarker] {
        let mut told = Told::new();
        told.issue().unwrap();
        let name = told.account(1).name.clone();
        told.call(Answer::Create(CreateAnswer::AlreadyExists));
        assert!(told.wants(Call::Lookup), "never adopted unseen");
        let events = told.call(present(ownership, true));
        assert!(matches!(events[0], Event::AccountGone { how: GoneHow::Foreign, .. }));
        assert_eq!(told.phases(1), [AccountPhase::Planned]);
        assert_ne!(told.account(1).name, name);
        assert!(!told.wants(Call::Revoke), "what is foreign is never deleted");
    }
}

#[test]
fn a_foreign_account_survives_a_delete_that_overtakes_its_lookup() {
    let answers = [
        present(Ownership::Foreign, true),
        present(Ownership::NoMarker, true),
        lookup(LookupAnswer::Absent),
        lookup(LookupAnswer::Failed(failure(false))),
    ];
    for answer in answers {
        let mut told = Told::new();
        told.issue().unwrap();
        told.call(Answer::Create(CreateAnswer::AlreadyExists));
        let running = told.announce(Call::Lookup);
        told.delete().unwrap();
        told.answer(running, answer).unwrap();
        assert_eq!(told.name(), StateName::Revoked);
    }
}

#[test]
fn a_foreign_account_found_after_a_lost_create_is_left_alone() {
    let mut told = Told::lost_create();
    let running = told.announce(Call::Lookup);
    told.delete().unwrap();
    told.answer(running, present(Ownership::Foreign, false)).unwrap();
    assert_eq!(told.name(), StateName::Revoked);
}

#[test]
fn a_registry_that_calls_every_name_taken_is_asked_less_and_less_and_given_up() {
    let mut told = Told::new();
    told.issue().unwrap();
    let begun = told.now;
    let mut creates = 0;
    while told.name() == StateName::Issuing {
        assert!(creates < 100, "a name after {creates} names, for ever");
        told.now = told.due_at().unwrap().max(told.now);
        told.tell(&Command::Tick).unwrap();
        if told.wants(Call::Create) {
            creates += 1;
            told.call(Answer::Create(CreateAnswer::AlreadyExists));
            told.call(present(Ownership::Foreign, false));
        }
    }
    assert_eq!(told.name(), StateName::Failed);
    assert!(told.now.since(begun) < 30 * HOUR);
}

#[test]
fn a_registry_that_loses_every_create_is_given_up_across_names() {
    let mut told = Told::new();
    told.issue().unwrap();
    let mut creates = 0;
    while told.name() == StateName::Issuing {
        assert!(creates < 100);
        told.now = told.due_at().unwrap().max(told.now);
        told.tell(&Command::Tick).unwrap();
        if told.wants(Call::Create) {
            creates += 1;
            told.call(Answer::lost(Call::Create, "reset"));
        } else if told.wants(Call::Lookup) {
            told.call(lookup(LookupAnswer::Absent));
        } else if told.wants(Call::Revoke) {
            told.call(gone());
        }
    }
    assert_eq!(told.name(), StateName::Failed);
    assert!(creates > 10, "the first tries come soon");
}

#[test]
fn a_create_that_was_not_applied_keeps_its_name() {
    let mut told = Told::new();
    told.issue().unwrap();
    let name = told.account(1).name.clone();
    told.call(Answer::Create(CreateAnswer::NotApplied(failure(false))));
    assert_eq!(told.phases(1), [AccountPhase::Planned]);
    assert!(!told.wants(Call::Create), "it waits");
    told.pass(MINUTE);
    told.work();
    assert_eq!(told.account(1).name, name);
    assert_eq!(told.name(), StateName::Active);
}

#[test]
fn an_outcome_counts_only_with_the_current_token() {
    let mut told = Told::new();
    told.issue().unwrap();
    let late = told.announce(Call::Create);
    told.pass(std::time::Duration::from_secs(20));
    assert!(told.wants(Call::Lookup), "unanswered for twice the timeout is lost");
    assert_eq!(told.answer(late, created()), Err(Rejection::NotCurrent));
    let (account_id, token) = told.announce(Call::Lookup);
    assert_eq!(told.answer((account_id, late.1), created()), Err(Rejection::NotCurrent));
    let found = present(Ownership::ThisIntent, true);
    assert_eq!(told.answer((account_id, late.1), found), Err(Rejection::NotCurrent));
    assert_eq!(told.answer((account_id, token), created()), Err(Rejection::NotCurrent));
    told.answer((account_id, token), present(Ownership::ThisIntent, true)).unwrap();
}

#[test]
fn one_call_per_account_and_only_what_is_wanted() {
    let mut told = Told::new();
    told.issue().unwrap();
    let (account_id, token) = told.announce(Call::Create);
    assert!(told.due().is_empty());
    let again = Command::Announce { account_id, call: Call::Create, token };
    assert_eq!(told.tell(&again), Err(Rejection::NotCurrent));
    let other = Command::Announce { account_id, call: Call::Revoke, token };
    assert_eq!(told.tell(&other), Err(Rejection::NotCurrent));
}

#[test]
fn taking_over_closes_calls_as_unknown_without_counting_an_attempt() {
    let mut told = Told::with(&["harbor", "quay"]);
    told.issue().unwrap();
    told.call_at("harbor", created());
    told.announce_at("quay", Call::Create);
    told.announce_at("harbor", Call::Verify);
    told.tell(&Command::TakeOver).unwrap();
    assert!(told.record().accounts.iter().all(|account| account.trouble.attempts == 0));
    assert!(told.record().accounts.iter().all(|account| account.call.is_none()));
    let wanted: Vec<_> = told.due().into_iter().map(|effect| effect.call).collect();
    assert_eq!(wanted, [Call::Verify, Call::Lookup]);
}

#[test]
fn a_login_that_is_not_due_before_the_decision_waits_for_a_clock_that_went_back() {
    let mut told = Told::dual();
    told.complete().unwrap();
    let decided = told.now;
    told.now = decided.minus(HOUR);
    assert!(told.due().is_empty(), "a login now would prove nothing");
    assert_eq!(told.due_at(), Some(decided));
}
