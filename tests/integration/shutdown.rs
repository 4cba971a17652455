//! Told to stop, the program ends what it began, in order, within its time, and says how it went.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::service::{Answer, Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

async fn start(directory: &tempfile::TempDir, setup: Setup) -> Service {
    Service::start(directory.path(), setup).await
}

fn failing(points: &str) -> Setup {
    Setup::quick().env("HYPERFLEET_FAILPOINTS", points)
}

/// A POST that is on its way.
fn posting(service: &Service, wait: u32) -> tokio::task::JoinHandle<reqwest::Result<Answer>> {
    let request = service.request(Method::POST, PATH).header("Prefer", format!("wait={wait}"));
    let request = request.json(&json!({}));
    tokio::spawn(async move { Ok(Answer::of(request.send().await?).await) })
}

/// The messages of the log that belong to the shutdown, in order.
fn told(service: &Service) -> Vec<String> {
    let words = ["told to stop", "shutdown", "drain"];
    let entries = service.log();
    let entries = entries.lines().filter_map(|line| serde_json::from_str(line).ok());
    entries
        .filter_map(|entry: serde_json::Value| entry["message"].as_str().map(str::to_owned))
        .filter(|message| words.iter().any(|word| message.starts_with(word)))
        .collect()
}

#[tokio::test]
async fn either_signal_ends_it_in_order() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().unwrap();
        let mut service = start(&directory, Setup::quick()).await;
        // A connection that is kept alive holds nothing up.
        assert_eq!(service.post(PATH, json!({})).await.status, 200);
        service.signal(signal);
        assert_eq!(service.ended().await.code(), Some(0), "{}", service.log());
        let expected = [
            "told to stop",
            "shutdown initiated",
            "drain started",
            "drain ended",
            "shutdown completed",
        ];
        assert_eq!(told(&service), expected);
        let database = directory.path().join("data/credentials.db-wal");
        assert!(!database.exists(), "the database was not closed");
        assert!(!service.log().contains("panicked"), "{}", service.log());
    }
}

#[tokio::test]
async fn it_serves_on_for_a_moment_and_says_that_it_is_leaving() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick()
        .env("HYPERFLEET_SERVER_DRAIN_DELAY", "30s")
        .env("HYPERFLEET_SERVER_SHUTDOWN_TIMEOUT", "60s");
    let mut service = start(&directory, setup).await;
    service.signal("TERM");
    service.logged("shutdown initiated").await;
    let ready = Answer::of(service.anonymous(Method::GET, "/readyz").send().await.unwrap()).await;
    assert_eq!(
        (ready.status, ready.body["message"].as_str()),
        (503, Some("the service is shutting down"))
    );
    let alive = service.anonymous(Method::GET, "/healthz").send().await.unwrap();
    assert_eq!(alive.status(), 200);
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    service.signal("TERM");
    assert_eq!(service.ended().await.code(), Some(1));
    assert_eq!(told(&service).last().unwrap(), "shutdown cut short by a second signal");
}

#[tokio::test]
async fn a_request_in_flight_is_answered_and_its_call_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = start(&directory, failing("after_call:create=delay(1s)")).await;
    let posting = posting(&service, 60);
    service.logged("a failure point acts").await;
    service.signal("TERM");
    // It waits no longer for the registry: it says what there is.
    let answer = posting.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body["state"].as_str()), (202, Some("issuing")));
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(service.ended().await.code(), Some(0), "{}", service.log());
    // The call has ended and is stored: nothing is left to be closed by the next process.
    service.restart_armed("").await;
    assert!(!service.log().contains("took over"), "{}", service.log());
    let secret = service.until(PATH, |answer| answer.body["state"] == "active").await;
    assert_eq!(secret.body["generation"], 1);
}

#[tokio::test]
async fn a_call_that_hangs_is_left_behind_when_the_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let setup = failing("before_call:create=delay(60s)")
        .env("HYPERFLEET_REGISTRIES_LOCAL_TIMEOUT", "10s")
        .env("HYPERFLEET_REGISTRIES_LOCAL_SETTLE_TIME", "20s")
        .env("HYPERFLEET_SERVER_SHUTDOWN_TIMEOUT", "500ms");
    let mut service = start(&directory, setup).await;
    assert_eq!(posting(&service, 0).await.unwrap().unwrap().status, 202);
    service.logged("a failure point acts").await;
    service.signal("TERM");
    assert_eq!(service.ended().await.code(), Some(1));
    assert_eq!(told(&service).last().unwrap(), "shutdown took too long: forced");
    service.restart_armed("").await;
    assert!(service.log().contains("took over"), "{}", service.log());
    service.until(PATH, |answer| answer.body["state"] == "active").await;
}

#[tokio::test]
async fn a_request_that_hangs_is_cut_off_when_the_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let setup =
        failing("before_commit=delay(60s)").env("HYPERFLEET_SERVER_SHUTDOWN_TIMEOUT", "500ms");
    let mut service = start(&directory, setup).await;
    let posting = posting(&service, 60);
    service.logged("a failure point acts").await;
    service.signal("INT");
    assert_eq!(service.ended().await.code(), Some(1));
    assert!(posting.await.unwrap().is_err());
    assert_eq!(told(&service).last().unwrap(), "shutdown took too long: forced");
}

#[tokio::test]
async fn a_signal_while_it_starts_ends_it_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = start(&directory, failing("after_call:create=kill")).await;
    let posting = posting(&service, 60);
    assert!(service.ended().await.signal().is_some());
    assert!(posting.await.unwrap().is_err());
    // Something is open, so the start comes by this point and stays there.
    service.start_armed("taken_over=delay(60s)");
    service.logged("a failure point acts").await;
    service.signal("TERM");
    let ended = tokio::time::timeout(Duration::from_secs(30), service.ended()).await.unwrap();
    assert_eq!(ended.code(), Some(0), "{}", service.log());
}
