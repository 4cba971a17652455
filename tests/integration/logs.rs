//! The log of the real program: the form that the standard asks for, and that everything a request caused can
//! be found by its ids.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::service::{Answer, Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn entries(service: &Service) -> Vec<Value> {
    let log = service.whole_log();
    log.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn named<'a>(entries: &'a [Value], event: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["event_name"] == event).collect()
}

/// What every entry has.
fn check_form(entry: &Value) {
    for name in ["message", "version", "hostname"] {
        assert!(entry[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {entry}");
    }
    let time = entry["timestamp"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{entry}");
    assert_eq!(entry["component"], "credentials");
    let level = entry["level"].as_str().unwrap();
    assert!(["debug", "info", "warn", "error"].contains(&level), "{entry}");
    assert!(entry["message"].as_str().unwrap().len() <= 1024);
    for (name, value) in entry.as_object().unwrap() {
        assert!(!name.contains('.') && !name.starts_with("field_"), "{name}: {entry}");
        let inside = value.as_str().unwrap_or_default();
        assert!(!inside.starts_with('{'), "an object in a string: {entry}");
    }
}

async fn traced(service: &Service, method: Method, path: &str, id: &str, body: Value) -> Answer {
    let request = service.request(method, path).header("x-request-id", id).json(&body);
    let request = request.header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"));
    Answer::of(request.header("user-agent", "a-test/1").send().await.unwrap()).await
}

fn of_request<'a>(entries: &'a [Value], id: &str) -> Vec<&'a Value> {
    let found: Vec<_> = entries.iter().filter(|entry| entry["request_id"] == id).collect();
    for entry in &found {
        assert_eq!(entry["trace_id"], TRACE, "{entry}");
        assert_eq!(entry["cluster_id"], "cls-1", "{entry}");
    }
    found
}

#[tokio::test]
async fn everything_that_a_request_caused_is_found_by_its_ids() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    let made = traced(&service, Method::POST, PATH, "made", json!({})).await;
    assert_eq!(made.status, 200);
    let auth = made.auth("localhost:5000");
    let path = format!("{PATH}/rotations");
    let started = traced(&service, Method::POST, &path, "started", json!({})).await;
    let rotation = started.header("location").to_owned();
    let rotation_id = started.body["rotation_id"].as_str().unwrap().to_owned();
    service
        .until(&rotation, |answer| answer.body["progress"]["phase"] == "dual_credential_period")
        .await;
    let refused = traced(&service, Method::POST, &path, "refused", json!({})).await;
    assert_eq!(refused.status, 409);
    let beat = service.anonymous(Method::POST, &format!("{PATH}/heartbeats"));
    let beat = beat.header("x-request-id", "beat").header("Authorization", format!("Basic {auth}"));
    let beat = beat.header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"));
    assert_eq!(beat.send().await.unwrap().status(), 200);

    let entries = entries(&service);
    entries.iter().for_each(check_form);
    let made = of_request(&entries, "made");
    let names: Vec<_> = made.iter().filter_map(|entry| entry["event_name"].as_str()).collect();
    for wanted in [
        "issue_accepted",
        "generation_started",
        "account_planned",
        "call_announced",
        "call_ended",
        "account_created",
        "account_verified",
        "generation_served",
    ] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
    let request = made.iter().find(|entry| entry["message"] == "request").unwrap();
    let api =
        json!([request["method"], request["path"], request["status_code"], request["user_agent"]]);
    assert_eq!(api, json!(["POST", PATH, 200, "a-test/1"]));
    assert!(request["duration_ms"].is_u64());

    let started = of_request(&entries, "started");
    for entry in started.iter().filter(|entry| !entry["event_name"].is_null()) {
        assert_eq!(entry["rotation_id"], rotation_id.as_str(), "{entry}");
        assert!(entry["phase"].is_string() && entry["generation"] == 2, "{entry}");
    }
    let calls: Vec<_> = started.into_iter().filter(|e| e["event_name"] == "call_ended").collect();
    let outcomes: Vec<_> =
        calls.iter().map(|e| (e["call"].as_str(), e["outcome"].as_str())).collect();
    assert_eq!(outcomes, [(Some("create"), Some("created")), (Some("verify"), Some("valid"))]);
    for call in calls {
        assert_eq!((&call["level"], &call["registry"]), (&json!("info"), &json!("local")));
        assert!(call["duration_ms"].is_u64(), "{call}");
    }
    let why = of_request(&entries, "refused");
    let refused = why.iter().find(|entry| entry["event_name"] == "command_refused").unwrap();
    assert_eq!(
        (&refused["command"], &refused["why"]),
        (&json!("rotate"), &json!("rotation_running"))
    );
    let failed = why.iter().find(|entry| entry["message"] == "request failed").unwrap();
    assert_eq!(failed["error_code"], "HYPERFLEET-CNF-003");
    assert_eq!(failed["request_context"], json!({"method": "POST", "path": path}));
    let beat = of_request(&entries, "beat");
    assert!(beat.iter().any(|entry| entry["event_name"] == "consumer_seen"), "{beat:?}");
}

#[tokio::test]
async fn a_call_is_told_once_when_it_begins_and_once_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    service.post(PATH, json!({})).await;
    assert_eq!(service.delete(PATH).await.status, 204);
    let entries = entries(&service);
    let ids = |event: &str| -> Vec<String> {
        let named = named(&entries, event);
        named.iter().map(|entry| entry["call_id"].as_str().unwrap().to_owned()).collect()
    };
    let (begun, ended) = (ids("call_announced"), ids("call_ended"));
    assert_eq!(begun.len(), 3, "{begun:?}");
    assert_eq!(begun, ended);
    assert_eq!(begun.iter().collect::<HashSet<_>>().len(), 3);
    assert!(named(&entries, "call_announced").iter().all(|entry| entry["level"] == "debug"));
}

#[tokio::test]
async fn a_retry_says_when() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = Setup::quick().env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", "http://127.0.0.1:1");
    let service = Service::start(directory.path(), nobody).await;
    issue(&service).await;
    let is_stuck = |answer: &Answer| answer.body["items"][0].is_object();
    service.until("/v1/attention?kind=stuck", is_stuck).await;
    let all = entries(&service);
    all.iter().for_each(check_form);
    let retries = named(&all, "call_failed");
    assert!(!retries.is_empty());
    for retry in retries {
        assert_eq!((&retry["level"], &retry["call"]), (&json!("warn"), &json!("verify")));
        assert!(retry["attempt"].is_u64() && retry["next_attempt_at"].is_string(), "{retry}");
        assert_eq!(retry["error"], "the registry cannot be reached");
    }
}

async fn issue(service: &Service) {
    let body = json!({});
    let request = service.request(Method::POST, PATH).header("Prefer", "respond-async").json(&body);
    assert_eq!(request.send().await.unwrap().status(), 202);
}

#[tokio::test]
async fn a_take_over_says_whose_calls_were_open() {
    let directory = tempfile::tempdir().unwrap();
    // It takes connections and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let setup = Setup::quick().env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", &url);
    let mut service = Service::start(directory.path(), setup).await;
    issue(&service).await;
    let path = format!("{PATH}?include_metadata=true");
    service.until(&path, |answer| answer.body["credentials"][0]["state"] == "created").await;
    service.kill();
    service.restart().await;
    let all = entries(&service);
    all.iter().for_each(check_form);
    // A lost login is simply repeated.
    for event in ["call_failed", "taken_over"] {
        let found = named(&all, event);
        assert_eq!(found.len(), 1, "{event}");
        assert_eq!(found[0]["cluster_id"], "cls-1");
    }
    assert_eq!(named(&all, "call_failed")[0]["actor"], "service:takeover");
}

#[tokio::test]
async fn a_text_log_has_one_line_per_entry() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick().env("HYPERFLEET_LOG_FORMAT", "text");
    let service = Service::start(directory.path(), setup).await;
    service.post(PATH, json!({})).await;
    for line in service.whole_log().lines() {
        let mut parts = line.splitn(6, ' ');
        let mut next = || parts.next().expect(line);
        assert!(next().ends_with('Z'), "{line}");
        assert!(["DEBUG", "INFO", "WARN", "ERROR"].contains(&next()), "{line}");
        assert_eq!(next(), "[credentials]");
        assert!(next().starts_with('[') && next().starts_with('['), "{line}");
    }
}
