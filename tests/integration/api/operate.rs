//! The operator's hand: complete, extend, rollback, cancel.

use serde_json::json;

use super::world::{Cluster, HOST, World};
use crate::support::service::{Answer, Setup};

async fn told(cluster: &Cluster<'_>, rotation: &str, verb: &str) -> Answer {
    let body = if verb == "extend" { json!({"by": "48h"}) } else { json!({}) };
    cluster.world.service.post(&format!("{rotation}/{verb}"), body).await
}

#[tokio::test]
async fn complete_skips_proof_and_overlap() {
    let setup = Setup::quick().env("HYPERFLEET_ROTATION_MIN_OVERLAP", "24h");
    let world = World::start_with(setup).await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let rotation = cluster.in_dual_period().await;
    cluster.heartbeat(&old, "default").await;
    let answer = told(&cluster, &rotation, "complete").await;
    assert_eq!((answer.status, &answer.body["error"]), (200, &json!(null)), "{}", answer.body);
    let done = cluster.until_phase(&rotation, "completed").await;
    assert_eq!(done.body["progress"]["adopted"], false, "the last word was about the old one");
    assert_eq!(done.body["progress"]["old_credentials_revoked"], true);
    for verb in ["complete", "extend", "rollback", "cancel"] {
        let late = told(&cluster, &rotation, verb).await;
        assert_eq!(late.problem(), (409, "HYPERFLEET-CNF-003"), "{verb}");
    }
}

#[tokio::test]
async fn extend_moves_the_deadline() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let rotation = cluster.in_dual_period().await;
    let before = world.service.get(&rotation).await;
    let time = |answer: &Answer| -> jiff::Timestamp {
        answer.body["deadline"].as_str().unwrap().parse().unwrap()
    };
    let after = told(&cluster, &rotation, "extend").await;
    assert_eq!(after.status, 200);
    assert_eq!(time(&after).duration_since(time(&before)).as_hours(), 48);
    for (body, code) in [
        (json!({}), "HYPERFLEET-VAL-001"),
        (json!({"by": "soon"}), "HYPERFLEET-VAL-002"),
        (json!({"by": "0s"}), "HYPERFLEET-VAL-002"),
        (json!({"by": "400d"}), "HYPERFLEET-VAL-002"),
        (json!({"by": 48}), "HYPERFLEET-VAL-002"),
    ] {
        let bad = world.service.post(&format!("{rotation}/extend"), body.clone()).await;
        assert_eq!(bad.problem(), (400, code), "{body}");
        assert_eq!(bad.body["errors"][0]["field"], "by");
    }
    let cancel = told(&cluster, &rotation, "cancel").await;
    assert_eq!(cancel.problem(), (409, "HYPERFLEET-CNF-003"), "something was switched already");
}

#[tokio::test]
async fn rollback_serves_the_old_one_again_until_its_use_is_proved() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let rotation = cluster.in_dual_period().await;
    let new = cluster.auth().await;
    let back = told(&cluster, &rotation, "rollback").await;
    assert_eq!((back.status, &back.body["progress"]["phase"]), (200, &json!("rolling_back")));
    let served = cluster.get().await;
    assert_eq!((served.auth(HOST), &served.body["generation"]), (old.clone(), &json!(1)));
    assert_eq!(cluster.heartbeat(&new, "default").await.body["credential"], "previous");
    assert_eq!(told(&cluster, &rotation, "rollback").await.status, 409);
    assert_eq!(told(&cluster, &rotation, "extend").await.status, 409);
    cluster.heartbeat(&old, "default").await;
    let done = cluster.until_phase(&rotation, "rolled_back").await;
    assert_eq!(done.body["status"], "rolled_back");
    assert_eq!(done.body["progress"]["registries"], json!({"local": "revoked"}));
    assert_eq!(done.body["progress"]["adopted"], true, "the old one is in use again");
    assert_eq!(world.accounts(), 1);
    let next = world.service.get(&cluster.rotate(json!({})).await).await;
    assert_eq!(next.body["to_generation"], 3, "a number is never used twice");
}

#[tokio::test]
async fn rollback_to_a_dead_account_is_refused() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let old = std::fs::read_to_string(world.htpasswd()).unwrap();
    let rotation = cluster.in_dual_period().await;
    let both = std::fs::read_to_string(world.htpasswd()).unwrap();
    std::fs::write(world.htpasswd(), both.replace(&old, "")).unwrap();
    let answer = told(&cluster, &rotation, "rollback").await;
    assert_eq!(answer.problem(), (409, "HYPERFLEET-CNF-003"));
    assert!(answer.body["detail"].as_str().unwrap().contains("drifted"), "{}", answer.body);
    let still = world.service.get(&rotation).await;
    assert_eq!(still.body["progress"]["phase"], "dual_credential_period");
}

#[tokio::test]
async fn cancel_before_the_switch_removes_what_was_made() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let made = cluster.made().await;
    let file = std::fs::read_to_string(world.htpasswd()).unwrap();
    std::fs::write(world.htpasswd(), "no colon in this line\n").unwrap();
    let rotation = cluster.rotate(json!({})).await;
    for verb in ["complete", "extend", "rollback"] {
        let early = told(&cluster, &rotation, verb).await;
        assert_eq!(early.problem(), (409, "HYPERFLEET-CNF-003"), "{verb}");
    }
    assert_eq!(told(&cluster, &rotation, "cancel").await.status, 200);
    std::fs::write(world.htpasswd(), file).unwrap();
    let done = cluster.until_phase(&rotation, "cancelled").await;
    assert_eq!((&done.body["status"], &done.body["error"]), (&json!("cancelled"), &json!(null)));
    cluster.until_state("active").await;
    assert_eq!(cluster.get().await.body["pull_secret"], made.body["pull_secret"]);
    assert_eq!(world.accounts(), 1);
}
