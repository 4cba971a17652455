//! When does the dual-credential period end?

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::Generation;

fn proved(told: &Told) -> bool {
    told.phase() != "dual_credential_period"
}

#[test]
fn proof_and_min_overlap_end_the_period() {
    let mut told = Told::dual();
    told.pass(23 * HOUR);
    told.heartbeat("pool", 2).unwrap();
    assert!(!proved(&told), "min_overlap has not passed");
    assert_eq!(told.due_at(), Some(told.now.plus(HOUR)), "it looks again when it has");
    told.pass(HOUR);
    assert_eq!(told.phase(), "revoking_old");
    told.work();
    assert_eq!(told.ended(), Some(&End::Completed { old_credentials_revoked: true }));
    assert_eq!(told.served(), 2);
    assert!(told.phases(1).is_empty());
}

#[test]
fn silence_is_no_proof() {
    let mut told = Told::dual();
    told.pass(1000 * DAY);
    assert_eq!(told.phase(), "dual_credential_period");
    assert_eq!(told.due_at(), None, "nothing that time alone would bring");
}

#[test]
fn a_heartbeat_with_the_old_account_never_ends_a_rotation() {
    let mut told = Told::dual();
    for _ in 0..100 {
        told.pass(5 * HOUR);
        told.heartbeat("pool", 1).unwrap();
        assert!(!proved(&told));
    }
}

#[test]
fn an_old_heartbeat_that_falls_silent_is_no_proof_either() {
    let mut told = Told::dual();
    told.heartbeat("pool", 1).unwrap();
    told.pass(1000 * DAY);
    assert!(!proved(&told));
}

#[test]
fn evidence_before_the_switch_does_not_count() {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(created());
    told.confirm(2).unwrap();
    let before = told.now;
    told.work();
    assert_eq!(told.phase(), "dual_credential_period");
    told.pass(30 * HOUR);
    assert!(!proved(&told), "the adapter spoke before the switch");
    let subject = EvidenceSubject::Account(told.account(2).id);
    told.seen_at(EvidenceSource::Registry, "late-log", subject, before).unwrap();
    assert!(!proved(&told), "observed before the switch, told after it");
    told.confirm(2).unwrap();
    assert!(!proved(&told), "its early word is younger than consumer_ttl, but its latest is new");
    told.pass(48 * HOUR);
    assert!(proved(&told));
}

#[test]
fn any_one_proof_is_enough_and_the_policy_says_which_count() {
    let sources = [EvidenceSource::Heartbeat, EvidenceSource::Registry, EvidenceSource::Adapter];
    for source in sources {
        for counting in sources {
            let mut told = Told::dual();
            told.policy.proof = vec![counting];
            told.pass(DAY);
            let subject = match source {
                EvidenceSource::Adapter => EvidenceSubject::Generation(Generation(2)),
                EvidenceSource::Heartbeat | EvidenceSource::Registry => {
                    EvidenceSubject::Account(told.account(2).id)
                }
            };
            told.seen(source, "somebody", subject).unwrap();
            assert_eq!(proved(&told), source == counting, "{source} with proof {counting}");
        }
    }
}

#[test]
fn an_adapter_never_outweighs_an_old_heartbeat() {
    let mut told = Told::dual();
    told.pass(DAY);
    told.heartbeat("pool", 1).unwrap();
    told.confirm(2).unwrap();
    told.pass(40 * HOUR);
    told.confirm(2).unwrap();
    assert!(!proved(&told));
}

#[test]
fn every_consumer_has_to_move_until_it_is_forgotten_after_consumer_ttl() {
    let mut told = Told::dual();
    told.heartbeat("slow", 1).unwrap();
    told.pass(47 * HOUR);
    told.heartbeat("fast", 2).unwrap();
    assert!(!proved(&told), "slow was seen within consumer_ttl");
    told.pass(HOUR);
    assert!(!proved(&told), "slow may have been seen until a sighting interval later");
    assert_eq!(told.due_at(), Some(told.now.plus(5 * MINUTE)));
    told.pass(5 * MINUTE);
    assert!(proved(&told));
}

#[test]
fn the_latest_word_of_a_consumer_is_what_counts() {
    let mut told = Told::dual();
    told.pass(DAY);
    told.heartbeat("slow", 1).unwrap();
    told.heartbeat("slow", 2).unwrap();
    told.pass(HOUR);
    assert!(!proved(&told), "quiet, with its margin");
    told.pass(5 * MINUTE);
    assert!(proved(&told));
}

#[test]
fn quiet_has_to_pass_since_the_old_account_was_used() {
    let mut told = Told::dual();
    told.policy.consumer_ttl = MINUTE;
    told.pass(DAY);
    told.registry_saw(1).unwrap();
    told.heartbeat("pool", 2).unwrap();
    told.pass(HOUR + 4 * MINUTE);
    assert!(!proved(&told));
    assert_eq!(told.due_at(), Some(told.now.plus(MINUTE)));
    told.pass(MINUTE);
    assert!(proved(&told));
}

#[test]
fn any_use_of_the_old_takes_the_proof_back() {
    let mut told = Told::dual();
    told.pass(23 * HOUR);
    told.heartbeat("pool", 2).unwrap();
    told.pass(30 * MINUTE);
    told.heartbeat("other", 1).unwrap();
    told.pass(30 * MINUTE);
    assert!(!proved(&told));
}

#[test]
fn use_between_the_decision_and_the_first_deletion_takes_it_back_too() {
    let mut told = Told::dual();
    told.pass(DAY);
    told.heartbeat("pool", 2).unwrap();
    assert_eq!(told.phase(), "revoking_old");
    let check = told.announce(Call::Verify);
    let events = told.heartbeat("other", 1).unwrap();
    assert_eq!(names(&events), ["consumer_seen", "adoption_withdrawn"]);
    assert_eq!(told.phase(), "dual_credential_period");
    told.answer(check, valid()).unwrap();
    assert_eq!(told.phases(1), [AccountPhase::Retiring]);
    assert!(!told.wants(Call::Revoke));
}

#[test]
fn an_operators_decision_is_not_taken_back_by_use() {
    let mut told = Told::dual();
    told.complete().unwrap();
    told.heartbeat("other", 1).unwrap();
    assert_eq!(told.phase(), "revoking_old");
}

#[test]
fn sightings_of_the_same_kind_are_stored_once_per_interval() {
    let mut told = Told::dual();
    told.pass(MINUTE);
    assert_eq!(told.heartbeat("pool", 1).unwrap().len(), 1);
    told.pass(4 * MINUTE);
    assert!(told.heartbeat("pool", 1).unwrap().is_empty());
    told.pass(MINUTE);
    assert_eq!(told.heartbeat("pool", 1).unwrap().len(), 1);
    assert_eq!(told.heartbeat("pool", 2).unwrap().len(), 1, "another generation is stored at once");
}

#[test]
fn an_old_heartbeat_counts_even_when_the_clock_went_back() {
    let mut told = Told::dual();
    told.pass(23 * HOUR);
    told.heartbeat("pool", 2).unwrap();
    told.now = told.now.minus(10 * MINUTE);
    told.heartbeat("pool", 1).unwrap();
    told.pass(2 * HOUR);
    assert!(!proved(&told));
}

#[test]
fn a_rollback_waits_for_those_who_may_have_fetched_the_new_one_silently() {
    let mut told = Told::active();
    told.heartbeat("pool", 1).unwrap();
    let mut told = told.rotated();
    told.pass(HOUR);
    told.rollback().unwrap();
    told.work();
    told.pass(MINUTE);
    told.heartbeat("other", 1).unwrap();
    told.pass(DAY);
    assert!(!told.wants(Call::Verify), "pool was not heard since the rollback");
    told.heartbeat("pool", 1).unwrap();
    assert!(told.wants(Call::Verify), "now everybody was");
}

#[test]
fn at_most_64_consumers_are_told_apart() {
    let mut told = Told::dual();
    for index in 0..64 {
        told.heartbeat(&format!("pool-{index}"), 1).unwrap();
    }
    assert_eq!(told.heartbeat("one-more", 1), Err(Rejection::TooManyConsumers { limit: 64 }));
    told.confirm(1).unwrap();
    told.registry_saw(1).unwrap();
    told.heartbeat("pool-0", 2).unwrap();
    told.pass(48 * HOUR);
    assert!(told.heartbeat("one-more", 1).is_err(), "they may have been seen a little later");
    told.pass(5 * MINUTE);
    told.heartbeat("one-more", 1).unwrap();
    let beats = told.record().consumers.iter().filter(|c| c.source == EvidenceSource::Heartbeat);
    assert_eq!(beats.count(), 64, "the oldest made room");
    assert_eq!(told.record().consumers.len(), 66, "other sources are not locked out");
}

#[test]
fn only_accounts_that_were_handed_out_can_be_seen() {
    let mut told = Told::active();
    told.rotate().unwrap();
    told.call(created());
    assert_eq!(told.heartbeat("pool", 2), Err(Rejection::NotInUse));
    let mut told = Told::dual();
    told.complete().unwrap();
    told.call(valid());
    assert_eq!(told.heartbeat("pool", 1), Err(Rejection::NotInUse), "its deletion is decided");
    let served = Generation(2);
    assert_eq!(told.confirm(0), Err(Rejection::NotServed { served }));
    assert_eq!(told.confirm(3), Err(Rejection::NotServed { served }));
}
