//! Rotations of some accounts: more registries, and accounts that somebody deleted.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::world::{HOST, World};
use crate::support::service::{Answer, Setup};

const SPARE: &str = "spare.example.com";

fn spare_file(world: &World) -> PathBuf {
    world.directory.path().join("data/spare.htpasswd")
}

#[tokio::test]
async fn a_longer_list_adds_a_registry_and_keeps_what_is_served() {
    let world = World::with_two_registries().await;
    let cluster = world.cluster("cls-1");
    let first = cluster.post(json!({"registries": ["local"]})).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let before = first.auth(HOST);
    // The new registry has trouble at first; what is served does not feel it.
    fs::write(spare_file(&world), "no colon in this line\n").unwrap();
    let both = json!({"registries": ["local", "spare"]});
    let adds = cluster.post(both.clone()).await;
    assert_eq!((adds.status, &adds.body["generation"]), (200, &json!(1)), "{}", adds.body);
    assert_eq!((adds.auth(HOST), adds.auth(SPARE)), (before.clone(), String::new()));
    let id = adds.body["rotation"]["rotation_id"].as_str().unwrap().to_owned();
    let again = cluster.post(both.clone()).await;
    assert_eq!(again.body["rotation"]["rotation_id"], id, "asked twice is asked once");
    let rotation = cluster.at(&format!("rotations/{id}"));
    assert_eq!(world.service.get(&rotation).await.body["reason"], "registries");

    fs::write(spare_file(&world), "").unwrap();
    let done = cluster.until_phase(&rotation, "completed").await;
    assert_eq!(done.body["status"], "completed");
    assert_eq!(done.body["progress"]["registries"], json!({"spare": "verified"}));
    let served = cluster.post(both).await;
    assert_eq!((&served.body["generation"], &served.body["state"]), (&json!(2), &json!("active")));
    assert_eq!(served.auth(HOST), before, "kept");
    assert!(!served.auth(SPARE).is_empty());
    let credentials = served.body["credentials"].as_array().unwrap().iter();
    let generations: Vec<_> = credentials.map(|c| (&c["registry_id"], &c["generation"])).collect();
    assert_eq!(generations, [(&json!("local"), &json!(2)), (&json!("spare"), &json!(2))]);
    let beat = cluster.heartbeat(&before, "default").await;
    assert_eq!(
        (&beat.body["generation"], &beat.body["credential"]),
        (&json!(2), &json!("current"))
    );
    let fewer = cluster.post(json!({"registries": ["local"]})).await;
    assert_eq!(fewer.problem(), (409, "HYPERFLEET-CNF-003"));
}

#[tokio::test]
async fn a_longer_list_waits_for_the_running_rotation() {
    let world = World::with_two_registries().await;
    let cluster = world.cluster("cls-1");
    cluster.post(json!({"registries": ["local"]})).await;
    let running = cluster.in_dual_period().await;
    let waits = cluster.post(json!({"registries": ["local", "spare"]})).await;
    assert_eq!((waits.status, &waits.body["generation"]), (200, &json!(2)));
    let told = &waits.body["rotation"];
    assert_eq!((&told["status"], &told["phase"]), (&json!("pending"), &json!("pending")));
    let id = told["rotation_id"].as_str().unwrap().to_owned();
    assert!(!running.ends_with(&id));
    let rotation = cluster.at(&format!("rotations/{id}"));
    assert_eq!(world.service.get(&rotation).await.body["status"], "pending");
    assert!(
        running.ends_with(cluster.get().await.body["rotation"]["rotation_id"].as_str().unwrap())
    );
    let list = world.service.get(&cluster.at("rotations")).await;
    assert_eq!(list.body["pagination"]["total_count"], 2);

    world.service.post(&format!("{running}/complete"), json!({})).await;
    cluster.until_phase(&running, "completed").await;
    let added = cluster.until_phase(&rotation, "completed").await;
    assert_eq!(
        (&added.body["from_generation"], &added.body["to_generation"]),
        (&json!(2), &json!(3))
    );
    assert!(!cluster.get().await.auth(SPARE).is_empty());
}

fn watching(on_drift: &str) -> Setup {
    Setup::quick()
        .env("HYPERFLEET_ROTATION_DRIFT_INTERVAL", "500ms")
        .env("HYPERFLEET_ROTATION_ON_DRIFT", on_drift)
}

fn drifted(answer: &Answer) -> bool {
    answer.body["items"].as_array().is_some_and(|items| !items.is_empty())
}

#[tokio::test]
async fn a_dead_account_is_reported_until_it_works_again() {
    let world = World::start_with(watching("report")).await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let accounts = fs::read_to_string(world.htpasswd()).unwrap();
    fs::write(world.htpasswd(), "").unwrap();
    let shown = world.service.until("/v1/attention?kind=drifted", drifted).await;
    let item = &shown.body["items"][0];
    assert_eq!((&item["cluster_id"], &item["registry_id"]), (&json!("cls-1"), &json!("local")));
    assert!(item["since"].is_string() && item["last_error"].is_string(), "{item}");
    assert!(item["attempts"].as_u64().unwrap() >= 2, "no single answer is believed: {item}");
    assert_eq!(cluster.get().await.body["generation"], 1, "only reported");
    fs::write(world.htpasswd(), accounts).unwrap();
    world.service.until("/v1/attention?kind=drifted", |answer| !drifted(answer)).await;
}

#[tokio::test]
async fn a_dead_account_is_made_anew() {
    let world = World::start_with(watching("reissue")).await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    fs::write(world.htpasswd(), "").unwrap();
    let anew = world.service.until(&cluster.path, |answer| answer.body["generation"] == 2).await;
    let id = anew.body["rotation"]["rotation_id"].as_str().unwrap().to_owned();
    let rotation = cluster.at(&format!("rotations/{id}"));
    assert_eq!(world.service.get(&rotation).await.body["reason"], "drift");
    assert_eq!(cluster.heartbeat(&cluster.auth().await, "default").await.status, 200);
    cluster.until_phase(&rotation, "completed").await;
    assert_eq!((world.accounts(), &cluster.get().await.body["state"]), (1, &json!("active")));
}
