//! The wall clock goes a year forward and back: nothing waits for the year to come again, nothing is made twice.

use std::time::Duration;

use super::super::*;
use super::told::{DAY, MINUTE, Told, seen};
use crate::state::shared::Failure;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The next step begins with what the clock allows.
fn back(told: &mut Told) {
    told.now = told.now.minus(YEAR);
    let drawn = told.record().drawn_in(told.now).expect("the clock went back");
    assert_eq!(drawn.drawn_in(told.now), None, "once is enough");
    told.state = Some(drawn);
}

fn silent() -> Answer {
    let said = Verdict::Unknown("no connection".to_owned());
    seen(said.clone(), said)
}

#[test]
fn a_clock_that_is_right_changes_nothing() {
    for (mut told, _) in [Told::active_local(), Told::active_blind(), Told::collecting()] {
        assert_eq!(told.record().drawn_in(told.now), None);
        told.now = told.now.minus(MINUTE);
        assert_eq!(told.record().drawn_in(told.now), None, "clocks differ");
        told.now = told.now.plus(2 * YEAR);
        assert_eq!(told.record().drawn_in(told.now), None, "what has happened stays in the past");
    }
}

#[test]
fn what_was_asked_for_in_that_year_is_tried_and_given_up_in_this_one() {
    let mut told = Told::csr();
    told.request();
    told.now = told.now.plus(YEAR);
    told.rules.endpoints.clear();
    let later = told.request();
    told.announce(Call::Submit);
    back(&mut told);
    let record = told.record();
    assert!(record.credential(later).unwrap().created_at.unwrap() <= told.now.plus(MINUTE));
    told.pass(11 * MINUTE);
    assert_eq!(told.name(later), StateName::Failed, "its deadline counts from now");
}

#[test]
fn a_call_that_failed_in_that_year_is_made_again_now() {
    let mut told = Told::blind();
    told.now = told.now.plus(YEAR);
    let id = told.request();
    let failure = Failure { message: "later".to_owned(), retry_after: Some(DAY), blocked: false };
    told.call(Answer::Submit(SubmitAnswer::Failed(failure)));
    assert_eq!(told.due(), [], "not before tomorrow");
    back(&mut told);
    let signed = told.signed();
    told.call(signed);
    assert_eq!(told.name(id), StateName::Active);
}

#[test]
fn a_revocation_goes_on_with_a_control_of_this_year() {
    let mut told = Told::local();
    told.now = told.now.plus(YEAR);
    let id = told.request();
    told.make();
    let signed = told.signed();
    told.call(signed);
    told.call(seen(Verdict::Accepted, Verdict::Accepted));
    told.revoke_all().unwrap();
    told.call(silent());
    let controls = told.record().authorities.len();
    back(&mut told);
    // The control of that year is not valid yet, so a new one is wanted at once, and the question is due.
    told.tell(&Command::Tick).unwrap();
    told.make();
    assert_eq!(told.record().authorities.len(), controls + 1);
    for _ in 0..2 {
        told.call(seen(Verdict::Rejected, Verdict::Accepted));
        told.pass(MINUTE);
    }
    assert_eq!(told.name(id), StateName::Revoked);
}

#[test]
fn a_quarantine_of_that_year_ends_now() {
    let (mut told, _) = Told::active_local();
    told.now = told.now.plus(YEAR);
    let retry_at = told.now.plus(60 * MINUTE);
    told.tell(&Command::Quarantine { retry_at }).unwrap();
    back(&mut told);
    let due = due_at(told.record(), &told.policy, &told.rules);
    assert!(due.is_some_and(|due| due <= told.now), "{due:?}");
}
