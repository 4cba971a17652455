//! Served accounts are verified now and then, and dead ones are made anew.

use super::super::super::*;
use super::super::told::*;
use super::super::world::HOUR;
use crate::ids::Generation;

#[test]
fn what_is_served_is_verified_again_after_its_interval() {
    let mut told = Told::watched();
    let due = told.due_at().unwrap();
    assert!(due <= told.now.plus(DAY) && due >= told.now.plus(21 * HOUR), "spread, never later");
    told.now = due;
    assert!(told.wants(Call::Verify));
    told.work();
    assert!(told.due_at().unwrap() > told.now.plus(20 * HOUR), "and again");
    assert!(told.record().has_dead() || told.record().state.name() == StateName::Active);
}

#[test]
fn one_answer_is_a_suspicion_and_a_second_look_makes_sure() {
    let mut told = Told::watched();
    told.pass(DAY);
    let events = told.call_at("quay", invalid());
    assert_eq!(names(&events), ["call_failed", "drift_suspected"]);
    assert!(!told.record().has_dead());
    let mut stale = told.clone();
    let due = told.due().iter().find(|e| e.registry_id.as_str() == "quay").map(|e| e.due);
    assert_eq!(due, None, "not at once");
    stale.pass(MINUTE);
    stale.call_at("quay", valid());
    assert_eq!(stale.served_at("quay").dead_looks, 0, "it was stale");
    told.policy.reissue = false;
    told.pass(MINUTE);
    let events = told.call_at("quay", invalid());
    assert_eq!(names(&events), ["call_failed", "drift_found"]);
    assert!(told.record().has_dead());
    assert_eq!(told.name(), StateName::Active, "only reported");
    told.pass(HOUR);
    told.call_at("quay", valid());
    assert!(!told.record().has_dead(), "somebody has put it back");
}

#[test]
fn a_blocked_registry_proves_nothing() {
    let mut told = Told::watched();
    told.pass(DAY);
    for _ in 0..5 {
        told.call_at("quay", Answer::Verify(VerifyAnswer::Failed(failure(true))));
        told.pass(HOUR);
    }
    assert_eq!(told.served_at("quay").dead_looks, 0);
    assert!(!told.record().has_dead());
}

#[test]
fn a_dead_account_is_made_anew_and_all_others_are_kept() {
    let mut told = Told::watched();
    let rhit = told.served_at("rhit").id;
    told.dies_at_quay();
    let rotation = told.record().rotation().unwrap();
    assert_eq!(rotation.reason, RotationReason::Drift);
    assert_eq!(rotation.scope, Scope::Accounts { replaced: vec![registry("quay")] });
    told.work();
    assert_eq!((told.phase(), told.served()), ("dual_credential_period", 2));
    assert_eq!(told.served_at("rhit").id, rhit);
    assert_eq!(told.served_at("quay").born_generation, Generation(2));
    assert!(!told.record().has_dead());
}

/// Quay's account was made anew, rhit's was kept; a minute has passed since the switch.
fn reissued() -> Told {
    let mut told = Told::watched();
    told.dies_at_quay();
    told.work();
    told.pass(DAY + MINUTE);
    told.work();
    told
}

#[test]
fn who_presents_a_kept_account_may_hold_either_document() {
    let mut told = reissued();
    let (quay, rhit) = (told.served_at("quay").id, told.served_at("rhit").id);
    told.present("a", rhit).unwrap();
    told.present("b", quay).unwrap();
    assert_eq!(told.phase(), "dual_credential_period", "a may hold the old one");
    told.present("a", quay).unwrap();
    assert_eq!(told.phase(), "revoking_old", "a has the new one");
    told.present("a", rhit).unwrap();
    assert_eq!(told.phase(), "revoking_old", "and still has it");
    told.work();
    assert_eq!((told.name(), told.record().accounts.len()), (StateName::Active, 2));
}

#[test]
fn an_adapter_names_the_document_itself() {
    let mut told = reissued();
    told.confirm(2).unwrap();
    assert_eq!(told.phase(), "revoking_old");
}

#[test]
fn a_rollback_of_a_part_serves_what_was_served() {
    let mut told = reissued();
    told.rollback().unwrap();
    let events = told.call_at("quay", valid());
    assert!(names(&events).contains(&"generation_served"), "{events:?}");
    assert_eq!((told.phase(), told.served()), ("rolling_back", 1));
    let (quay, rhit) = (told.served_at("quay").id, told.served_at("rhit").id);
    assert_eq!(told.served_at("quay").born_generation, Generation(1));
    told.pass(DAY + MINUTE);
    told.work();
    told.present("a", rhit).unwrap();
    told.present("b", quay).unwrap();
    assert_eq!(told.phase(), "rolling_back", "a may hold the new one");
    told.present("a", quay).unwrap();
    told.work();
    assert_eq!((told.name(), told.served()), (StateName::Active, 1));
    assert_eq!(told.record().accounts.len(), 2);
}

#[test]
fn a_dead_account_cannot_be_rolled_back_to() {
    let mut told = reissued();
    told.rollback().unwrap();
    let events = told.call_at("quay", invalid());
    assert_eq!(names(&events), ["call_failed", "rollback_refused"]);
    assert_eq!(told.served(), 2);
}

#[test]
fn drift_supersedes_what_does_not_replace_the_dead_account() {
    let mut told = Told::watched();
    let mut dual = told.clone().rotated();
    dual.dies_at_quay();
    let superseded = |told: &Told| matches!(told.ended(), Some(End::Cancelled(Some(error))) if error.code == "superseded");
    assert!(superseded(&dual));
    assert_eq!(dual.record().rotation().unwrap().reason, RotationReason::Drift);
    dual.work();
    assert_eq!(dual.served(), 3);
    assert_eq!(dual.phases(1), [AccountPhase::Retiring; 2], "a consumer may hold them");
    dual.pass(DAY + MINUTE);
    dual.work();
    let quay = dual.served_at("quay").id;
    dual.present("a", quay).unwrap();
    dual.work();
    assert_eq!(dual.record().accounts.len(), 2, "what was superseded goes with it");
    told.rotate().unwrap();
    told.dies_at_quay();
    assert!(!superseded(&told), "a whole one replaces it anyway");
    assert_eq!(told.record().rotation().unwrap().reason, RotationReason::Manual);
}

#[test]
fn a_compromise_keeps_its_deadline() {
    let mut told = Told::watched();
    told.compromise().unwrap();
    told.work();
    told.policy.compromise_deadline = 100 * DAY;
    told.dies_at_quay();
    assert_eq!(told.record().rotation().unwrap().reason, RotationReason::Compromise);
}

#[test]
fn what_cannot_be_made_anew_is_tried_again_later() {
    let mut told = Told::watched();
    told.dies_at_quay();
    told.call(refused());
    assert_eq!(told.name(), StateName::Active);
    let pause = told.record().reissue_pause.unwrap();
    assert_eq!((pause.failures, pause.until), (1, told.now.plus(HOUR)));
    told.pass(HOUR - MINUTE);
    assert_eq!(told.name(), StateName::Active);
    told.pass(MINUTE);
    assert_eq!(told.record().rotation().unwrap().reason, RotationReason::Drift);
    told.work();
    told.complete().unwrap();
    told.work();
    assert_eq!((told.name(), told.record().reissue_pause), (StateName::Active, None));
}
