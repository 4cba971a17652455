//! While the wall clock is not believed, nothing is deleted or removed because time has passed.

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;

#[test]
fn proof_is_not_judged_by_a_clock_that_jumped() {
    let mut told = Told::dual();
    told.pass(HOUR);
    told.heartbeat("pool", 2).unwrap();
    told.time_is_trusted = false;
    told.pass(30 * HOUR);
    assert_eq!(told.phase(), "dual_credential_period", "min_overlap seems to have passed");
    assert!(told.due_at().is_some_and(|due| due <= told.now), "it is looked at again");
    told.time_is_trusted = true;
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.phase(), "revoking_old");
}

#[test]
fn a_deadline_does_not_pass_by_a_clock_that_jumped() {
    for on_deadline in [OnDeadline::Revoke, OnDeadline::Rollback] {
        let mut told = Told::active();
        told.policy.on_deadline = on_deadline;
        told.rotate().unwrap();
        told.work();
        told.time_is_trusted = false;
        told.pass(1000 * DAY);
        assert_eq!(told.phase(), "dual_credential_period", "{on_deadline:?}");
        // A person's word is no matter of time.
        told.complete().unwrap();
        assert_eq!(told.phase(), "revoking_old");
    }
}

#[test]
fn a_record_is_not_removed_by_a_clock_that_jumped() {
    let mut told = Told::active();
    told.delete().unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Revoked);
    told.time_is_trusted = false;
    told.pass(1000 * DAY);
    assert!(told.state.is_some());
    told.time_is_trusted = true;
    told.tell(&Command::Tick).unwrap();
    assert!(told.state.is_none());
}

#[test]
fn gone_is_not_final_by_a_clock_that_jumped() {
    let mut told = Told::new();
    told.issue().unwrap();
    told.call(Answer::Create(CreateAnswer::Unknown(failure(false))));
    told.call(Answer::Lookup(LookupAnswer::Absent));
    told.time_is_trusted = false;
    told.pass(HOUR);
    let burnt = |told: &Told| {
        told.record().accounts.iter().filter(|it| it.phase == AccountPhase::Burnt).count()
    };
    assert_eq!(burnt(&told), 1);
    told.call(Answer::Revoke(RevokeAnswer::AlreadyGone));
    assert_eq!(burnt(&told), 1, "the lost create may still be applied");
    told.time_is_trusted = true;
    told.pass(HOUR);
    told.call(Answer::Revoke(RevokeAnswer::AlreadyGone));
    assert_eq!(burnt(&told), 0);
}
