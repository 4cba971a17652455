//! `Idempotency-Key` from the outside: one key is one rotation, whatever happens in between.

use std::time::Duration;

use futures_util::future::join_all;
use hyperfleet_credentials::crypto::tokens::TokenHash;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::service::{Answer, Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const ROTATIONS: &str = "/v1/clusters/cls-1/pull-secrets/rotations";

async fn keyed(service: &Service, path: &str, key: &str, body: &Value) -> Answer {
    let request = service.request(Method::POST, path).header("Idempotency-Key", key);
    Answer::of(request.json(body).send().await.unwrap()).await
}

fn id(answer: &Answer) -> &str {
    answer.body["rotation_id"].as_str().unwrap_or_default()
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == "true"
}

fn in_phase(phase: &str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.body["progress"]["phase"] == phase
}

async fn started(setup: Setup) -> (tempfile::TempDir, Service) {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), setup).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    (directory, service)
}

async fn rotations(service: &Service, path: &str) -> Vec<Value> {
    service.get(path).await.body["rotations"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_repeated_start_is_the_first_one_as_it_is_now() {
    let (_directory, service) = started(Setup::quick()).await;
    let first = keyed(&service, ROTATIONS, "k-1", &json!({})).await;
    assert_eq!((first.status, is_replay(&first)), (201, false), "{}", first.body);
    let location = first.header("location").to_owned();
    service.until(&location, in_phase("dual_credential_period")).await;

    // What is left out and what is said in full are the same.
    for body in [json!({}), json!({"reason": "manual", "dry_run": false})] {
        let again = keyed(&service, ROTATIONS, "k-1", &body).await;
        assert_eq!((again.status, is_replay(&again)), (201, true), "{}", again.body);
        assert_eq!((id(&again), again.header("location")), (id(&first), location.as_str()));
        assert_eq!(again.body["progress"]["phase"], "dual_credential_period");
    }
    let other = keyed(&service, ROTATIONS, "k-1", &json!({"reason": "scheduled"})).await;
    assert_eq!(other.problem(), (422, "HYPERFLEET-VAL-002"));
    assert_eq!(other.body["errors"][0]["field"], "Idempotency-Key", "{}", other.body);

    // Without the key it is another request, and a refusal is not kept.
    let plain = service.post(ROTATIONS, json!({})).await;
    assert_eq!(plain.problem(), (409, "HYPERFLEET-CNF-003"));
    for _ in 0..2 {
        let refused = keyed(&service, ROTATIONS, "k-2", &json!({})).await;
        assert_eq!(refused.problem(), (409, "HYPERFLEET-CNF-003"));
        assert_eq!(
            (refused.body["rotation_id"].as_str(), is_replay(&refused)),
            (Some(id(&first)), false)
        );
    }
    let done = keyed(&service, &format!("{location}/complete"), "k-1", &json!({})).await;
    assert_eq!((done.status, is_replay(&done)), (200, false), "another path: {}", done.body);
    service.until(&location, in_phase("completed")).await;
    let done = keyed(&service, &format!("{location}/complete"), "k-1", &json!({})).await;
    assert_eq!((done.status, is_replay(&done)), (200, true));
    assert_eq!(done.body["status"], "completed");
    let second = keyed(&service, ROTATIONS, "k-2", &json!({})).await;
    assert_eq!((second.status, is_replay(&second)), (201, false), "{}", second.body);
    assert_ne!(id(&second), id(&first));
}

#[tokio::test]
async fn the_operators_hand_is_laid_on_once() {
    let (_directory, service) = started(Setup::quick()).await;
    let location = service.post(ROTATIONS, json!({})).await.header("location").to_owned();
    let dual = service.until(&location, in_phase("dual_credential_period")).await;

    let extend = format!("{location}/extend");
    let first = keyed(&service, &extend, "k", &json!({"by": "48h"})).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_ne!(first.body["deadline"], dual.body["deadline"]);
    let again = keyed(&service, &extend, "k", &json!({"by": "48h"})).await;
    assert_eq!((again.status, is_replay(&again)), (200, true));
    assert_eq!(again.body["deadline"], first.body["deadline"], "moved once");
    let other = keyed(&service, &extend, "k", &json!({"by": "24h"})).await;
    assert_eq!(other.problem(), (422, "HYPERFLEET-VAL-002"));

    let rollback = format!("{location}/rollback");
    let first = keyed(&service, &rollback, "k", &json!({})).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let again = keyed(&service, &rollback, "k", &json!({})).await;
    assert_eq!((again.status, is_replay(&again), id(&again)), (200, true, id(&first)));

    let complete = keyed(&service, &format!("{location}/complete"), "k", &json!({})).await;
    assert_eq!(complete.status, 200, "{}", complete.body);
    service.until(&location, in_phase("rolled_back")).await;
}

#[tokio::test]
async fn a_key_belongs_to_its_caller() {
    let (directory, service) = started(Setup::quick()).await;
    let first = keyed(&service, ROTATIONS, "k", &json!({})).await;
    assert_eq!(first.status, 201);

    let file = directory.path().join("data/tokens");
    let hash = TokenHash::of(&SecretString::from("another")).to_hex();
    let lines = std::fs::read_to_string(&file).unwrap() + &format!("second admin sha256:{hash}\n");
    std::fs::write(&file, lines).unwrap();
    let ask = |body: Value| {
        let request = service.anonymous(Method::POST, ROTATIONS).bearer_auth("another");
        request.header("Idempotency-Key", "k").json(&body).send()
    };
    let mut other = Answer::of(ask(json!({})).await.unwrap()).await;
    while other.status == 401 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other = Answer::of(ask(json!({})).await.unwrap()).await;
    }
    // A request of its own, which meets the first one's rotation; and its body is its own.
    for body in [json!({}), json!({"reason": "scheduled"})] {
        let other = Answer::of(ask(body).await.unwrap()).await;
        assert_eq!(other.problem(), (409, "HYPERFLEET-CNF-003"));
        assert_eq!(
            (other.body["rotation_id"].as_str(), is_replay(&other)),
            (Some(id(&first)), false)
        );
    }
}

#[tokio::test]
async fn many_at_once_are_one_rotation() {
    let (_directory, service) = started(Setup::quick()).await;
    let none = json!({});
    let asked = join_all((0..40).map(|_| keyed(&service, ROTATIONS, "k", &none))).await;
    let accepted: Vec<_> = asked.iter().filter(|answer| answer.status == 201).collect();
    assert!(!accepted.is_empty());
    assert_eq!(accepted.iter().filter(|answer| !is_replay(answer)).count(), 1, "one did it");
    assert!(accepted.iter().all(|answer| id(answer) == id(accepted[0])));
    for other in asked.iter().filter(|answer| answer.status != 201) {
        assert_eq!(other.problem(), (409, "HYPERFLEET-CNF-003"));
        assert_eq!(other.body["retryable"], true, "{}", other.body);
        assert_eq!(other.header("retry-after"), "1");
    }
    assert_eq!(rotations(&service, ROTATIONS).await.len(), 1);
}

#[tokio::test]
async fn what_changed_nothing_is_not_kept_and_what_is_no_key_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    let none = keyed(&service, ROTATIONS, "k", &json!({})).await;
    assert_eq!(none.problem(), (404, "HYPERFLEET-NTF-001"));
    let malformed = keyed(&service, ROTATIONS, "k", &json!({"nothing": 1})).await;
    assert_eq!(malformed.problem(), (400, "HYPERFLEET-VAL-002"));
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    let dry = keyed(&service, ROTATIONS, "k", &json!({"dry_run": true})).await;
    assert_eq!(dry.status, 200);
    for bad in ["a b", "", &"x".repeat(256)] {
        let refused = keyed(&service, ROTATIONS, bad, &json!({})).await;
        assert_eq!(refused.problem(), (400, "HYPERFLEET-VAL-002"), "{bad}");
        assert_eq!(refused.body["errors"][0]["field"], "Idempotency-Key");
    }
    let made = keyed(&service, ROTATIONS, "k", &json!({})).await;
    assert_eq!((made.status, is_replay(&made)), (201, false), "{}", made.body);
    let long = keyed(&service, ROTATIONS, &"x".repeat(255), &json!({})).await;
    assert_eq!(long.problem(), (409, "HYPERFLEET-CNF-003"));
}

#[tokio::test]
async fn a_retry_after_kill_9_gets_the_first_answer() {
    let setup = Setup::quick().env("HYPERFLEET_SERVER_REQUEST_WAIT", "1s");
    let (_directory, mut service) = started(setup).await;
    for (round, pause) in [None, Some(0), Some(1), Some(3), Some(8)].into_iter().enumerate() {
        let secrets = format!("/v1/clusters/killed-{round}/pull-secrets");
        let path = format!("{secrets}/rotations");
        assert_eq!(service.post(&secrets, json!({})).await.status, 200);
        let request = service.request(Method::POST, &path).header("Idempotency-Key", "k");
        let sent = tokio::spawn(request.json(&json!({})).send());
        let first = match pause {
            // After the answer.
            None => Some(Answer::of(sent.await.unwrap().unwrap()).await),
            // In the middle of it, wherever that is.
            Some(pause) => {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                None
            }
        };
        service.kill();
        service.restart().await;

        let mut again = keyed(&service, &path, "k", &json!({})).await;
        while again.status == 409 {
            // It died before it committed anything; its lease is not over yet.
            assert_eq!(again.body["retryable"], true, "{}", again.body);
            tokio::time::sleep(Duration::from_millis(200)).await;
            again = keyed(&service, &path, "k", &json!({})).await;
        }
        assert_eq!(again.status, 201, "{}", again.body);
        if let Some(first) = first {
            assert_eq!((id(&again), is_replay(&again)), (id(&first), true));
        }
        let made = rotations(&service, &path).await;
        assert_eq!(made.len(), 1, "round {round}: {made:?}");
        assert_eq!(made[0]["rotation_id"].as_str(), Some(id(&again)));
    }
}
