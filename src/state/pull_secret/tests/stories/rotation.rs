//! Deadlines, compromises and the operator's hand.

use std::time::Duration;

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::Generation;

fn overdue(on_deadline: OnDeadline) -> Told {
    let mut told = Told::active();
    told.policy.on_deadline = on_deadline;
    let mut told = told.rotated();
    assert_eq!(told.deadline(), Some(told.now.plus(7 * DAY)), "counted from the switch");
    told.heartbeat("pool", 1).unwrap();
    told.pass(7 * DAY);
    told
}

#[test]
fn before_the_switch_there_is_no_deadline() {
    let mut told = Told::active();
    told.rotate().unwrap();
    assert_eq!(told.deadline(), None);
}

#[test]
fn a_deadline_that_holds_keeps_both() {
    let mut told = overdue(OnDeadline::Hold);
    told.pass(100 * DAY);
    assert_eq!(told.phase(), "dual_credential_period");
    assert_eq!(told.phases(1), [AccountPhase::Retiring]);
}

#[test]
fn a_deadline_that_revokes_verifies_first() {
    let mut told = overdue(OnDeadline::Revoke);
    assert_eq!(told.phase(), "revoking_old");
    assert!(told.wants(Call::Verify));
    assert!(!told.wants(Call::Revoke));
    told.work();
    assert_eq!(told.served(), 2);
    assert!(told.phases(1).is_empty());
}

#[test]
fn a_deadline_that_rolls_back_serves_the_old_again() {
    let mut told = overdue(OnDeadline::Rollback);
    assert_eq!(told.phase(), "dual_credential_period");
    told.call(valid());
    assert_eq!((told.phase(), told.served()), ("rolling_back", 1));
    assert_eq!(told.deadline(), Some(told.now.plus(7 * DAY)), "a fresh grace period");
    told.pass(100 * DAY);
    assert_eq!(told.phase(), "rolling_back", "which always holds");
}

#[test]
fn a_deadline_cannot_roll_back_to_a_dead_generation() {
    let mut told = overdue(OnDeadline::Rollback);
    let events = told.call(invalid());
    assert_eq!(names(&events), ["call_failed", "rollback_refused"]);
    told.pass(100 * DAY);
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 2));
}

#[test]
fn an_extension_moves_the_deadline() {
    let mut told = Told::active();
    told.policy.on_deadline = OnDeadline::Revoke;
    let mut told = told.rotated();
    told.extend(2 * DAY).unwrap();
    told.pass(8 * DAY);
    assert_eq!(told.phase(), "dual_credential_period");
    told.pass(DAY);
    assert_eq!(told.phase(), "revoking_old");
}

#[test]
fn a_compromise_has_an_hour_and_no_overlap() {
    let mut told = Told::active();
    told.compromise().unwrap();
    told.work();
    assert_eq!(told.phase(), "dual_credential_period");
    assert_eq!(told.deadline(), Some(told.now.plus(HOUR)));
    let mut proved = told.clone();
    proved.pass(MINUTE);
    proved.heartbeat("pool", 2).unwrap();
    assert_eq!(proved.phase(), "revoking_old", "proof ends it without overlap");
    told.heartbeat("pool", 1).unwrap();
    told.pass(HOUR);
    assert_eq!(told.phase(), "revoking_old", "the deadline revokes whatever the policy says");
}

#[test]
fn a_compromise_supersedes_in_every_phase() {
    let begin = |steps: fn(&mut Told)| {
        let mut told = Told::active();
        told.rotate().unwrap();
        steps(&mut told);
        told
    };
    let mut revoking = Told::dual();
    revoking.complete().unwrap();
    let mut removing = Told::active();
    removing.rotate().unwrap();
    removing.call(created());
    removing.cancel().unwrap();
    let mut pending = Told::active();
    pending.may_start = false;
    pending.rotate().unwrap();
    pending.may_start = true;
    let begun = [
        pending,
        begin(|_| {}),
        begin(|told| {
            told.call(created());
        }),
        Told::dual(),
        Told::rolling_back(),
        revoking,
        removing,
    ];
    for mut told in begun {
        let from = told.phase();
        let served = told.served();
        let superseded = told.rotation_id();
        let events = told.compromise().unwrap();
        let Event::RotationEnded { end: End::Cancelled(Some(error)), .. } = &events[0] else {
            panic!("{from}: {events:?}")
        };
        assert_eq!(error.code, "superseded");
        assert_ne!(told.rotation_id(), superseded);
        assert_eq!(told.served(), served, "{from}: GET goes on");
        told.work();
        assert_eq!((told.phase(), told.served()), ("dual_credential_period", 3), "{from}");
        told.pass(HOUR);
        told.work();
        assert_eq!(told.name(), StateName::Active, "{from}");
        assert!(told.record().accounts.iter().all(|a| a.born_generation == Generation(3)));
    }
}

#[test]
fn a_login_for_a_superseded_rollback_does_not_touch_the_compromise() {
    let mut told = Told::dual();
    told.rollback().unwrap();
    let check = told.announce(Call::Verify);
    told.compromise().unwrap();
    told.call(created());
    told.call(valid());
    told.answer(check, invalid()).unwrap();
    told.pass(HOUR);
    assert_eq!(told.phase(), "revoking_old", "the deadline of the compromise stands");
}

#[test]
fn other_rotations_do_not_supersede() {
    let mut told = Told::dual();
    assert!(matches!(told.rotate(), Err(Rejection::RotationRunning { .. })));
}

#[test]
fn force_immediate_retires_as_soon_as_the_new_one_is_verified() {
    let mut told = Told::active();
    told.rotate_for(RotationReason::Manual, true).unwrap();
    told.call(created());
    told.call(valid());
    assert_eq!(told.phase(), "revoking_old");
    assert!(told.wants(Call::Verify), "verified once more before the deletion");
    told.work();
    assert_eq!(told.served(), 2);
    assert!(told.phases(1).is_empty());
}

#[test]
fn complete_skips_proof_but_not_the_verification() {
    let mut told = Told::dual();
    told.complete().unwrap();
    assert_eq!(told.phases(1), [AccountPhase::Retiring]);
    assert!(!told.wants(Call::Revoke));
    told.pass(MINUTE);
    told.call(valid());
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
}

#[test]
fn a_login_from_before_the_decision_does_not_count() {
    let mut told = Told::dual();
    told.complete().unwrap();
    told.call(invalid());
    let early = {
        told.pass(HOUR);
        told.announce(Call::Verify)
    };
    told.pass(Duration::from_secs(5));
    told.complete().unwrap();
    told.answer(early, valid()).unwrap();
    assert_eq!(told.phases(1), [AccountPhase::Retiring], "announced before the decision");
    told.call(valid());
    assert_eq!(told.phases(1), [AccountPhase::Deleting]);
}

#[test]
fn a_dead_new_generation_is_drift_and_nothing_is_deleted() {
    let mut told = Told::dual();
    told.complete().unwrap();
    let events = told.call(invalid());
    assert_eq!(names(&events), ["call_failed", "drift_found"]);
    assert!(told.record().rotation().unwrap().drifted());
    assert_eq!(told.phase(), "dual_credential_period");
    told.pass(DAY);
    told.heartbeat("pool", 2).unwrap();
    assert_eq!(told.phase(), "dual_credential_period", "proof does not help a dead account");
    let events = told.call(valid());
    assert_eq!(names(&events), ["account_verified", "drift_cleared", "retirement_decided"]);
}

#[test]
fn a_dead_new_generation_can_be_rolled_back() {
    let mut told = Told::dual();
    told.complete().unwrap();
    told.call(invalid());
    told.rollback().unwrap();
    told.call(valid());
    assert_eq!((told.phase(), told.served()), ("rolling_back", 1));
}

#[test]
fn a_deadline_rolls_back_from_drift_but_does_not_revoke() {
    for (on_deadline, asked) in [(OnDeadline::Rollback, true), (OnDeadline::Revoke, false)] {
        let mut told = Told::active();
        told.policy.on_deadline = on_deadline;
        let mut told = told.rotated();
        told.complete().unwrap();
        told.call(invalid());
        let events = told.pass(7 * DAY);
        assert_eq!(names(&events) == ["rollback_requested"], asked);
        assert_eq!(told.phase(), "dual_credential_period");
    }
}

#[test]
fn a_completed_rollback_of_a_compromise_leaves_nothing_of_any_other_generation() {
    let mut told = Told::dual();
    told.compromise().unwrap();
    told.call(created());
    told.call(valid());
    told.rollback().unwrap();
    told.call(valid());
    assert_eq!((told.phase(), told.served()), ("rolling_back", 2));
    told.complete().unwrap();
    told.call(valid());
    for generation in [1, 3] {
        assert_eq!(told.phases(generation), [AccountPhase::Deleting], "generation {generation}");
    }
}

#[test]
fn a_rollback_serves_the_old_and_removes_the_new_on_proof() {
    let mut told = Told::rolling_back();
    assert_eq!(told.served(), 1);
    assert_eq!(told.phases(2), [AccountPhase::Retiring]);
    told.pass(DAY);
    told.heartbeat("pool", 2).unwrap();
    told.pass(QUIET_AND_MARGIN);
    assert_eq!(told.phases(2), [AccountPhase::Retiring], "still in use");
    told.heartbeat("pool", 1).unwrap();
    assert!(told.wants(Call::Verify) && !told.wants(Call::Revoke));
    told.call(valid());
    assert_eq!(told.phase(), "removing_new");
    told.work();
    assert_eq!(told.ended(), Some(&End::RolledBack));
    assert_eq!((told.name(), told.served()), (StateName::Active, 1));
    told.rotate().unwrap();
    assert_eq!(told.record().rotation().unwrap().to, Generation(3), "2 is spent");
}

#[test]
fn use_of_the_new_takes_a_rollbacks_proof_back() {
    let mut told = Told::rolling_back();
    told.pass(DAY);
    told.heartbeat("pool", 1).unwrap();
    assert!(told.wants(Call::Verify));
    told.heartbeat("other", 2).unwrap();
    assert!(!told.wants(Call::Verify), "the decision is withdrawn");
    assert_eq!(told.phase(), "rolling_back");
}

#[test]
fn a_rollback_to_dead_accounts_is_refused() {
    let mut told = Told::dual();
    told.rollback().unwrap();
    told.call(invalid());
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 2));
}

#[test]
fn a_drifted_rollback_keeps_the_new_one() {
    let mut told = Told::rolling_back();
    told.complete().unwrap();
    told.call(invalid());
    assert!(told.record().rotation().unwrap().drifted());
    assert_eq!(told.phases(2), [AccountPhase::Retiring]);
    told.pass(HOUR);
    told.call(valid());
    assert_eq!(told.phase(), "rolling_back", "the operator has to say it again");
    told.complete().unwrap();
    told.pass(MINUTE);
    told.call(valid());
    assert_eq!(told.phase(), "removing_new");
}

#[test]
fn a_rollback_of_a_compromise_asks_only_for_the_generation_it_goes_back_to() {
    let mut told = Told::dual();
    told.compromise().unwrap();
    told.work();
    assert_eq!(told.served(), 3);
    told.rollback().unwrap();
    assert_eq!(told.due().len(), 1);
    assert_eq!(told.due()[0].account_id, told.account(2).id);
    told.call(valid());
    assert_eq!((told.phase(), told.served()), ("rolling_back", 2));
}

#[test]
fn a_cancel_before_the_switch_removes_what_was_made() {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(created());
    told.cancel().unwrap();
    assert_eq!(told.phase(), "removing_new");
    told.work();
    assert_eq!(told.ended(), Some(&End::Cancelled(None)));
    assert_eq!((told.name(), told.served()), (StateName::Active, 1));
}
