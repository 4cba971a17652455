//! The whole service from the outside, with nothing configured.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const HOST: &str = "localhost:5000";

#[tokio::test]
async fn a_pull_secret_from_the_first_request_to_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;

    let made = service.post(PATH, json!({})).await;
    assert_eq!((made.status, made.body["state"].as_str()), (200, Some("active")), "{}", made.body);
    let auth = made.auth(HOST);
    let beat = service.heartbeat("cls-1", &auth, json!({})).await;
    assert_eq!(beat.body["credential"], "current");

    let started = service.post(&format!("{PATH}/rotations"), json!({"reason": "manual"})).await;
    assert_eq!(started.status, 201);
    let rotation = started.header("location").to_owned();
    let in_phase = |phase: &'static str| {
        move |answer: &crate::support::service::Answer| answer.body["progress"]["phase"] == phase
    };
    service.until(&rotation, in_phase("dual_credential_period")).await;
    let old = service.heartbeat("cls-1", &auth, json!({})).await;
    assert_eq!(
        (old.body["credential"].as_str(), &old.body["refresh"]),
        (Some("previous"), &json!(true))
    );

    let new = service.get(PATH).await.auth(HOST);
    assert_ne!(new, auth);
    service.heartbeat("cls-1", &new, json!({})).await;
    service.until(&rotation, in_phase("completed")).await;
    let dead = service.heartbeat("cls-1", &auth, json!({})).await;
    assert_eq!(dead.problem(), (401, "HYPERFLEET-AUT-002"));

    assert_eq!(service.delete(PATH).await.status, 204);
    assert_eq!(service.get(PATH).await.problem(), (404, "HYPERFLEET-NTF-001"));
    let file = std::fs::read_to_string(directory.path().join("data/registry.htpasswd")).unwrap();
    assert_eq!(file, "");
}

#[tokio::test]
async fn a_second_process_is_refused_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    let second = tokio::process::Command::new(env!("CARGO_BIN_EXE_hyperfleet-credentials"))
        .args(["serve", "--dev"])
        .current_dir(directory.path())
        .env_clear()
        .envs([("HYPERFLEET_SERVER_PORT", "0"), ("HYPERFLEET_METRICS_PORT", "0")])
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), second).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("another process has the database open"), "{words}");
    let alive = service.anonymous(Method::GET, "/readyz").send().await.unwrap();
    assert_eq!(alive.status(), 200);
}
