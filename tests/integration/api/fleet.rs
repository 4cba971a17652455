//! The whole fleet: lists without secrets, what needs a person, probes and metrics.

use reqwest::Method;
use serde_json::{Value, json};

use super::world::{World, send};
use crate::support::service::Setup;

fn clusters(answer: &Value, list: &str) -> Vec<String> {
    let items = answer[list].as_array().unwrap().iter();
    items.map(|item| item["cluster_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_fleet_is_listed_without_secrets() {
    let world = World::with_two_registries().await;
    world.cluster("cls-1").made().await;
    world.cluster("cls-2").post(json!({"registries": ["local"]})).await;
    world.cluster("cls-3").made().await;
    let rotation = world.cluster("cls-2").in_dual_period().await;

    let all = world.service.get("/v1/pull-secrets").await;
    assert_eq!(clusters(&all.body, "pull_secrets"), ["cls-1", "cls-2", "cls-3"]);
    assert_eq!(all.body["pagination"]["total_count"], 3);
    assert!(!all.text.contains("auths") && !all.text.contains("username"), "{}", all.text);
    let second = &all.body["pull_secrets"][1];
    assert_eq!((&second["state"], &second["generation"]), (&json!("rotating"), &json!(2)));
    assert!(rotation.ends_with(second["rotation"]["rotation_id"].as_str().unwrap()));
    assert_eq!(second["status"]["conditions"][0]["status"], "True");

    for (query, expected) in [
        ("state=rotating", vec!["cls-2"]),
        ("registry=spare", vec!["cls-1", "cls-3"]),
        ("registry=spare&state=rotating", vec![]),
        ("overdue=true", vec![]),
    ] {
        let some = world.service.get(&format!("/v1/pull-secrets?{query}")).await;
        assert_eq!(clusters(&some.body, "pull_secrets"), expected, "{query}");
        assert_eq!(some.body["pagination"]["total_count"], expected.len(), "{query}");
    }
    let first = world.service.get("/v1/pull-secrets?limit=2").await;
    let cursor = first.body["pagination"]["next_cursor"].as_str().unwrap();
    let rest = world.service.get(&format!("/v1/pull-secrets?limit=2&cursor={cursor}")).await;
    assert_eq!(clusters(&rest.body, "pull_secrets"), ["cls-3"]);
    assert_eq!(rest.body["pagination"]["has_more"], false);
    let other = world.service.get(&format!("/v1/rotations?cursor={cursor}")).await;
    assert_eq!(other.problem(), (400, "HYPERFLEET-VAL-004"), "a cursor of another list");
    for query in ["state=gone", "state=active,rotating", "registry=qauy", "overdue=1", "limit=0"] {
        let bad = world.service.get(&format!("/v1/pull-secrets?{query}")).await;
        assert_eq!(bad.problem(), (400, "HYPERFLEET-VAL-004"), "{query}");
    }
}

#[tokio::test]
async fn rotations_of_all_clusters_are_listed() {
    let setup = Setup::quick().env("HYPERFLEET_ROTATION_GRACE_PERIOD", "1s");
    let world = World::start_with(setup).await;
    for name in ["cls-1", "cls-2"] {
        world.cluster(name).made().await;
    }
    world.cluster("cls-1").rotated().await;
    let overdue = world.cluster("cls-2").in_dual_period().await;
    let all = world.service.get("/v1/rotations").await;
    assert_eq!(clusters(&all.body, "rotations"), ["cls-2", "cls-1"], "newest first");
    let done = world.service.get("/v1/rotations?status=completed").await;
    assert_eq!(clusters(&done.body, "rotations"), ["cls-1"]);

    // Without proof nothing happens but that somebody is told.
    let late =
        world.service.until("/v1/attention", |answer| answer.body["items"][0].is_object()).await;
    let item = &late.body["items"][0];
    assert_eq!((&item["kind"], &item["cluster_id"]), (&json!("overdue"), &json!("cls-2")));
    assert!(overdue.ends_with(item["rotation_id"].as_str().unwrap()));
    let list = world.service.get("/v1/rotations?overdue=true").await;
    assert_eq!(clusters(&list.body, "rotations"), ["cls-2"]);
    let fleet = world.service.get("/v1/pull-secrets?overdue=true").await;
    assert_eq!(clusters(&fleet.body, "pull_secrets"), ["cls-2"]);
    let shown = world.service.get(&overdue).await;
    assert_eq!(
        (&shown.body["overdue"], &shown.body["status"]),
        (&json!(true), &json!("in_progress"))
    );
    assert_eq!(shown.body["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(world.accounts(), 3, "both generations of one and the new one of the other");
}

#[tokio::test]
async fn probes_and_metrics_are_open_to_all() {
    let world = World::start().await;
    world.cluster("cls-secret-name").made().await;
    let health = send(world.service.anonymous(Method::GET, "/healthz")).await;
    assert_eq!((health.status, &health.body), (200, &json!({"status": "ok"})));
    let ready = send(world.service.anonymous(Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.body,
        json!({"status": "ok", "registries": {"local": "ok"},
               "checks": {"config": "ok", "database": "ok", "encryption_keys": "ok"}})
    );
    let page = reqwest::get(format!("{}/metrics", world.service.metrics)).await.unwrap();
    assert_eq!(page.status(), 200);
    let text = page.text().await.unwrap();
    let route = r#"path="/v1/clusters/{cluster_id}/pull-secrets""#;
    assert!(text.contains("hyperfleet_credentials_build_info{") && text.contains(route), "{text}");
    assert!(!text.contains("cls-secret-name"), "ids are no labels");
    let elsewhere = world.service.get("/metrics").await;
    assert_eq!(
        elsewhere.problem(),
        (404, "HYPERFLEET-NTF-000"),
        "metrics have a port of their own"
    );
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_query_is_told_at_once() {
    let world = World::start().await;
    for (query, fields) in [
        (
            "pull-secrets?state=gone&overdue=1&limit=0&cursor=x",
            vec!["state", "overdue", "cursor", "limit"],
        ),
        (
            "rotations?status=done&since=now&overdue=1&limit=x",
            vec!["status", "since", "overdue", "limit"],
        ),
        ("attention?kind=odd&limit=101", vec!["kind", "limit"]),
        (
            "audit-events?cluster_id=A&since=now&limit=1&limit=2",
            vec!["cluster_id", "since", "limit"],
        ),
    ] {
        let bad = world.service.get(&format!("/v1/{query}")).await;
        assert_eq!(bad.problem(), (400, "HYPERFLEET-VAL-004"), "{query}");
        let errors = bad.body["errors"].as_array().unwrap().iter();
        let told: Vec<&str> = errors.map(|error| error["field"].as_str().unwrap()).collect();
        assert_eq!(told, fields, "{query}");
    }
}
