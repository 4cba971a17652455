//! The program on PostgreSQL, alone: it serves, and it goes on after a kill. Several: `replicas`.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::postgres;
use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// Runs the program to its end; its exit code and its words.
async fn run(directory: &Path, url: &str, args: &[&str]) -> (Option<i32>, String) {
    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_hyperfleet-credentials"))
        .args(args)
        .current_dir(directory)
        .env_clear()
        .envs([("HYPERFLEET_SERVER_PORT", "0"), ("HYPERFLEET_METRICS_PORT", "0")])
        .env("HYPERFLEET_DB_URL", url)
        .env("HYPERFLEET_ENCRYPTION_KEYS_DIR", "data/keys")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(words).unwrap())
}

#[tokio::test]
async fn it_serves_from_postgres_and_goes_on_after_a_kill() {
    let url = postgres::shared().database(None).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick().env("HYPERFLEET_DB_URL", &url);
    let mut service = Service::start(directory.path(), setup).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    let served = service.get(PATH).await;
    assert_eq!(served.body["state"], "active");

    let (code, words) = run(directory.path(), &url, &["keys", "status"]).await;
    assert_eq!(code, Some(0), "keys are counted beside a server: {words}");

    service.kill();
    service.restart().await;
    assert_eq!(service.get(PATH).await.body["pull_secret"], served.body["pull_secret"]);
}
