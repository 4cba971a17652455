//! The registry's own record of use, read by the real program: what the cluster does there is proof, what the
//! program does there is not.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::quay_service::{HOST, path, setup};
use crate::support::fake_quay::{self, FakeQuay, Op};
use crate::support::service::{Service, Setup};

/// Only the registry's word counts, and it is asked every second.
fn by_registry(directory: &Path, quay: &FakeQuay, source: &str) -> Setup {
    let setup = setup(directory, quay).env("HYPERFLEET_ROTATION_PROOF", "registry");
    let file = directory.join("config.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["registries"][0]["usage"] = json!(source);
    std::fs::write(&file, config.to_string()).unwrap();
    setup
}

/// What a node of the cluster does with an entry of its pull secret.
async fn pull(quay: &FakeQuay, auth: &str) {
    let pair = base64::engine::general_purpose::STANDARD.decode(auth).unwrap();
    let pair = String::from_utf8(pair).unwrap();
    let (username, secret) = pair.split_once(':').unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v2/auth?service={HOST}&scope=repository:acme/app:pull", quay.url);
    let told = client.get(url).basic_auth(username, Some(secret)).send().await.unwrap();
    let token: Value = serde_json::from_str(&told.text().await.unwrap()).unwrap();
    let url = format!("{}/v2/acme/app/manifests/latest", quay.url);
    let pulled = client.get(url).bearer_auth(token["token"].as_str().unwrap()).send().await;
    assert_eq!(pulled.unwrap().status().as_u16(), 200);
}

/// So many more readings came in.
async fn read_again(quay: &FakeQuay, op: Op, times: usize) {
    let enough = quay.requests(op) + times;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while quay.requests(op) < enough {
        assert!(std::time::Instant::now() < deadline, "use is not read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn the_clusters_pulls_are_proof(source: &str, op: Op) {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let setup = by_registry(directory.path(), &quay, source);
    let mut service = Service::start(directory.path(), setup).await;
    let old = service.post(&path("cls-1"), json!({})).await.auth(HOST);
    let started = service.post(&format!("{}/rotations", path("cls-1")), json!({})).await;
    let rotation = started.header("location").to_owned();
    service.until(&rotation, |r| r.body["progress"]["phase"] == "dual_credential_period").await;
    let new = service.get(&path("cls-1")).await.auth(HOST);

    // The program itself has logged in with both; also after a restart it knows that.
    read_again(&quay, op, 2).await;
    service.kill();
    service.restart().await;
    read_again(&quay, op, 2).await;
    assert_eq!(service.get(&rotation).await.body["progress"]["adoption"], json!([]));

    quay.advance(Duration::from_secs(180));
    pull(&quay, &old).await;
    let seen = service.until(&rotation, |r| r.body["progress"]["adoption"] != json!([])).await;
    let word = &seen.body["progress"]["adoption"][0];
    assert_eq!((&word["source"], &word["consumer"]), (&json!("registry"), &json!("quay")));
    assert_eq!(word["generation"], 1, "the cluster has not moved");
    read_again(&quay, op, 2).await;
    assert_eq!(service.get(&rotation).await.body["progress"]["phase"], "dual_credential_period");

    // A heartbeat is no proof here; the pull is.
    assert_eq!(service.heartbeat("cls-1", &new, json!({})).await.status, 200);
    quay.advance(Duration::from_secs(180));
    pull(&quay, &new).await;
    service.until(&rotation, |r| r.body["status"] == "completed").await;
    let described = service.get(&format!("{}?include_metadata=true", path("cls-1"))).await;
    assert!(described.body["credentials"][0]["last_used_at"].is_string(), "{}", described.body);
    assert_eq!(quay.live("acme+hyp-").len(), 1);
}

#[tokio::test]
async fn by_the_organisations_log() {
    the_clusters_pulls_are_proof("log", Op::OrgLog).await;
}

#[tokio::test]
async fn by_the_time_of_the_last_login() {
    the_clusters_pulls_are_proof("last_accessed", Op::ListRobots).await;
}

#[tokio::test]
async fn while_the_registry_does_not_tell_nothing_is_proved() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let setup = by_registry(directory.path(), &quay, "log");
    let service = Service::start(directory.path(), setup).await;
    service.post(&path("cls-1"), json!({})).await;
    let started = service.post(&format!("{}/rotations", path("cls-1")), json!({})).await;
    let rotation = started.header("location").to_owned();
    service.until(&rotation, |r| r.body["progress"]["phase"] == "dual_credential_period").await;
    let new = service.get(&path("cls-1")).await.auth(HOST);
    quay.script(|call| (call.op == Op::OrgLog).then_some(fake_quay::Fault::Truncated));
    quay.advance(Duration::from_secs(180));
    pull(&quay, &new).await;
    read_again(&quay, Op::OrgLog, 2).await;
    assert_eq!(service.get(&rotation).await.body["status"], "in_progress");
    // What was not told then is told by the next reading that succeeds.
    quay.heal();
    service.until(&rotation, |r| r.body["status"] == "completed").await;
}
