//! What refuses the start, and what it says to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// Starts the program again over the same data; it has to refuse. Its words.
async fn refused(directory: &Path) -> String {
    let start = tokio::process::Command::new(env!("CARGO_BIN_EXE_hyperfleet-credentials"))
        .args(["serve", "--dev"])
        .current_dir(directory)
        .env_clear()
        .envs([("HYPERFLEET_SERVER_PORT", "0"), ("HYPERFLEET_METRICS_PORT", "0")])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), start).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

/// A directory in which a pull secret was made with the key `dev`.
async fn used() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut service = Service::start(directory.path(), Setup::quick()).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    service.kill();
    directory
}

#[tokio::test]
async fn a_key_that_rows_need_cannot_be_missing() {
    let directory = used().await;
    let keys = directory.path().join("data/keys");
    fs::rename(keys.join("dev.key"), keys.join("other.key")).unwrap();
    fs::write(keys.join("primary"), "other").unwrap();
    let words = refused(directory.path()).await;
    assert!(words.contains("dev"), "{words}");
    fs::rename(keys.join("other.key"), keys.join("dev.key")).unwrap();
    fs::write(keys.join("primary"), "dev").unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    assert_eq!(service.get(PATH).await.body["state"], "active", "nothing is lost");
}

#[tokio::test]
async fn a_key_that_others_may_read_or_that_is_too_short_refuses_the_start() {
    let directory = used().await;
    let key = directory.path().join("data/keys/dev.key");
    for mode in [0o644, 0o660, 0o604] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let words = refused(directory.path()).await;
        assert!(words.contains("dev.key") && words.contains("chmod"), "{mode:o}: {words}");
    }
    for mode in [0o600, 0o640, 0o400, 0o440] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        drop(Service::start(directory.path(), Setup::quick()).await);
    }
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "c2hvcnQ=").unwrap();
    let words = refused(directory.path()).await;
    assert!(words.contains("dev.key") && words.contains("32"), "{words}");
}

#[tokio::test]
async fn a_database_of_another_installation_refuses_the_start() {
    let directory = used().await;
    fs::write(directory.path().join("data/installation"), "somebody-else").unwrap();
    let words = refused(directory.path()).await;
    assert!(words.contains("installation"), "{words}");
}

#[tokio::test]
async fn the_start_says_where_the_token_is() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    assert!(service.log().contains("data/admin.token"), "{}", service.log());
}
