//! A rollback goes as far as the registry's verification lets it; what came of it is told to people.

use std::fs;

use base64::Engine as _;
use reqwest::Method;
use serde_json::json;

use super::world::{HOST, World, send};
use crate::support::service::{Answer, Setup};

async fn rollback(world: &World, rotation: &str) -> Answer {
    let path = format!("{rotation}/rollback");
    send(world.service.request(Method::POST, &path).header("Prefer", "wait=1")).await
}

/// Somebody takes the account of this entry out of the registry's file.
fn delete_behind(world: &World, auth: &str) {
    let pair = base64::engine::general_purpose::STANDARD.decode(auth).unwrap();
    let pair = String::from_utf8(pair).unwrap();
    let (name, _) = pair.split_once(':').unwrap();
    let text = fs::read_to_string(world.htpasswd()).unwrap();
    let line = |line: &&str| !line.starts_with(&format!("{name}:"));
    let left: Vec<&str> = text.lines().filter(line).collect();
    assert!(left.len() < text.lines().count(), "{name} was there");
    fs::write(world.htpasswd(), left.join("\n") + "\n").unwrap();
}

#[tokio::test]
async fn a_rollback_is_202_until_the_registry_has_answered() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let rotation = cluster.in_dual_period().await;
    let new = cluster.auth().await;
    let sound = fs::read_to_string(world.htpasswd()).unwrap();
    fs::write(world.htpasswd(), format!("{sound}no colon in this line\n")).unwrap();
    for _ in 0..2 {
        let asked = rollback(&world, &rotation).await;
        let phase = &asked.body["progress"]["phase"];
        assert_eq!((asked.status, phase), (202, &json!("dual_credential_period")));
    }
    assert_eq!(cluster.auth().await, new, "nothing is switched before the answer");
    fs::write(world.htpasswd(), sound).unwrap();
    cluster.until_phase(&rotation, "rolling_back").await;
    assert_eq!(cluster.auth().await, old);
    assert_eq!(world.accounts(), 2, "both work");
    assert_eq!(cluster.heartbeat(&old, "default").await.body["credential"], "current");
    cluster.until_phase(&rotation, "rolled_back").await;
    assert_eq!((world.accounts(), cluster.auth().await), (1, old));
}

#[tokio::test]
async fn a_rollback_to_dead_accounts_is_409_and_drifted() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let rotation = cluster.in_dual_period().await;
    let new = cluster.auth().await;
    delete_behind(&world, &old);
    let refused = rollback(&world, &rotation).await;
    assert_eq!(refused.problem(), (409, "HYPERFLEET-CNF-003"));
    assert!(refused.body["detail"].as_str().unwrap().contains("drifted"), "{}", refused.body);
    assert!(rotation.ends_with(refused.body["rotation_id"].as_str().unwrap()));
    assert_eq!(
        (&refused.body["cluster_id"], &refused.body["retryable"]),
        (&json!("cls-1"), &json!(false))
    );
    let still = world.service.get(&rotation).await;
    assert_eq!(still.body["progress"]["phase"], "dual_credential_period");
    assert_eq!((cluster.auth().await, world.accounts()), (new, 1), "what is served goes on");
}

#[tokio::test]
async fn a_served_account_that_died_is_drifted_and_told() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let rotation = cluster.in_dual_period().await;
    delete_behind(&world, &cluster.auth().await);
    let completed = world.service.post(&format!("{rotation}/complete"), json!({})).await;
    assert_eq!(completed.status, 200, "{}", completed.body);
    let found = |answer: &Answer| !answer.body["items"].as_array().unwrap().is_empty();
    let told = world.service.until("/v1/attention?kind=drifted", found).await;
    let item = &told.body["items"][0];
    assert_eq!((&item["kind"], &item["cluster_id"]), (&json!("drifted"), &json!("cls-1")));
    assert_eq!(item["registry_id"], "local");
    assert!(rotation.ends_with(item["rotation_id"].as_str().unwrap()));
    assert!(item["since"].is_string() && item["attempts"].as_u64().unwrap() >= 1, "{item}");
    assert_eq!(item["last_error"], "the registry refuses the credential");
    assert_eq!(told.body["pagination"]["total_count"], 1);
    // The old one is alive, and nothing was deleted: that is the way back.
    assert_eq!(rollback(&world, &rotation).await.status, 200);
    assert_eq!((cluster.auth().await, world.accounts()), (old, 1));
}

#[tokio::test]
async fn a_credential_whose_code_keeps_failing_is_quarantined_and_told() {
    let setup = Setup::quick().env("HYPERFLEET_FAILPOINTS", "before_commit:verify=panic");
    let world = World::start_with(setup).await;
    let cluster = world.cluster("cls-1");
    let asked = world.service.request(Method::POST, &cluster.path);
    let asked = send(asked.header("Prefer", "respond-async")).await;
    assert!(matches!(asked.status, 202 | 503), "{}", asked.body);
    let found = |answer: &Answer| !answer.body["items"].as_array().unwrap().is_empty();
    let told = world.service.until("/v1/attention?kind=quarantined", found).await;
    let item = &told.body["items"][0];
    assert_eq!((&item["kind"], &item["cluster_id"]), (&json!("quarantined"), &json!("cls-1")));
    assert!(item["since"].is_string() && item["attempts"].is_u64(), "{item}");
    assert!(item["next_attempt_at"].as_str() > item["since"].as_str(), "one new try: {item}");
    let refused = world.service.post(&cluster.path, json!({})).await;
    assert_eq!(refused.problem(), (503, "HYPERFLEET-SVC-001"));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 3000);
    assert_eq!(cluster.get().await.status, 200, "reads go on");
    let log = world.service.whole_log();
    let mut told = log.lines().filter(|line| line.contains("\"HYPERFLEET-SVC-001\""));
    assert!(told.all(|line| line.contains("\"level\":\"info\"")), "no fault of the service: {log}");
}
