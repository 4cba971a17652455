//! Schedules, slots and names.

use proptest::prelude::*;

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::{ClusterId, Generation};
use crate::time::Timestamp;
use crate::window::Window;

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
        assert_eq!((at.at, at.failures), (slot, failures));
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

#[test]
fn a_schedule_that_is_switched_on_later_counts_from_the_last_whole_generation() {
    let mut told = Told::active();
    let served = told.now;
    assert_eq!(told.record().next_rotation_at, None, "no interval, no time");
    told.pass(DAY);
    told.policy.interval = Some(INTERVAL);
    let events = told.pass(MINUTE);
    assert_eq!(names(&events), ["next_rotation_moved"]);
    let next = told.record().next_rotation_at.unwrap();
    assert!(next <= served.plus(INTERVAL) && next >= served.plus(81 * DAY));
    told.policy.interval = Some(30 * DAY);
    told.pass(MINUTE);
    assert!(told.due_at().unwrap() <= served.plus(30 * DAY), "a changed interval is taken up");
}

#[test]
fn many_missed_slots_are_caught_up_by_one_rotation() {
    let mut told = scheduled();
    told.pass(10 * INTERVAL);
    assert_eq!(told.phase(), "creating_credentials");
    told.work();
    told.complete().unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Active);
    assert!(told.due_at().unwrap() > told.now.plus(80 * DAY), "nothing is doubled");
}

fn to<T>(value: T) -> Change<T> {
    Change::To(value)
}

#[test]
fn a_cluster_can_have_its_own_time_and_none() {
    let mut told = scheduled();
    let configured = told.record().next_rotation_at;
    let wanted = told.now.plus(DAY);
    let next = ScheduleChange { next_at: to(wanted), ..ScheduleChange::default() };
    told.reschedule(next.clone()).unwrap();
    assert_eq!(told.due_at(), Some(wanted));
    assert_eq!(told.reschedule(next).unwrap(), [], "said twice is said once");
    told.reschedule(ScheduleChange { enabled: to(false), ..ScheduleChange::default() }).unwrap();
    assert_eq!((told.record().next_rotation_at, told.due_at()), (None, None));
    told.pass(2 * DAY);
    assert_eq!(told.name(), StateName::Active, "it is off");
    told.reschedule(ScheduleChange { enabled: Change::Clear, ..ScheduleChange::default() })
        .unwrap();
    assert_eq!(told.record().rotation().unwrap().slot, Some(wanted), "what it missed comes now");
    told.work();
    told.complete().unwrap();
    told.work();
    assert_eq!(told.record().schedule.next_at, None, "one time is for one rotation");
    assert!(told.record().next_rotation_at > configured);
    let past = ScheduleChange { next_at: to(told.now), ..ScheduleChange::default() };
    assert!(matches!(told.reschedule(past), Err(Rejection::TimePassed { .. })));
}

#[test]
fn a_time_of_its_own_takes_the_place_of_a_failed_slot() {
    let mut told = scheduled();
    told.now = told.due_at().unwrap();
    told.tell(&Command::Tick).unwrap();
    fail_slot(&mut told);
    let wanted = told.now.plus(3 * DAY);
    told.reschedule(ScheduleChange { next_at: to(wanted), ..ScheduleChange::default() }).unwrap();
    assert_eq!((told.record().slot, told.due_at()), (None, Some(wanted)));
}

/// Open from 02:00 to 04:00, every day.
fn window() -> Window {
    Window::parse("0 2 * * *", 2 * HOUR).unwrap()
}

#[test]
fn a_scheduled_rotation_begins_in_its_window() {
    let mut told = scheduled();
    let slot = told.due_at().unwrap();
    told.policy.window = Some(window());
    told.tell(&Command::Tick).unwrap();
    let opens = told.due_at().unwrap();
    assert!(opens >= slot && opens <= slot.plus(DAY));
    assert_eq!(window().opens_at(slot), Some(opens));
    told.now = opens;
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.record().rotation().unwrap().slot, Some(slot), "the slot is the same");
}

#[test]
fn a_turn_that_comes_too_late_waits_for_the_next_window_and_nothing_spins() {
    let mut told = scheduled();
    told.policy.window = Some(window());
    told.tell(&Command::Tick).unwrap();
    told.now = told.due_at().unwrap();
    told.may_start = false;
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.phase(), "pending");
    let closes = told.due_at().unwrap();
    assert_eq!(Some(closes), window().closes_at(told.now));
    told.now = closes;
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.name(), StateName::Active);
    assert!(matches!(told.ended(), Some(End::Cancelled(Some(e))) if e.code == "window_closed"));
    assert_eq!(told.record().slot, None, "that is no failure");
    let again = told.due_at().unwrap();
    assert!(again > told.now && again <= told.now.plus(DAY));
    // A standstill over the next window changes nothing but the day.
    told.now = again.plus(3 * HOUR);
    told.tell(&Command::Tick).unwrap();
    assert!(told.due_at().unwrap() > told.now);
    told.may_start = true;
    told.now = told.due_at().unwrap();
    told.tell(&Command::Tick).unwrap();
    assert_eq!(told.phase(), "creating_credentials");
    let manual = Told::active();
    assert_eq!(manual.rotated().phase(), "dual_credential_period", "nobody else waits for it");
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
