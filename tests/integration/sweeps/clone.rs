//! A copy of a database must not be used for another installation: both would delete each other's accounts.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::postgres;
use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// Runs the program until it refuses; its words.
async fn refused(directory: &Path, env: &[(&str, &str)]) -> String {
    let start = tokio::process::Command::new(env!("CARGO_BIN_EXE_hyperfleet-credentials"))
        .args(["serve", "--dev"])
        .current_dir(directory)
        .env_clear()
        .envs([("HYPERFLEET_SERVER_PORT", "0"), ("HYPERFLEET_METRICS_PORT", "0")])
        .envs(env.iter().copied())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), start).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_cloned_sqlite_database_with_another_id_refuses_to_start() {
    let production = tempfile::tempdir().unwrap();
    let setup = Setup::quick().env("HYPERFLEET_INSTALLATION_ID", "production");
    let mut service = Service::start(production.path(), setup).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    service.stop();
    let clone = tempfile::tempdir().unwrap();
    std::fs::create_dir(clone.path().join("data")).unwrap();
    let database = "data/credentials.db";
    std::fs::copy(production.path().join(database), clone.path().join(database)).unwrap();
    // The keys are copied, too: nothing else tells the two apart.
    let keys = production.path().join("data/keys");
    std::fs::create_dir(clone.path().join("data/keys")).unwrap();
    for key in std::fs::read_dir(keys).unwrap() {
        let key = key.unwrap();
        std::fs::copy(key.path(), clone.path().join("data/keys").join(key.file_name())).unwrap();
    }
    let words = refused(clone.path(), &[("HYPERFLEET_INSTALLATION_ID", "staging")]).await;
    assert!(words.contains("belongs to installation production"), "{words}");
    assert!(words.contains("staging") && words.contains("installation.id"), "{words}");
}

#[tokio::test]
async fn a_cloned_postgres_database_with_another_id_refuses_to_start() {
    let url = postgres::shared().database(None).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick()
        .env("HYPERFLEET_DB_URL", &url)
        .env("HYPERFLEET_INSTALLATION_ID", "production");
    let mut service = Service::start(directory.path(), setup).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    service.stop();
    let env = [("HYPERFLEET_DB_URL", url.as_str()), ("HYPERFLEET_INSTALLATION_ID", "staging")];
    let words = refused(directory.path(), &env).await;
    assert!(words.contains("belongs to installation production"), "{words}");
}
