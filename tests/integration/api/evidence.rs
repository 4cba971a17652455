//! Heartbeats and confirmations.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{HOST, World, send};

#[tokio::test]
async fn a_heartbeat_says_which_credential_was_presented() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let old = cluster.made().await.auth(HOST);
    let bare = world
        .service
        .anonymous(Method::POST, &cluster.at("heartbeats"))
        .header("Authorization", format!("Basic {old}"));
    let first = send(bare).await;
    assert_eq!(
        first.body,
        json!({"cluster_id": "cls-1", "registry_id": "local", "generation": 1,
               "credential": "current", "refresh": false})
    );
    let rotation = cluster.in_dual_period().await;
    let previous = cluster.heartbeat(&old, "default").await;
    assert_eq!(
        (&previous.body["generation"], &previous.body["credential"], &previous.body["refresh"]),
        (&json!(1), &json!("previous"), &json!(true))
    );
    // Neither time nor more of the same ends it.
    for consumer in ["default", "pool-a", "default"] {
        cluster.heartbeat(&old, consumer).await;
    }
    let shown = world.service.get(&rotation).await;
    assert_eq!(shown.body["progress"]["phase"], "dual_credential_period");
    assert_eq!(shown.body["progress"]["adopted"], false);

    let new = cluster.auth().await;
    let current = cluster.heartbeat(&new, "default").await;
    assert_eq!(
        (&current.body["generation"], &current.body["credential"]),
        (&json!(2), &json!("current"))
    );
    // One pool is still behind: an old word outweighs a new one of somebody else.
    assert_eq!(cluster.confirm(2, "adapter").await.body["accepted"], true);
    let shown = world.service.get(&rotation).await;
    assert_eq!(shown.body["progress"]["phase"], "dual_credential_period");
    cluster.heartbeat(&new, "pool-a").await;
    cluster.until_phase(&rotation, "completed").await;
    assert_eq!(cluster.heartbeat(&old, "default").await.problem(), (401, "HYPERFLEET-AUT-002"));
}

#[tokio::test]
async fn every_credential_that_is_not_ours_gets_the_same_answer() {
    let world = World::start().await;
    let (ours, theirs) = (world.cluster("cls-1"), world.cluster("cls-2"));
    let (auth, foreign) = (ours.made().await.auth(HOST), theirs.made().await.auth(HOST));
    ours.rotated().await;
    let revoked = ours.heartbeat(&auth, "default").await;
    // `nobody:nothing`, and something that is not Base64.
    for bad in [foreign.as_str(), "bm9ib2R5Om5vdGhpbmc=", "!"] {
        let answer = ours.heartbeat(bad, "default").await;
        assert_eq!(answer.problem(), (401, "HYPERFLEET-AUT-002"));
        for member in ["type", "title", "status", "detail", "instance", "code"] {
            assert_eq!(answer.body[member], revoked.body[member], "{member}");
        }
        assert!(answer.header("www-authenticate").starts_with("Basic "));
    }
    let none = send(world.service.anonymous(Method::POST, &ours.at("heartbeats"))).await;
    assert_eq!(none.problem(), (401, "HYPERFLEET-AUT-001"));
    let bearer = world.service.post(&ours.at("heartbeats"), json!({})).await;
    assert_eq!(bearer.problem(), (401, "HYPERFLEET-AUT-002"), "a caller's token is no credential");
    let nobody = world.cluster("cls-3").heartbeat(&foreign, "default").await;
    assert_eq!(nobody.problem(), (401, "HYPERFLEET-AUT-002"));
}

#[tokio::test]
async fn a_cluster_has_at_most_64_consumers_of_63_characters() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let auth = cluster.made().await.auth(HOST);
    let (cluster, auth) = (&cluster, &auth);
    let names = (0..64).map(|n| format!("{n:063}"));
    let beats = names.map(|name| async move { cluster.heartbeat(auth, &name).await.status });
    assert!(join_all(beats).await.iter().all(|status| *status == 200));
    let many = cluster.heartbeat(auth, "one-more").await;
    assert_eq!((many.status, &many.body["errors"][0]["field"]), (422, &json!("consumer")));
    assert_eq!(cluster.heartbeat(auth, &format!("{:063}", 7)).await.status, 200);
    for bad in ["", &"x".repeat(64), "a\nb"] {
        assert_eq!(cluster.heartbeat(auth, bad).await.problem(), (422, "HYPERFLEET-VAL-002"));
    }
    let confirmed = cluster.confirm(1, "an-adapter").await;
    assert_eq!(confirmed.status, 200, "adapters are counted apart: {}", confirmed.body);
    for n in 1..64 {
        assert_eq!(cluster.confirm(1, &format!("adapter-{n}")).await.status, 200);
    }
    assert_eq!(cluster.confirm(1, "one-more").await.problem(), (422, "HYPERFLEET-VAL-002"));
}

#[tokio::test]
async fn a_confirmation_is_accepted_when_it_names_what_is_served() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    assert_eq!(cluster.confirm(1, "a").await.problem(), (404, "HYPERFLEET-NTF-001"));
    cluster.made().await;
    let answer =
        |accepted: bool, served: u32| json!({"accepted": accepted, "served_generation": served});
    assert_eq!(cluster.confirm(1, "a").await.body, answer(true, 1));
    let rotation = cluster.in_dual_period().await;
    for (generation, accepted) in [(1, false), (7, false), (2, true), (2, true)] {
        let confirmed = cluster.confirm(generation, "a").await;
        assert_eq!(
            (confirmed.status, &confirmed.body),
            (200, &answer(accepted, 2)),
            "{generation}"
        );
    }
    let done = cluster.until_phase(&rotation, "completed").await;
    let word = &done.body["progress"]["adoption"][0];
    assert_eq!((&word["consumer"], &word["source"]), (&json!("a"), &json!("adapter")));
    cluster.delete().await;
    assert_eq!(cluster.confirm(2, "a").await.problem(), (404, "HYPERFLEET-NTF-001"));
}

#[tokio::test]
async fn while_nothing_is_served_no_confirmation_is_accepted() {
    let world = World::start().await;
    std::fs::write(world.htpasswd(), "no colon in this line\n").unwrap();
    let cluster = world.cluster("cls-1");
    let asked = world.service.request(Method::POST, &cluster.path);
    assert_eq!(send(asked.header("Prefer", "respond-async")).await.status, 202);
    let confirmed = cluster.confirm(1, "a").await;
    assert_eq!(
        (confirmed.status, &confirmed.body),
        (200, &json!({"accepted": false, "served_generation": 0}))
    );
}

#[tokio::test]
async fn a_confirmation_of_a_rotation_must_name_what_is_served() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let rotation = cluster.in_dual_period().await;
    let (service, path) = (&world.service, format!("{rotation}/confirm"));
    let confirm = |body: Value| service.post(&path, body);
    let old = confirm(json!({"generation": 1, "consumer": "a"})).await;
    assert_eq!(old.problem(), (409, "HYPERFLEET-CNF-003"));
    assert_eq!(old.body["served_generation"], 2);
    // Seen before the switch: no proof, and no error either.
    let early = json!({"generation": 2, "consumer": "a", "observed_at": "2020-01-01T00:00:00Z"});
    assert_eq!(confirm(early).await.body["accepted"], true);
    assert_eq!(world.service.get(&rotation).await.body["progress"]["adopted"], false);
    assert_eq!(confirm(json!({"generation": 2, "consumer": "a"})).await.status, 200);
    cluster.until_phase(&rotation, "completed").await;
    let late = confirm(json!({"generation": 2, "consumer": "b"})).await;
    assert_eq!((late.status, &late.body["accepted"]), (200, &json!(true)), "also on an ended one");
    for (body, code) in [
        (json!({"generation": 2}), "HYPERFLEET-VAL-001"),
        (json!({"consumer": "a"}), "HYPERFLEET-VAL-001"),
        (json!({"generation": "2", "consumer": "a"}), "HYPERFLEET-VAL-002"),
        (json!({"generation": -1, "consumer": "a"}), "HYPERFLEET-VAL-002"),
        (json!({"generation": 2, "consumer": "a", "observed_at": "now"}), "HYPERFLEET-VAL-002"),
        (json!({"generation": 2, "consumer": "a", "when": 1}), "HYPERFLEET-VAL-002"),
    ] {
        assert_eq!(confirm(body.clone()).await.problem(), (400, code), "{body}");
    }
    let zero = confirm(json!({"generation": 0, "consumer": "a"})).await;
    assert!(matches!(zero.status, 400 | 409), "{}", zero.body);
}

#[tokio::test]
async fn a_strangers_body_is_not_looked_at() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let auth = cluster.made().await.auth(HOST);
    let bodies = ["not json", "{\"consumer\": \"\"}", "{\"who\": 1}", &"x".repeat(100_000)];
    for body in bodies {
        let beat = |auth: &str| {
            let request = world.service.anonymous(Method::POST, &cluster.at("heartbeats"));
            request.header("Authorization", format!("Basic {auth}")).body(body.to_owned())
        };
        // `nobody:nothing`.
        let stranger = send(beat("bm9ib2R5Om5vdGhpbmc=")).await;
        assert_eq!(stranger.problem(), (401, "HYPERFLEET-AUT-002"), "{}", stranger.body);
        let known = send(beat(&auth)).await;
        assert!(matches!(known.status, 400 | 413 | 422), "{}", known.body);
    }
}
