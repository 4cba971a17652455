//! Starting, reading and listing rotations.

use serde_json::{Value, json};

use super::world::{Cluster, World};

#[tokio::test]
async fn a_rotation_from_the_request_to_its_end() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let started = world.service.post(&cluster.at("rotations"), json!({})).await;
    assert_eq!(started.status, 201);
    let id = started.body["rotation_id"].as_str().unwrap();
    assert!(id.starts_with("rot-"), "{id}");
    assert_eq!(started.header("location"), cluster.at(&format!("rotations/{id}")));
    let body = &started.body;
    assert_eq!((&body["from_generation"], &body["to_generation"]), (&json!(1), &json!(2)));
    assert_eq!((&body["reason"], &body["force_immediate"]), (&json!("manual"), &json!(false)));
    assert!(body["completed_at"].is_null() && body["deadline"].is_null());
    assert_eq!((&body["warnings"], &body["error"]), (&json!([]), &Value::Null));

    let dual = cluster.until_phase(started.header("location"), "dual_credential_period").await;
    let progress = &dual.body["progress"];
    assert_eq!(progress["registries"], json!({"local": "verified"}));
    assert_eq!(
        (&progress["new_credentials_created"], &progress["new_credentials_verified"]),
        (&json!(true), &json!(true))
    );
    assert_eq!((&progress["adopted"], &progress["adoption"]), (&json!(false), &json!([])));
    assert!(dual.body["deadline"].as_str() > dual.body["estimated_completion"].as_str());
    assert_eq!(dual.body["overdue"], false);

    cluster.heartbeat(&cluster.auth().await, "node-pool-a").await;
    let done = cluster.until_phase(started.header("location"), "completed").await;
    assert_eq!(done.body["status"], "completed");
    let progress = &done.body["progress"];
    assert_eq!(progress["registries"], json!({"local": "revoked"}));
    assert_eq!(
        (&progress["adopted"], &progress["old_credentials_revoked"]),
        (&json!(true), &json!(true))
    );
    let word = &progress["adoption"][0];
    assert_eq!((&word["consumer"], &word["generation"]), (&json!("node-pool-a"), &json!(2)));
    assert_eq!(word["source"], "heartbeat");
    assert!(done.body["completed_at"].is_string() && done.body["estimated_completion"].is_null());
    assert_eq!(world.accounts(), 1);
}

#[tokio::test]
async fn one_at_a_time_unless_it_is_a_compromise() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let none = world.service.post(&cluster.at("rotations"), json!({})).await;
    assert_eq!(none.problem(), (404, "HYPERFLEET-NTF-001"));
    cluster.made().await;
    let first = cluster.in_dual_period().await;
    let second = world.service.post(&cluster.at("rotations"), json!({"reason": "scheduled"})).await;
    assert_eq!(second.problem(), (409, "HYPERFLEET-CNF-003"));
    assert!(first.ends_with(second.body["rotation_id"].as_str().unwrap()));
    assert_eq!(second.body["rotation_status"], "in_progress");
    assert!(second.body["started_at"].is_string());
    assert_eq!(
        (&second.body["cluster_id"], &second.body["state"]),
        (&json!("cls-1"), &json!("rotating"))
    );

    let compromise = cluster.rotate(json!({"reason": "compromise"})).await;
    let superseded = world.service.get(&first).await;
    assert_eq!(superseded.body["status"], "cancelled");
    assert_eq!(superseded.body["error"]["code"], "superseded");
    assert_eq!(superseded.body["progress"]["adopted"], false);
    cluster.until_phase(&compromise, "dual_credential_period").await;
    cluster.heartbeat(&cluster.auth().await, "default").await;
    let done = cluster.until_phase(&compromise, "completed").await;
    assert_eq!(
        (&done.body["from_generation"], &done.body["to_generation"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(world.accounts(), 1, "all earlier generations are gone");
}

#[tokio::test]
async fn force_needs_no_proof_and_says_what_it_costs() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let body = json!({"reason": "compromise", "force_immediate": true});
    let started = world.service.post(&cluster.at("rotations"), body).await;
    assert_eq!(started.status, 201);
    assert!(
        started.body["warnings"][0].as_str().unwrap().contains("pulls fail"),
        "{}",
        started.body
    );
    let done = cluster.until_phase(started.header("location"), "completed").await;
    assert_eq!(
        (&done.body["force_immediate"], &done.body["progress"]["adopted"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(done.body["progress"]["registries"], json!({"local": "revoked"}));
    assert_eq!(world.accounts(), 1);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let dry = json!({"dry_run": true});
    let none = world.service.post(&cluster.at("rotations"), dry.clone()).await;
    assert_eq!(none.problem(), (404, "HYPERFLEET-NTF-001"));
    let made = cluster.made().await;
    let well = world.service.post(&cluster.at("rotations"), dry.clone()).await;
    assert_eq!(
        (well.status, &well.body["registries"]),
        (200, &json!({"local": {"reachable": true}}))
    );
    std::fs::write(world.htpasswd(), "no colon in this line\n").unwrap();
    let ill = world.service.post(&cluster.at("rotations"), dry).await;
    assert_eq!((ill.status, &ill.body["registries"]["local"]["reachable"]), (200, &json!(false)));
    assert!(ill.body["registries"]["local"]["error"].is_string());
    let list = world.service.get(&cluster.at("rotations")).await;
    assert_eq!(list.body["rotations"], json!([]));
    assert_eq!(cluster.described().await.text, made.text);
}

#[tokio::test]
async fn a_rotation_of_another_cluster_is_not_there() {
    let world = World::start().await;
    let (ours, theirs) = (world.cluster("cls-1"), world.cluster("cls-2"));
    ours.made().await;
    theirs.made().await;
    let rotation = ours.in_dual_period().await;
    let id = rotation.rsplit('/').next().unwrap();
    for id in [id, "rot-01930000-0000-7000-8000-0000000000ab", "rot-x", "x", "rot-"] {
        let path = theirs.at(&format!("rotations/{id}"));
        assert_eq!(world.service.get(&path).await.problem(), (404, "HYPERFLEET-NTF-001"), "{id}");
        for (verb, body) in [
            ("complete", json!({})),
            ("cancel", json!({})),
            ("rollback", json!({})),
            ("extend", json!({"by": "1h"})),
            ("confirm", json!({"generation": 2, "consumer": "a"})),
        ] {
            let answer = world.service.post(&format!("{path}/{verb}"), body).await;
            assert_eq!(answer.problem(), (404, "HYPERFLEET-NTF-001"), "{verb} {id}");
        }
    }
}

fn ids(list: &Value) -> Vec<String> {
    let rotations = list["rotations"].as_array().unwrap().iter();
    rotations.map(|one| one["rotation_id"].as_str().unwrap().to_owned()).collect()
}

async fn rotated(cluster: &Cluster<'_>, times: usize) -> Vec<String> {
    let mut newest_first = Vec::new();
    for _ in 0..times {
        let rotation = cluster.rotated().await;
        newest_first.insert(0, rotation.rsplit('/').next().unwrap().to_owned());
    }
    newest_first
}

#[tokio::test]
async fn a_list_is_stable_while_rotations_are_added() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let known = rotated(&cluster, 3).await;
    let list = cluster.at("rotations");
    let all = world.service.get(&list).await;
    assert_eq!(ids(&all.body), known);
    assert_eq!(
        all.body["pagination"],
        json!({"next_cursor": null, "has_more": false, "total_count": 3})
    );
    let one = world.service.get(&cluster.at(&format!("rotations/{}", known[1]))).await;
    assert_eq!(all.body["rotations"][1], one.body, "a list shows what the single one shows");

    let first = world.service.get(&format!("{list}?limit=2")).await;
    assert_eq!(
        (ids(&first.body), &first.body["pagination"]["has_more"]),
        (known[..2].to_vec(), &json!(true))
    );
    let cursor = first.body["pagination"]["next_cursor"].as_str().unwrap().to_owned();
    let running = cluster.in_dual_period().await;
    let rest = world.service.get(&format!("{list}?limit=2&cursor={cursor}")).await;
    assert_eq!(ids(&rest.body), known[2..]);
    assert_eq!(
        rest.body["pagination"],
        json!({"next_cursor": null, "has_more": false, "total_count": 4})
    );

    let of_status = |words: &str| format!("{list}?status={words}");
    let completed = world.service.get(&of_status("completed")).await;
    assert_eq!(ids(&completed.body), known);
    let running_only = world.service.get(&of_status("in_progress,failed&status=pending")).await;
    assert!(running.ends_with(&ids(&running_only.body)[0]));
    assert_eq!(running_only.body["pagination"]["total_count"], 1);
    let since = all.body["rotations"][0]["created_at"].as_str().unwrap();
    let later = world.service.get(&format!("{list}?since={since}")).await;
    assert_eq!((ids(&later.body).len(), &ids(&later.body)[1]), (2, &known[0]));
    let never = world.service.get(&format!("{list}?since=2100-01-01T00:00:00Z")).await;
    assert_eq!(never.body["pagination"]["total_count"], 0);
}

#[tokio::test]
async fn a_list_refuses_what_it_does_not_know() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=done", "status"),
        ("since=yesterday", "since"),
        ("cursor=abc", "cursor"),
        ("overdue=maybe", "overdue"),
    ] {
        let answer = world.service.get(&cluster.at(&format!("rotations?{query}"))).await;
        assert_eq!(answer.problem(), (400, "HYPERFLEET-VAL-004"), "{query}");
        assert_eq!(answer.body["errors"][0]["field"], field, "{query}");
    }
    let words = world.service.get(&cluster.at("rotations?status=done")).await;
    assert!(
        words.body["errors"][0]["allowed_values"]
            .as_array()
            .unwrap()
            .contains(&json!("rolled_back"))
    );
    assert_eq!(world.service.get(&cluster.at("rotations")).await.body["rotations"], json!([]));
}
