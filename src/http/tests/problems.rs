//! Every way to fail, and what it looks like.

use actix_web::http::Method;
use actix_web::test::TestRequest;

use super::fixtures::{Seen, admin, call, edge, with_role};

const SECRETS: &str = "/v1/clusters/cls-1/pull-secrets";

fn post(body: &str) -> TestRequest {
    admin(TestRequest::post().uri(SECRETS).set_payload(body.to_owned()))
}

fn get(path: &str) -> TestRequest {
    admin(TestRequest::get().uri(path))
}

/// What every problem has.
fn check_form(seen: &Seen, path: &str) {
    let problem = seen.json();
    assert_eq!(seen.header("content-type"), "application/problem+json", "{}", seen.body);
    assert_eq!(seen.header("vary"), "Authorization");
    assert_eq!(problem["status"], seen.status);
    assert_eq!(problem["instance"], path);
    assert_eq!(problem["timestamp"], "2026-11-30T12:00:00.000Z");
    let link = problem["type"].as_str().unwrap();
    assert!(link.starts_with("https://api.hyperfleet.io/errors/"), "{link}");
    assert_eq!(problem["trace_id"], seen.header("x-trace-id"));
    assert!(!seen.header("x-request-id").is_empty());
    for member in ["title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}");
    }
}

async fn fails(request: TestRequest, path: &str, status: u16, code: &str) -> Seen {
    let seen = call(&edge(), request).await;
    let code = format!("HYPERFLEET-{code}");
    assert_eq!((seen.status, seen.code()), (status, code), "{path}: {}", seen.body);
    check_form(&seen, path);
    seen
}

#[actix_web::test]
async fn routes() {
    for path in [
        "/",
        "/v2/x",
        "/v1/clusters",
        "/v1/clusters/cls-1/pull-secrets/",
        "/v1/clusters//pull-secrets",
        "/v1/clusters/cls-1/pull-secrets/other",
        "/v1/clusters/a%2Fb/c/pull-secrets",
    ] {
        fails(TestRequest::get().uri(path), path, 404, "NTF-000").await;
    }
    // In the table, but nobody has written it: not reached by a detour either.
    fails(get("/v1/attention"), "/v1/attention", 404, "NTF-000").await;
    for (path, allow) in [
        (SECRETS, "DELETE, GET, HEAD, POST"),
        ("/v1/clusters/cls-1/pull-secrets/confirm", "POST"),
        ("/healthz", "GET, HEAD"),
    ] {
        let request = TestRequest::with_uri(path).method(Method::PUT);
        let seen = fails(request, path, 405, "VAL-005").await;
        assert_eq!(seen.header("allow"), allow);
    }
}

#[actix_web::test]
async fn authentication() {
    let request = || TestRequest::get().uri(SECRETS);
    let missing = fails(request(), SECRETS, 401, "AUT-001").await;
    assert!(missing.header("www-authenticate").starts_with("Bearer"));
    let unknown = fails(with_role(request(), "nobody"), SECRETS, 401, "AUT-002").await;
    assert!(unknown.header("www-authenticate").starts_with("Bearer"));
    assert!(!unknown.body.contains("nobody"));
    let basic = request().insert_header(("authorization", "Basic YTpi"));
    fails(basic, SECRETS, 401, "AUT-002").await;
    let down = fails(with_role(request(), "down"), SECRETS, 503, "SVC-001").await;
    assert!(!down.body.contains("10.0.0.1"));
    assert_eq!(down.header("retry-after"), "5");

    let beats = "/v1/clusters/cls-1/pull-secrets/heartbeats";
    let none = fails(TestRequest::post().uri(beats), beats, 401, "AUT-001").await;
    assert!(none.header("www-authenticate").starts_with("Basic"));
    let good = TestRequest::post().uri(beats).insert_header(("authorization", "Basic YTpi"));
    assert_eq!(call(&edge(), good).await.status, 200);
}

#[actix_web::test]
async fn the_order_of_checks() {
    let bad_path = "/v1/clusters/Bad_Id/pull-secrets";
    let bad_body = |path: &str| TestRequest::post().uri(path).set_payload("{");
    let brew = TestRequest::with_uri(bad_path).method(Method::PATCH);
    fails(brew, bad_path, 405, "VAL-005").await;
    fails(bad_body(bad_path), bad_path, 401, "AUT-001").await;
    fails(with_role(bad_body(bad_path), "viewer"), bad_path, 403, "AUZ-001").await;
    let seen = fails(admin(bad_body(bad_path)), bad_path, 400, "VAL-005").await;
    assert_eq!(seen.json()["errors"][0]["field"], "cluster_id");
    assert_eq!(seen.json()["errors"][0]["value"], "Bad_Id");
    fails(post("{"), SECRETS, 400, "VAL-003").await;
}

#[actix_web::test]
async fn bodies() {
    let unknown = fails(post(r#"{"regsitries": []}"#), SECRETS, 400, "VAL-002").await;
    let error = &unknown.json()["errors"][0];
    assert_eq!(error["field"], "regsitries");
    assert_eq!(error["allowed_fields"], serde_json::json!(["registries"]));
    fails(post(r#"{"registries": "quay"}"#), SECRETS, 400, "VAL-002").await;
    fails(post("nope"), SECRETS, 400, "VAL-003").await;
    let text = post("{}").insert_header(("content-type", "text/plain"));
    fails(text, SECRETS, 415, "VAL-003").await;
    let packed = post("{}").insert_header(("content-encoding", "gzip"));
    fails(packed, SECRETS, 415, "VAL-003").await;
    // The test request announces no length, like a chunked one.
    let large = format!("{{\"registries\": [\"{}\"]}}", "x".repeat(64 * 1024));
    fails(post(&large), SECRETS, 413, "VAL-003").await;
    let announced = post("{}").insert_header(("content-length", "99999999999999999999999"));
    fails(announced, SECRETS, 413, "VAL-003").await;

    let confirm = "/v1/clusters/cls-1/pull-secrets/confirm";
    let missing = fails(admin(TestRequest::post().uri(confirm)), confirm, 400, "VAL-001").await;
    assert_eq!(missing.json()["errors"][0]["field"], "generation");

    for good in [post(""), post("  "), post("{}"), post(r#"{"registries": []}"#)] {
        let seen = call(&edge(), good).await;
        assert_eq!((seen.status, seen.header("cache-control")), (200, "no-store"));
    }
    let json = post("{}").insert_header(("content-type", "Application/JSON; charset=utf-8"));
    assert_eq!(call(&edge(), json).await.status, 200);
}

#[actix_web::test]
async fn headers() {
    let waits = post("").insert_header(("prefer", "wait=90"));
    assert_eq!(call(&edge(), waits).await.json()["wait"], 60);
    assert_eq!(call(&edge(), post("")).await.json()["wait"], 5);
    let reason = post("").insert_header(("x-reason", "x".repeat(513)));
    let seen = fails(reason, SECRETS, 400, "VAL-002").await;
    assert_eq!(seen.json()["errors"][0]["field"], "X-Reason");
}

#[actix_web::test]
async fn queries_and_paths() {
    let list = "/v1/clusters/cls-1/pull-secrets/rotations";
    for (query, field) in [("limit=0", "limit"), ("cursor=x", "cursor"), ("status=done", "status")]
    {
        let seen = fails(get(&format!("{list}?{query}")), list, 400, "VAL-004").await;
        assert_eq!(seen.json()["errors"][0]["field"], field);
    }
    assert_eq!(call(&edge(), get(&format!("{list}?limit=3&other=%FF"))).await.status, 204);
    for id in ["rot-1", "x", "ROT-01930000-0000-7000-8000-0000000000ab"] {
        let path = format!("{list}/{id}");
        let seen = fails(get(&path), &path, 404, "NTF-001").await;
        assert_eq!(seen.json()["cluster_id"], "cls-1");
    }
}

#[actix_web::test]
async fn what_handlers_say() {
    let seen = fails(post(r#"{"registries": ["conflict"]}"#), SECRETS, 409, "CNF-003").await;
    let problem = seen.json();
    assert_eq!(problem["cluster_id"], "cls-1");
    assert_eq!(problem["rotation_status"], "in_progress");
    assert_eq!(problem["served_generation"], 3);
    assert!(problem.get("registries").is_none() && problem.get("state").is_none());

    let seen = fails(post(r#"{"registries": ["limited"]}"#), SECRETS, 429, "LMT-001").await;
    assert_eq!(seen.header("retry-after"), "2");
    assert_eq!((&seen.json()["limit"], &seen.json()["window"]), (&5.into(), &"1m".into()));

    let seen = fails(post(r#"{"registries": ["failed"]}"#), SECRETS, 502, "SVC-004").await;
    assert_eq!(seen.json()["registries"], serde_json::json!(["quay"]));
    assert_eq!(seen.json()["retryable"], true);

    let seen = fails(post(r#"{"registries": ["internal"]}"#), SECRETS, 500, "INT-001").await;
    assert!(!seen.body.contains("table"), "{}", seen.body);
}

#[actix_web::test]
async fn a_panic_is_a_problem() {
    let edge = edge();
    let request = post(r#"{"registries": ["panic"]}"#).insert_header(("x-request-id", "mine"));
    let seen = call(&edge, request).await;
    assert_eq!((seen.status, seen.code()), (500, "HYPERFLEET-INT-001".to_owned()));
    check_form(&seen, SECRETS);
    assert_eq!(seen.header("x-request-id"), "mine");
    assert!(!seen.body.contains("s3cret"));
    let metrics = edge.metrics.encode().unwrap();
    let panics = metrics.lines().find(|line| line.contains("panics_total{")).unwrap();
    assert!(panics.contains("where=\"http\"") && panics.ends_with(" 1"), "{panics}");
    assert!(metrics.contains("path=\"/v1/clusters/{cluster_id}/pull-secrets\""), "{metrics}");
}

#[actix_web::test]
async fn a_trace_is_carried_through() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let traced = |request: TestRequest| {
        request.insert_header(("traceparent", format!("00-{trace}-b7ad6b7169203331-01")))
    };
    assert_eq!(call(&edge(), traced(post(""))).await.header("x-trace-id"), trace);
    let failed = call(&edge(), traced(TestRequest::get().uri("/x"))).await;
    assert_eq!(failed.json()["trace_id"], trace);
}
