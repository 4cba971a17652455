//! Compromise after compromise: each is accepted, and never more than three generations live.

use std::collections::BTreeSet;

use super::super::super::*;
use super::super::told::{MINUTE, Told, invalid};
use super::super::world::HOUR;
use crate::ids::Generation;

fn living(told: &Told) -> BTreeSet<Generation> {
    told.record().accounts.iter().map(|account| account.born_generation).collect()
}

#[test]
fn forty_compromises_in_a_row_leave_three_generations_at_most() {
    for finish_each in [false, true] {
        let mut told = Told::active();
        for _ in 0..40 {
            told.compromise().unwrap();
            if finish_each {
                told.work();
            }
            assert!(living(&told).len() <= 3, "{:?}", living(&told));
        }
        told.work();
        told.pass(HOUR);
        told.work();
        told.pass(HOUR);
        told.work();
        assert_eq!((told.name(), told.served()), (StateName::Active, 41));
        assert_eq!(living(&told), BTreeSet::from([Generation(41)]));
    }
}

/// Generations 1 and 2 are in use or may be, 3 is served, and a fourth is asked for.
fn crowded() -> Told {
    let mut told = Told::dual();
    for _ in 0..2 {
        told.compromise().unwrap();
        told.work();
    }
    assert_eq!((told.phase(), told.served()), ("pending", 3));
    told
}

#[test]
fn a_further_compromise_waits_for_the_deadline_of_the_one_before() {
    let mut told = crowded();
    told.heartbeat("pool", 1).unwrap();
    told.pass(HOUR - MINUTE);
    told.work();
    assert_eq!(living(&told).len(), 3, "a consumer may hold each of them");
    assert_eq!(due_at(told.record(), &told.policy), Some(told.now.plus(MINUTE)));
    told.pass(MINUTE);
    told.work();
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 4));
    let left = [2, 3, 4].map(Generation);
    assert_eq!(living(&told), BTreeSet::from(left), "only the oldest had to make room");
}

#[test]
fn proof_makes_room_at_once() {
    let mut told = crowded();
    told.pass(MINUTE);
    told.heartbeat("pool", 3).unwrap();
    told.work();
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 4));
}

#[test]
fn what_is_served_is_verified_again_before_anything_makes_room() {
    let mut told = Told::dual();
    told.compromise().unwrap();
    told.work();
    told.pass(2 * MINUTE);
    told.compromise().unwrap();
    told.pass(HOUR);
    assert!(told.wants(Call::Verify) && !told.wants(Call::Revoke));
    let events = told.call(invalid());
    assert!(events.iter().any(|event| matches!(event, Event::GenerationStarted { .. })));
    assert!(!told.wants(Call::Revoke), "a dead credential gets its successor, and nothing goes");
}
