//! No room for the database, or no right to write: nothing is promised and nothing is called, and all goes on
//! by itself afterwards.

use std::process::Command;

use reqwest::Method;
use serde_json::json;

use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// No file may grow beyond so many bytes. Not even root may pass such a limit.
fn limit_files(service: &Service, bytes: &str) {
    let status = Command::new("prlimit")
        .args(["--pid", &service.pid().to_string(), &format!("--fsize={bytes}:unlimited")])
        .status()
        .expect("prlimit (package util-linux)");
    assert!(status.success());
}

#[tokio::test]
async fn without_room_nothing_is_called_and_it_goes_on_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    // The system's own signal would end the program; without it a write fails as on a full disk.
    let service = Service::start(directory.path(), Setup::quick().after("trap '' XFSZ")).await;
    let file = directory.path().join("data/registry.htpasswd");
    let made = service.post(PATH, json!({})).await;
    assert_eq!(made.status, 200);
    let accounts = std::fs::read_to_string(&file).unwrap();

    limit_files(&service, "1");
    for (method, path) in [
        (Method::POST, "/v1/clusters/cls-2/pull-secrets".to_owned()),
        (Method::POST, format!("{PATH}/rotations")),
        (Method::DELETE, PATH.to_owned()),
    ] {
        let answer = service.request(method, &path).send().await.unwrap();
        let retry = answer.headers().contains_key("retry-after");
        assert_eq!((answer.status().as_u16(), retry), (503, true), "{path}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), accounts);
    // What is stored is still handed out.
    let held = service.get(PATH).await;
    assert_eq!((held.status, &held.body["pull_secret"]), (200, &made.body["pull_secret"]));
    assert_eq!(service.get("/v1/clusters/cls-2/pull-secrets").await.status, 404);

    limit_files(&service, "unlimited");
    let other = service.post("/v1/clusters/cls-2/pull-secrets", json!({})).await;
    assert_eq!(other.status, 200, "{}", other.body);
    let started = service.post(&format!("{PATH}/rotations"), json!({"reason": "manual"})).await;
    assert_eq!(started.status, 201, "{}", started.body);
    assert_eq!(service.delete(PATH).await.status, 204);
}

#[tokio::test]
async fn an_outcome_waits_until_there_is_room_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick()
        .after("trap '' XFSZ")
        .env("HYPERFLEET_FAILPOINTS", "after_call:create=delay(1s)@1");
    let service = Service::start(directory.path(), setup).await;
    let posting = service.request(Method::POST, PATH).header("Prefer", "wait=0").json(&json!({}));
    assert_eq!(posting.send().await.unwrap().status(), 202);
    service.logged("a failure point acts").await;
    // The registry has made the account; that cannot be stored for a while.
    limit_files(&service, "1");
    let answered = |page: &str| {
        page.lines().any(|line| {
            line.contains("effects_total") && line.contains("created") && line.ends_with(" 1")
        })
    };
    loop {
        let page = reqwest::get(format!("{}/metrics", service.metrics)).await.unwrap();
        if answered(&page.text().await.unwrap()) {
            break;
        }
    }
    let waiting = service.get(PATH).await;
    assert_eq!(waiting.body["state"], "issuing", "{}", waiting.body);
    limit_files(&service, "unlimited");
    service.until(PATH, |answer| answer.body["state"] == "active").await;
    // Made once, adopted by nobody: the answer was kept.
    let told = service.whole_log();
    assert!(!told.contains("account_burnt") && !told.contains("call_lost"), "{told}");
    let file = std::fs::read_to_string(directory.path().join("data/registry.htpasswd")).unwrap();
    assert_eq!(file.lines().count(), 1);
}
