//! The wall clock goes a year forward and back: nothing waits for the year to come again.

use std::time::Duration;

use super::super::super::*;
use super::super::told::{DAY, MINUTE, Told, invalid, valid};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The next step begins with what the clock allows.
fn back(told: &mut Told) {
    told.now = told.now.minus(YEAR);
    let drawn = told.record().drawn_in(told.now).expect("the clock went back");
    assert_eq!(drawn.drawn_in(told.now), None, "once is enough");
    told.state = Some(drawn);
}

#[test]
fn a_clock_that_is_right_changes_nothing() {
    for mut told in [Told::active(), Told::dual(), Told::rolling_back()] {
        assert_eq!(told.record().drawn_in(told.now), None);
        told.now = told.now.minus(MINUTE);
        assert_eq!(told.record().drawn_in(told.now), None, "clocks differ");
    }
}

#[test]
fn a_rotation_of_that_year_is_proved_in_this_one() {
    let mut told = Told::active();
    told.heartbeat("pool", 1).unwrap();
    told.now = told.now.plus(YEAR);
    let mut told = told.rotated();
    back(&mut told);
    let deadline = told.deadline().unwrap();
    assert!(deadline.since(told.now) <= 7 * DAY + MINUTE, "{deadline} counts from the switch");
    told.pass(MINUTE);
    assert_eq!(told.phase(), "dual_credential_period", "an earlier word proves nothing");
    told.pass(DAY);
    told.heartbeat("pool", 2).unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Active);
}

#[test]
fn a_verification_before_the_decision_still_does_not_count() {
    let mut told = Told::dual();
    told.now = told.now.plus(YEAR);
    told.complete().unwrap();
    back(&mut told);
    assert!(!told.wants(Call::Revoke), "the served one is verified first");
    told.pass(MINUTE);
    told.call(valid());
    told.work();
    assert_eq!(told.name(), StateName::Active);
}

#[test]
fn an_attempt_of_that_year_is_made_now() {
    let mut told = Told::dual();
    told.now = told.now.plus(YEAR);
    told.complete().unwrap();
    told.call(invalid());
    back(&mut told);
    told.pass(MINUTE);
    assert!(told.wants(Call::Verify));
}
