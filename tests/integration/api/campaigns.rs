//! Campaigns over HTTP: every call, every error.

use reqwest::Method;
use serde_json::{Value, json};

use super::world::{World, send};
use crate::support::service::{Answer, Setup};

const CAMPAIGNS: &str = "/v1/rotation-campaigns";
const NOBODY: &str = "/v1/rotation-campaigns/01930000-0000-7000-8000-0000000000ab";

async fn create(world: &World, body: Value) -> Answer {
    world.post_as("operator", CAMPAIGNS, body).await
}

/// One cluster begins at once; the others would have to wait for the next minute.
async fn slow(world: &World, ids: &[&str]) -> (String, Answer) {
    let made =
        create(world, json!({"selector": {"cluster_ids": ids}, "max_per_minute": 1, "canary": 0}))
            .await;
    assert_eq!(made.status, 201, "{}", made.body);
    let path = made.header("location").to_owned();
    world.service.until(&path, |answer| answer.body["progress"]["succeeded"] == 1).await;
    (path, made)
}

async fn order(world: &World, path: &str, word: &str) -> Answer {
    let request = world.request_as("operator", Method::POST, &format!("{path}/{word}"));
    send(request.header("X-Reason", format!("to {word}")).json(&json!({}))).await
}

#[tokio::test]
async fn a_campaign_rotates_every_cluster_that_it_selects() {
    let world = World::start().await;
    for id in ["cls-1", "cls-2", "cls-3"] {
        world.cluster(id).made().await;
    }
    let made = create(&world, json!({"selector": {"registry": "local"}})).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.body["campaign_id"].as_str().unwrap();
    let path = format!("{CAMPAIGNS}/{id}");
    assert_eq!(made.header("location"), path);
    for (field, value) in [
        ("state", json!("running")),
        ("reason", json!("manual")),
        ("selector", json!({"registry": "local"})),
        ("max_in_flight", json!(32)),
        ("max_per_minute", json!(60)),
        ("canary", json!(5)),
        ("abort_failure_ratio", json!(0.1)),
        ("created_by", json!("operator-1")),
        ("completed_at", json!(null)),
    ] {
        assert_eq!(made.body[field], value, "{field}");
    }
    let done = world.service.until(&path, |answer| answer.body["state"] == "completed").await;
    let all =
        json!({"total": 3, "pending": 0, "running": 0, "succeeded": 3, "failed": 0, "skipped": 0});
    assert_eq!((&done.body["progress"], done.body["completed_at"].is_string()), (&all, true));
    for id in ["cls-1", "cls-2", "cls-3"] {
        assert_eq!(world.cluster(id).get().await.body["generation"], 2);
    }
    let clusters = world.get_as("viewer", &format!("{path}/clusters?limit=2")).await;
    let shown = &clusters.body["clusters"];
    assert_eq!(
        (&shown[0]["cluster_id"], &shown[0]["status"]),
        (&json!("cls-1"), &json!("succeeded"))
    );
    let rotation = shown[0]["rotation_id"].as_str().unwrap();
    let rotation = world.cluster("cls-1").at(&format!("rotations/{rotation}"));
    assert_eq!(world.service.get(&rotation).await.body["reason"], "manual");
    let next = clusters.body["pagination"]["next_cursor"].as_str().unwrap();
    let rest = world.get_as("viewer", &format!("{path}/clusters?limit=2&cursor={next}")).await;
    assert_eq!(rest.body["clusters"][0]["cluster_id"], "cls-3");
    assert_eq!(rest.body["pagination"]["has_more"], false);
    let none = world.get_as("viewer", &format!("{path}/clusters?status=failed")).await;
    assert_eq!(none.body["clusters"], json!([]));

    // By age: all were rotated a moment ago.
    let young = create(&world, json!({"selector": {"older_than": "1h"}})).await;
    assert_eq!(young.body["selector"], json!({"older_than": "1h"}));
    let nobody = young.header("location").to_owned();
    let nobody = world.service.until(&nobody, |answer| answer.body["state"] == "completed").await;
    assert_eq!(nobody.body["progress"]["total"], 0);
    let list = world.get_as("viewer", &format!("{CAMPAIGNS}?limit=1")).await;
    assert_eq!(list.body["campaigns"][0]["campaign_id"], young.body["campaign_id"], "newest first");
    assert_eq!(list.body["pagination"]["total_count"], 2);
    let page = world.service.metrics_page().await;
    let counted = "hyperfleet_credentials_campaign_clusters_total{";
    let counted = page.lines().find(|line| line.starts_with(counted)).unwrap();
    assert!(counted.contains("status=\"succeeded\"") && counted.ends_with(" 3"), "{counted}");
}

#[tokio::test]
async fn orders_are_obeyed_told_and_harmless_when_repeated() {
    let world = World::start().await;
    let ids = ["cls-1", "cls-2", "cls-3"];
    for id in ids {
        world.cluster(id).made().await;
    }
    let (path, _) = slow(&world, &ids).await;
    for (word, state) in [
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "running"),
        ("resume", "running"),
        ("pause", "paused"),
        ("abort", "aborted"),
        ("abort", "aborted"),
    ] {
        let answer = order(&world, &path, word).await;
        assert_eq!((answer.status, &answer.body["state"]), (200, &json!(state)), "{}", answer.body);
    }
    for word in ["pause", "resume"] {
        let late = order(&world, &path, word).await;
        assert_eq!(late.problem(), (409, "HYPERFLEET-CNF-003"), "{word}");
    }
    let ended = world.service.get(&path).await;
    assert_eq!(
        (&ended.body["progress"]["pending"], &ended.body["state"]),
        (&json!(2), &json!("aborted"))
    );
    assert_eq!(world.cluster("cls-2").get().await.body["generation"], 1);
    // Each change is told once, by whom and why.
    let audit = world.get_as("operator", "/v1/audit-events?actor=operator-1&limit=100").await;
    let events = audit.body["audit_events"].as_array().unwrap().iter();
    let stream = format!("campaign/{}", path.rsplit('/').next().unwrap());
    let told: Vec<_> = events
        .filter(|event| event["stream"] == stream.as_str())
        .map(|event| (event["action"].as_str().unwrap(), event["reason"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(
        told,
        [
            ("campaign_aborted", "to abort"),
            ("campaign_paused", "to pause"),
            ("campaign_resumed", "to resume"),
            ("campaign_paused", "to pause"),
            ("campaign_created", ""),
        ]
    );
    let all = create(&world, json!({"selector": {"cluster_ids": ["cls-3"]}})).await;
    let path = all.header("location").to_owned();
    world.service.until(&path, |answer| answer.body["state"] == "completed").await;
    for word in ["pause", "resume", "abort"] {
        let late = order(&world, &path, word).await;
        assert_eq!(late.problem(), (409, "HYPERFLEET-CNF-003"), "{word} of a completed one");
    }
}

#[tokio::test]
async fn a_repeated_request_makes_no_second_campaign() {
    let world = World::start().await;
    world.cluster("cls-1").made().await;
    let body = json!({"selector": {"cluster_ids": ["cls-1"]}});
    let ask = async |key: &str, body: &Value| {
        let request = world.request_as("operator", Method::POST, CAMPAIGNS);
        send(request.header("Idempotency-Key", key).json(body)).await
    };
    let first = ask("a", &body).await;
    let path = first.header("location").to_owned();
    world.service.until(&path, |answer| answer.body["state"] == "completed").await;
    let again = ask("a", &body).await;
    assert_eq!((again.status, again.header("location")), (201, path.as_str()));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.body["state"], "completed", "as it is now");
    let other = ask("a", &json!({"selector": {"cluster_ids": ["cls-2"]}})).await;
    assert_eq!(other.problem(), (422, "HYPERFLEET-VAL-002"));
    assert_eq!(world.service.get(CAMPAIGNS).await.body["pagination"]["total_count"], 1);
    let repeated = world.request_as("operator", Method::POST, &format!("{path}/abort"));
    let refused = send(repeated.header("Idempotency-Key", "b")).await;
    assert_eq!(refused.problem(), (409, "HYPERFLEET-CNF-003"));
}

#[tokio::test]
async fn who_may_do_what_with_campaigns() {
    let world = World::start().await;
    let body = json!({"selector": {"registry": "local"}});
    for (role, creates, reads) in
        [("adapter", 403, 403), ("viewer", 403, 200), ("operator", 201, 200), ("admin", 201, 200)]
    {
        assert_eq!(world.post_as(role, CAMPAIGNS, body.clone()).await.status, creates, "{role}");
        assert_eq!(world.get_as(role, CAMPAIGNS).await.status, reads, "{role}");
        for word in ["pause", "resume", "abort"] {
            let path = format!("{NOBODY}/{word}");
            let expected = if creates == 201 { 404 } else { 403 };
            let answer = world.post_as(role, &path, json!({})).await;
            assert_eq!(answer.status, expected, "{role} {word}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let world = World::start_with(Setup::quick()).await;
    let by = |more: Value| {
        let mut body = json!({"selector": {"registry": "local"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let selected = |selector: Value| json!({"selector": selector});
    for (body, code, field) in [
        (json!({}), "VAL-001", "selector"),
        (selected(json!({})), "VAL-002", "selector"),
        (selected(json!({"registry": "local", "older_than": "1d"})), "VAL-002", "selector"),
        (selected(json!({"cluster_ids": []})), "VAL-002", "selector.cluster_ids"),
        (selected(json!({"cluster_ids": ["Not An Id"]})), "VAL-002", "selector.cluster_ids[0]"),
        (selected(json!({"registry": "quay"})), "VAL-002", "selector.registry"),
        (selected(json!({"older_than": "soon"})), "VAL-002", "selector.older_than"),
        (selected(json!({"older_than": "100ms"})), "VAL-002", "selector.older_than"),
        (selected(json!({"older_then": "1d"})), "VAL-002", "selector.older_then"),
        (by(json!({"reason": "scheduled"})), "VAL-002", "reason"),
        (by(json!({"max_in_flight": 0})), "VAL-002", "max_in_flight"),
        (by(json!({"max_in_flight": 1001})), "VAL-002", "max_in_flight"),
        (by(json!({"max_per_minute": 0})), "VAL-002", "max_per_minute"),
        (by(json!({"canary": 1001})), "VAL-002", "canary"),
        (by(json!({"canary": -1})), "VAL-002", "canary"),
        (by(json!({"abort_failure_ratio": 1.5})), "VAL-002", "abort_failure_ratio"),
        (by(json!({"region": "eu"})), "VAL-002", "region"),
    ] {
        let answer = create(&world, body.clone()).await;
        let code = format!("HYPERFLEET-{code}");
        assert_eq!(answer.problem(), (400, code.as_str()), "{body} {}", answer.body);
        assert_eq!(answer.body["errors"][0]["field"], field, "{body} {}", answer.body);
    }
    let several = create(&world, by(json!({"max_in_flight": 0, "canary": 5000}))).await;
    assert_eq!(several.problem(), (400, "HYPERFLEET-VAL-000"));
    assert_eq!(several.body["errors"].as_array().unwrap().len(), 2);
    let known = create(&world, selected(json!({"registry": "quay"}))).await;
    assert_eq!(known.body["errors"][0]["allowed_values"], json!(["local"]));
    let many: Vec<String> = (0..5000).map(|number| format!("cls-{number:012}")).collect();
    let large = create(&world, selected(json!({"cluster_ids": many}))).await;
    assert_eq!(large.problem(), (413, "HYPERFLEET-VAL-003"));
    for path in [NOBODY, &format!("{CAMPAIGNS}/nonsense"), &format!("{NOBODY}/clusters")] {
        let answer = world.service.get(path).await;
        assert_eq!(answer.problem(), (404, "HYPERFLEET-NTF-001"), "{path}");
    }
    for query in ["limit=0", "cursor=x", "limit=1000"] {
        let answer = world.service.get(&format!("{CAMPAIGNS}?{query}")).await;
        assert_eq!(answer.problem(), (400, "HYPERFLEET-VAL-004"), "{query}");
    }
    let made = create(&world, by(json!({}))).await;
    let clusters = format!("{}/clusters?status=odd", made.header("location"));
    assert_eq!(world.service.get(&clusters).await.problem(), (400, "HYPERFLEET-VAL-004"));
    let put = send(world.service.request(Method::PUT, CAMPAIGNS)).await;
    assert_eq!((put.status, put.header("allow")), (405, "GET, HEAD, POST"));
}
