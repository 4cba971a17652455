//! POST, GET and DELETE of `/v1/clusters/{cluster_id}/pull-secrets`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::json;

use super::world::{HOST, World};

#[tokio::test]
async fn the_resource_has_every_member() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let made = cluster.made().await;
    let (body, generation) = (&made.body, &made.body["generation"]);
    assert_eq!((&body["cluster_id"], generation), (&json!("cls-1"), &json!(1)));
    assert!(body["rotation"].is_null() && body["last_rotated_at"].is_null());
    assert!(body["next_rotation_at"].as_str() > body["created_at"].as_str());
    assert!(body["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(body["status_details"]["message"], "");
    assert_eq!(body["status_details"]["state"]["value"], "active");
    let ready = &body["status"]["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["status"], &ready["reason"], &ready["observed_generation"]),
        (&json!("Ready"), &json!("True"), &json!("Active"), generation)
    );
    assert_eq!(
        ready["last_transition_time"],
        body["status_details"]["state"]["last_updated_timestamp"]
    );

    let account = &body["credentials"][0];
    assert_eq!((&account["registry_id"], &account["registry"]), (&json!("local"), &json!(HOST)));
    assert_eq!((&account["state"], &account["generation"]), (&json!("active"), generation));
    assert!(account["verified_at"].is_string() && account["created_at"].is_string());
    assert!(account["last_used_at"].is_null() && account["expires_at"].is_null());
    let pair = String::from_utf8(STANDARD.decode(made.auth(HOST)).unwrap()).unwrap();
    let (username, secret) = pair.split_once(':').unwrap();
    assert_eq!(username, account["username"]);
    assert!(username.starts_with("hyp-cls-1-g1-") && secret.len() >= 32, "{username}");

    let plain = cluster.get().await;
    assert!(plain.body.get("credentials").is_none(), "{}", plain.body);
    assert_eq!(plain.body["pull_secret"], body["pull_secret"]);
    assert_eq!(cluster.described().await.body, made.body);
}

#[tokio::test]
async fn a_hundred_parallel_requests_get_one_account_and_equal_answers() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let answers = join_all((0..100).map(|_| cluster.post(json!({})))).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.text, answers[0].text);
    }
    assert_eq!(world.accounts(), 1);
    assert_eq!(cluster.post(json!({"cluster_id": "cls-1"})).await.text, answers[0].text);
}

#[tokio::test]
async fn a_post_during_a_rotation_gets_what_is_served() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let first = cluster.made().await;
    let rotation = cluster.in_dual_period().await;
    let during = cluster.post(json!({})).await;
    assert_eq!((during.status, &during.body["state"]), (200, &json!("rotating")));
    assert_eq!(during.body["generation"], 2);
    assert_ne!(during.auth(HOST), first.auth(HOST));
    assert!(rotation.ends_with(during.body["rotation"]["rotation_id"].as_str().unwrap()));
    assert_eq!(during.body["rotation"]["status"], "in_progress");
    assert_eq!(during.body["rotation"]["phase"], "dual_credential_period");
    let credentials = during.body["credentials"].as_array().unwrap().iter();
    let states: Vec<_> = credentials.map(|c| (&c["generation"], &c["state"])).collect();
    assert_eq!(states, [(&json!(2), &json!("active")), (&json!(1), &json!("retiring"))]);
    assert!(during.body["last_rotated_at"].is_string());
    assert!(during.body["next_rotation_at"].as_str() > first.body["next_rotation_at"].as_str());
}

#[tokio::test]
async fn after_a_delete_it_is_gone_and_a_post_starts_the_next_generation() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    assert_eq!(cluster.get().await.problem(), (404, "HYPERFLEET-NTF-001"));
    assert_eq!(cluster.delete().await.status, 204, "there was none");
    cluster.made().await;
    let gone = cluster.delete().await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    assert_eq!(cluster.get().await.problem(), (404, "HYPERFLEET-NTF-001"));
    assert_eq!(cluster.delete().await.status, 204);
    let again = cluster.made().await;
    assert_eq!(again.body["generation"], 2);
    assert_eq!(world.accounts(), 1);
}

#[tokio::test]
async fn a_delete_during_a_rotation_removes_both_generations() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let rotation = cluster.in_dual_period().await;
    assert_eq!(world.accounts(), 2);
    assert_eq!(cluster.delete().await.status, 204);
    assert_eq!(world.accounts(), 0);
    // History stays readable.
    let ended = world.service.get(&rotation).await;
    assert_eq!((ended.status, &ended.body["status"]), (200, &json!("cancelled")));
    assert_eq!(ended.body["progress"]["registries"], json!({"local": "revoked"}));
    let list = world.service.get(&cluster.at("rotations")).await;
    assert_eq!(list.body["pagination"]["total_count"], 1);
    assert_eq!(cluster.made().await.body["generation"], 3, "a number is never used twice");
}

#[tokio::test]
async fn a_list_of_registries_is_recorded_at_first_and_compared_afterwards() {
    let world = World::with_two_registries().await;
    let unknown = world.cluster("cls-0").post(json!({"registries": ["local", "qauy"]})).await;
    assert_eq!(unknown.problem(), (400, "HYPERFLEET-VAL-002"));
    let fault = &unknown.body["errors"][0];
    assert_eq!((&fault["field"], &fault["constraint"]), (&json!("registries"), &json!("enum")));
    assert_eq!(
        (&fault["value"], &fault["allowed_values"]),
        (&json!("qauy"), &json!(["local", "spare"]))
    );
    let empty = world.cluster("cls-0").post(json!({"registries": []})).await;
    assert_eq!(empty.problem(), (400, "HYPERFLEET-VAL-002"));
    assert_eq!(world.cluster("cls-0").get().await.status, 404);

    let one = world.cluster("cls-1");
    assert_eq!(one.post(json!({"registries": ["local", "local"]})).await.status, 200);
    assert_eq!(one.made().await.body["credentials"].as_array().unwrap().len(), 1);

    let both = world.cluster("cls-2");
    let made = both.made().await;
    let hosts: Vec<_> = made.body["pull_secret"]["auths"].as_object().unwrap().keys().collect();
    assert_eq!(hosts, [HOST, "mirror.example.com", "spare.example.com"]);
    assert_eq!(made.auth("mirror.example.com"), made.auth("spare.example.com"));
    let lacking = both.post(json!({"registries": ["local"]})).await;
    assert_eq!(lacking.problem(), (409, "HYPERFLEET-CNF-003"));
    assert_eq!(lacking.body["registries"], json!(["spare"]));
    assert_eq!(both.post(json!({"registries": ["spare", "local"]})).await.text, made.text);

    one.delete().await;
    let replaced = one.post(json!({"registries": ["spare"]})).await;
    assert_eq!((replaced.status, replaced.auth(HOST)), (200, String::new()));
}

#[tokio::test]
async fn the_longest_name_of_a_cluster_is_served() {
    let world = World::start().await;
    let name = format!("a{}z", "-".repeat(61));
    let cluster = world.cluster(&name);
    assert_eq!(cluster.made().await.body["cluster_id"], name);
    cluster.rotated().await;
    assert_eq!(cluster.delete().await.status, 204);
    assert_eq!(world.accounts(), 0);
}
