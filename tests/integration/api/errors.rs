//! What goes wrong, and the words for it.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::world::{World, send};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

#[tokio::test]
async fn a_problem_has_every_member() {
    let world = World::start().await;
    let missing = world.service.get(PATH).await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("content-type"), "application/problem+json");
    let body = &missing.body;
    assert_eq!(body["type"], "https://api.hyperfleet.io/errors/resource-not-found");
    assert_eq!((&body["title"], &body["status"]), (&json!("Resource Not Found"), &json!(404)));
    assert_eq!((&body["instance"], &body["cluster_id"]), (&json!(PATH), &json!("cls-1")));
    assert!(body["detail"].is_string() && body["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(body["trace_id"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn an_unknown_route_is_not_a_missing_thing() {
    let world = World::start().await;
    for path in [
        "/",
        "/v1",
        "/v1/clusters/cls-1",
        "/v1/clusters/cls-1/pull-secrets/",
        "/v1/clusters//pull-secrets",
        "/v1/clusters/cls-1/pull-secret",
        "/v2/clusters/cls-1/pull-secrets",
        "/v1/clusters/cls-1/pull-secrets/rotations/x/y/z",
    ] {
        let unknown = send(world.service.anonymous(Method::GET, path)).await;
        assert_eq!(unknown.problem(), (404, "HYPERFLEET-NTF-000"), "{path}");
    }
    assert_eq!(world.service.get(PATH).await.problem(), (404, "HYPERFLEET-NTF-001"));
}

#[tokio::test]
async fn an_unknown_method_is_told_which_there_are() {
    let world = World::start().await;
    for (method, path, allow) in [
        ("PATCH", PATH, "DELETE, GET, HEAD, POST"),
        ("BREW", PATH, "DELETE, GET, HEAD, POST"),
        ("DELETE", "/v1/clusters/cls-1/pull-secrets/rotations", "GET, HEAD, POST"),
        ("GET", "/v1/clusters/cls-1/pull-secrets/heartbeats", "POST"),
        ("POST", "/v1/attention", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = send(world.service.anonymous(method, path)).await;
        assert_eq!(answer.problem(), (405, "HYPERFLEET-VAL-005"), "{path}");
        assert_eq!(answer.header("allow"), allow, "{path}");
    }
}

#[tokio::test]
async fn a_malformed_cluster_id_is_told_the_rule() {
    let world = World::start().await;
    let long = "a".repeat(64);
    for id in ["CLS", "-a", "a-", "a_b", "a.b", "a%20b", "a%2Fb", "%C3%A4", long.as_str()] {
        for tail in ["", "/rotations", "/rotations/rot-x"] {
            let path = format!("/v1/clusters/{id}/pull-secrets{tail}");
            let answer = world.service.get(&path).await;
            assert_eq!(answer.problem(), (400, "HYPERFLEET-VAL-005"), "{path}");
        }
    }
}

#[tokio::test]
async fn checks_come_in_their_order() {
    let world = World::start().await;
    // Route, then caller, then permission, then content.
    let bad = "/v1/clusters/BAD/pull-secrets";
    let unknown = send(world.service.anonymous(Method::PUT, bad)).await;
    assert_eq!(unknown.status, 405);
    assert_eq!(send(world.service.anonymous(Method::GET, bad)).await.status, 401);
    let viewer = world.request_as("viewer", Method::POST, bad).body("not json");
    assert_eq!(send(viewer).await.problem(), (403, "HYPERFLEET-AUZ-001"));
    let admin = world.request_as("admin", Method::POST, bad).body("not json");
    assert_eq!(send(admin).await.problem(), (400, "HYPERFLEET-VAL-005"));
}

/// A body whose length nobody announces.
async fn chunked(world: &World, body: &str) -> String {
    let host = world.service.api.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer admin-token\r\n\
         connection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_is_small_json() {
    let world = World::start().await;
    let post = || world.service.request(Method::POST, PATH);
    let spaces = |n: usize| format!("{}{{}}", " ".repeat(n));
    let announced = send(post().body(spaces(70_000))).await;
    assert_eq!(announced.problem(), (413, "HYPERFLEET-VAL-003"));
    let chunked = chunked(&world, &spaces(70_000)).await;
    assert!(chunked.starts_with("HTTP/1.1 413 ") && chunked.contains("HYPERFLEET-VAL-003"));

    for kind in ["text/plain", "application/xml", "application/x-www-form-urlencoded", "json"] {
        let answer = send(post().header("Content-Type", kind).body("{}")).await;
        assert_eq!(answer.problem(), (415, "HYPERFLEET-VAL-003"), "{kind}");
    }
    for text in ["{", "nonsense", "{\"registries\": [}", "{} {}", "\u{0}"] {
        assert_eq!(send(post().body(text)).await.problem(), (400, "HYPERFLEET-VAL-003"), "{text}");
    }
    assert_eq!(world.service.get(PATH).await.status, 404, "nothing was made");
    // The largest that is read, of a media type that is missing or spelt otherwise.
    assert_eq!(send(post().body(spaces(65_534))).await.status, 200);
    let spelt = post().header("Content-Type", "Application/JSON; charset=utf-8");
    assert_eq!(send(spelt.body("{}")).await.status, 200);
}

#[tokio::test]
async fn a_wrong_field_is_named_and_no_value_of_a_secret_shown() {
    let world = World::start().await;
    let fault = |answer: &Value| answer["errors"][0].clone();
    let unknown = world.service.post(PATH, json!({"registry": "hunter2-secret"})).await;
    assert_eq!(unknown.problem(), (400, "HYPERFLEET-VAL-002"));
    assert_eq!(fault(&unknown.body)["field"], "registry");
    assert!(!unknown.text.contains("hunter2"), "{}", unknown.text);
    let typed = world.service.post(PATH, json!({"registries": "hunter2-secret"})).await;
    assert_eq!(typed.problem(), (400, "HYPERFLEET-VAL-002"));
    assert!(!typed.text.contains("hunter2"), "{}", typed.text);
    assert_eq!(world.service.post(PATH, json!([])).await.problem(), (400, "HYPERFLEET-VAL-002"));
    let other = world.service.post(PATH, json!({"cluster_id": "cls-2"})).await;
    assert_eq!(other.problem(), (422, "HYPERFLEET-VAL-002"));
    assert_eq!(fault(&other.body)["field"], "cluster_id");
    let rotations = format!("{PATH}/rotations");
    let word = world.service.post(&rotations, json!({"reason": "boredom"})).await;
    assert_eq!(word.problem(), (400, "HYPERFLEET-VAL-002"));
    assert_eq!(fault(&word.body)["allowed_values"], json!(["manual", "compromise", "scheduled"]));
    for reason in [json!(null), json!(5), json!({})] {
        let typed = world.service.post(&rotations, json!({"reason": reason})).await;
        assert_eq!(typed.problem(), (400, "HYPERFLEET-VAL-002"), "{reason}");
        assert_eq!(fault(&typed.body)["field"], "reason", "{reason}");
    }
    let flag = world.service.get(&format!("{PATH}?include_metadata=yes")).await;
    assert_eq!(flag.problem(), (400, "HYPERFLEET-VAL-004"));
}
