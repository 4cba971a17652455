//! Schedules, slots and names.

use proptest::prelude::*;

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::{ClusterId, Generation};
use crate::time::Timestamp;

const INTERVAL: std::time::Duration = DAY.saturating_mul(90);

fn scheduled() -> Told {
    let mut told = Told::new();
    told.policy.interval = Some(INTERVAL);
    told.issue().unwrap();
    told.work();
    told
}

/// The slot and its failures after a scheduled rotation was refused.
fn fail_slot(told: &mut Told) -> (Slot, std::time::Duration) {
    assert_eq!(told.phase(), "creating_credentials");
    told.call(refused());
    let next = told.record().next_rotation_at.unwrap();
    (told.record().slot.unwrap(), next.since(told.now))
}

#[test]
fn a_slot_that_failed_is_tried_again_and_completes_once() {
    let mut told = scheduled();
    let slot = told.due_at().unwrap();
    told.now = slot;
    told.tell(&Command::Tick).unwrap();
    let mut pauses = Vec::new();
    for failures in 1..=4 {
        let (at, pause) = fail_slot(&mut told);
        assert_eq!(at, Slot { at: slot, failures });
        pauses.push(pause);
        assert_eq!(told.due_at(), Some(told.now.plus(pause)));
        told.pass(pause);
        assert_eq!(told.record().rotation().unwrap().slot, Some(slot), "the same slot");
    }
    assert_eq!(pauses, [HOUR, 4 * HOUR, 24 * HOUR, 24 * HOUR]);
    told.work();
    let switched = told.now;
    told.complete().unwrap();
    told.work();
    assert_eq!(told.record().slot, None);
    let next = told.record().next_rotation_at.unwrap();
    assert!(next > switched && next <= switched.plus(INTERVAL));
    told.now = next;
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.record().rotation().unwrap().slot, Some(next), "a slot of its own");
}

#[test]
fn another_rotation_that_completes_moves_the_slot() {
    let mut told = scheduled();
    told.now = told.due_at().unwrap();
    told.tell(&Command::Tick).unwrap();
    fail_slot(&mut told);
    told.rotate().unwrap();
    told.work();
    told.complete().unwrap();
    told.work();
    assert_eq!(told.record().slot, None, "what the slot wanted is done");
    assert!(told.record().next_rotation_at.unwrap() > told.now.plus(80 * DAY));
}

#[test]
fn a_superseded_slot_is_tried_again_only_if_nothing_was_promoted() {
    let mut told = scheduled();
    told.now = told.due_at().unwrap();
    told.tell(&Command::Tick).unwrap();
    let slot = fail_slot(&mut told).0;
    told.pass(HOUR);
    let mut promoted = told.clone();
    told.compromise().unwrap();
    assert_eq!(told.record().slot, Some(slot));
    told.call(refused());
    assert_eq!(told.record().rotation().unwrap().slot, Some(slot.at), "at once");
    promoted.work();
    promoted.compromise().unwrap();
    assert_eq!(promoted.record().slot, None);
}

#[test]
fn a_schedule_waits_for_its_turn_and_can_be_off() {
    let mut told = scheduled();
    told.may_start = false;
    told.pass(INTERVAL);
    assert_eq!(told.phase(), "pending", "the slot is taken, the turn is not");
    let mut off = Told::active();
    off.policy.interval = None;
    off.pass(INTERVAL);
    assert_eq!((off.name(), off.due_at()), (StateName::Active, None));
}

proptest! {
    #[test]
    fn slots_are_spread_over_the_end_of_the_interval_and_never_later(
        id in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        days in 1_u32..400,
    ) {
        let cluster_id: ClusterId = id.parse().unwrap();
        let mut policy = Told::new().policy;
        let interval = DAY * days;
        policy.interval = Some(interval);
        let since = Timestamp::from_micros(1_800_000_000_000_000);
        let next = policy.next_rotation(cluster_hash(&cluster_id), since).unwrap();
        prop_assert!(next <= since.plus(interval));
        prop_assert!(next >= since.plus(interval.mul_f64(0.9)));
    }

    #[test]
    fn account_names_are_legal_short_and_say_whose_they_are(
        seed in any::<u128>(),
        prefix in "[a-z][a-z0-9]{0,10}[a-z0-9]",
        id in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        generation in 1_u32..10_000_000,
    ) {
        let cluster_id: ClusterId = id.parse().unwrap();
        let mut entropy = Entropy::from_seed(seed);
        let name = entropy.account_name(&prefix, &cluster_id, Generation(generation));
        prop_assert!(name.as_str().len() <= 49);
        let begins = format!("{prefix}-");
        prop_assert!(name.as_str().starts_with(&begins));
        let middle = format!("-g{generation}-");
        prop_assert!(name.as_str().contains(&middle));
        let again = entropy.account_name(&prefix, &cluster_id, Generation(generation));
        prop_assert_ne!(name, again, "the random part is new for every attempt");
    }

    #[test]
    fn account_names_are_legal_whatever_the_prefix_and_the_number(
        seed in any::<u128>(),
        prefix in "\\PC{0,40}",
        id in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        generation in any::<u32>(),
    ) {
        let cluster_id: ClusterId = id.parse().unwrap();
        let name = Entropy::from_seed(seed).account_name(&prefix, &cluster_id, Generation(generation));
        prop_assert!(name.as_str().len() <= 49);
    }
}
