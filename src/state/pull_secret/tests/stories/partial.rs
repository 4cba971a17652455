//! Rotations that replace only some accounts.

use super::super::super::*;
use super::super::told::*;
use crate::ids::Generation;

#[test]
fn a_longer_list_adds_and_keeps_what_there_is() {
    let mut told = Told::at_quay();
    let quay = told.served_at("quay").id;
    told.issue_at(&["quay", "rhit"]).unwrap();
    let rotation = told.record().rotation().unwrap();
    assert_eq!(rotation.reason, RotationReason::Registries);
    assert_eq!((told.served(), told.record().registries.len()), (1, 1), "served as before");
    assert_eq!(told.issue_at(&["quay", "rhit"]).unwrap(), [], "asked twice is asked once");
    told.work();
    assert_eq!((told.name(), told.served()), (StateName::Active, 2), "adding needs no proof");
    assert_eq!(told.served_at("quay").id, quay, "kept");
    assert_eq!(told.served_at("rhit").born_generation, Generation(2));
    assert_eq!(told.record().registries.len(), 2);
    assert_eq!(told.ended(), Some(&End::Completed { old_credentials_revoked: true }));
    assert!(matches!(told.issue_at(&["quay"]), Err(Rejection::RegistryMissing(_))));
}

#[test]
fn a_first_set_grows_before_it_is_served() {
    let mut told = Told::with(&["quay", "rhit"]);
    told.issue_at(&["quay"]).unwrap();
    told.issue_at(&["quay", "rhit"]).unwrap();
    told.work();
    assert_eq!((told.name(), told.served(), told.phases(1).len()), (StateName::Active, 1, 2));
}

#[test]
fn what_cannot_be_added_leaves_everything_as_it_was() {
    let mut told = Told::at_quay();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.call(refused());
    assert!(matches!(told.ended(), Some(End::Failed(_))));
    assert_eq!((told.served(), told.record().registries.len()), (1, 1));
    let mut told = Told::at_quay();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.call(created());
    told.cancel().unwrap();
    told.work();
    assert_eq!((told.name(), told.record().accounts.len()), (StateName::Active, 1));
    told.issue_at(&["quay", "rhit"]).unwrap();
    told.work();
    assert_eq!((told.served(), told.record().registries.len()), (3, 2), "and can be tried again");
}

#[test]
fn a_change_of_the_set_waits_for_the_running_rotation() {
    let mut told = Told::at_quay().rotated();
    told.issue_at(&["quay", "rhit"]).unwrap();
    let waiting = told.record().waiting.clone().unwrap();
    assert_eq!(waiting.status(), RotationStatus::Pending);
    assert_eq!(told.issue_at(&["quay", "rhit"]).unwrap(), []);
    told.complete().unwrap();
    told.work();
    assert_eq!((told.name(), told.served()), (StateName::Active, 3));
    assert_eq!(told.record().registries.len(), 2);
    let ended = told.events.iter().filter(|e| matches!(e, Event::RotationEnded { .. })).count();
    assert_eq!((ended, told.record().waiting.is_none()), (2, true));
}

#[test]
fn what_waits_gets_its_number_when_it_begins() {
    let mut told = Told::at_quay().rotated();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.compromise().unwrap();
    told.work();
    told.complete().unwrap();
    told.work();
    assert_eq!(told.served(), 4, "a compromise in between has had number 3");
    assert_eq!(told.served_at("rhit").born_generation, Generation(4));
}

#[test]
fn what_waits_can_be_called_off_and_goes_with_the_pull_secret() {
    let mut told = Told::at_quay().rotated();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    let mut deleted = told.clone();
    let rotation_id = told.record().waiting.as_ref().unwrap().id;
    assert!(matches!(told.tell(&Command::Rollback { rotation_id }), Err(Rejection::Phase { .. })));
    let events = told.tell(&Command::Cancel { rotation_id }).unwrap();
    assert_eq!(names(&events), ["waiting_ended"]);
    assert_eq!(told.phase(), "dual_credential_period");
    let events = deleted.delete().unwrap();
    assert_eq!(names(&events)[..3], ["rotation_ended", "waiting_ended", "revocation_requested"]);
    deleted.work();
    assert_eq!(deleted.name(), StateName::Revoked);
}

#[test]
fn one_that_waits_takes_more_on() {
    let mut told = Told::with(&["quay", "rhit", "harbor"]);
    told.issue_at(&["quay"]).unwrap();
    told.work();
    let mut told = told.rotated();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.rotate_partly(&["harbor"], &[]).unwrap();
    told.complete().unwrap();
    told.work();
    assert_eq!((told.served(), told.record().registries.len()), (3, 3), "in one rotation");
}

/// Quay goes, rhit comes: generation 2 is served.
fn swapped() -> Told {
    let mut told = Told::at_quay();
    told.rotate_partly(&["rhit"], &["quay"]).unwrap();
    told.work();
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 2));
    told
}

#[test]
fn what_goes_is_deleted_on_proof_and_the_set_follows() {
    let mut told = swapped();
    assert_eq!(told.record().registries, [registry("rhit")]);
    told.pass(DAY);
    let rhit = told.served_at("rhit").id;
    told.present("pool", rhit).unwrap();
    told.work();
    assert_eq!(told.name(), StateName::Active);
    assert_eq!(told.record().accounts.len(), 1);
}

#[test]
fn a_rollback_brings_the_set_back() {
    let mut told = swapped();
    told.rollback().unwrap();
    told.work();
    assert_eq!((told.phase(), told.served()), ("rolling_back", 1));
    assert_eq!(told.record().registries, [registry("quay")]);
    told.complete().unwrap();
    told.work();
    assert_eq!((told.name(), told.record().accounts.len()), (StateName::Active, 1));
    assert_eq!(told.ended(), Some(&End::RolledBack));
}

#[test]
fn the_last_registry_stays() {
    let mut told = Told::at_quay();
    assert_eq!(told.rotate_partly(&[], &["quay"]), Err(Rejection::NoRegistry));
    assert!(matches!(told.rotate_partly(&["nexus"], &[]), Err(Rejection::UnknownRegistry(_))));
    assert!(matches!(told.rotate_partly(&[], &["rhit"]), Err(Rejection::RegistryMissing(_))));
}

#[test]
fn the_schedule_is_not_moved_by_a_part() {
    let mut told = Told::with(&["quay", "rhit"]);
    told.policy.interval = Some(90 * DAY);
    told.issue_at(&["quay"]).unwrap();
    told.work();
    let (next, last) = (told.record().next_rotation_at, told.record().last_rotated_at);
    told.pass(DAY);
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.work();
    assert_eq!(told.served(), 2);
    assert_eq!((told.record().next_rotation_at, told.record().last_rotated_at), (next, last));
}

#[test]
fn the_next_whole_rotation_replaces_what_was_kept_as_well() {
    let mut told = Told::at_quay();
    told.rotate_partly(&["rhit"], &[]).unwrap();
    told.work();
    let mut told = told.rotated();
    assert_eq!((told.served(), told.phases(3).len()), (3, 2));
    told.rollback().unwrap();
    told.work();
    assert_eq!((told.phase(), told.served()), ("rolling_back", 2));
    assert_eq!(told.served_at("quay").born_generation, Generation(1), "both ages come back");
    assert_eq!(told.served_at("rhit").born_generation, Generation(2));
}
