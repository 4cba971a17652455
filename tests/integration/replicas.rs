//! Several replicas on one PostgreSQL, the real program: whichever is asked answers, the work is done once, and it
//! goes on whatever becomes of one of them. Judged by Quay's own log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::support::fake_quay::{Entry, Fault, Gate, Op, What, When};
use crate::support::fleet::{Fleet, HOST};
use crate::support::postgres::Server;
use crate::support::service::{Answer, Service};

const LEASE: &str = "3s";
/// Nobody is found dead within a test.
const LONG_LEASE: &str = "10m";

fn path(cluster: &str) -> String {
    format!("/v1/clusters/{cluster}/pull-secrets")
}

fn posting(service: &Service, cluster: &str, wait: u32) -> RequestBuilder {
    let request = service.request(Method::POST, &path(cluster));
    request.header("Prefer", format!("wait={wait}")).json(&json!({}))
}

async fn post(service: &Service, cluster: &str, wait: u32) -> Answer {
    Answer::of(posting(service, cluster, wait).send().await.unwrap()).await
}

/// No login succeeds until the gate is opened, so a pull secret that is being issued stays so.
fn no_login(fleet: &Fleet) -> Gate {
    let gate = Gate::default();
    let closed = gate.clone();
    fleet.quay.script(move |call| {
        (call.op == Op::Auth).then(|| Fault::Before(When::Opened(closed.clone())))
    });
    gate
}

fn let_login(fleet: &Fleet, gate: &Gate) {
    fleet.quay.heal();
    gate.open();
}

/// A pull secret that replica 0 is issuing, and cannot finish.
async fn issuing(fleet: &Fleet, cluster: &str) -> Gate {
    let gate = no_login(fleet);
    assert_eq!(post(&fleet.replicas[0], cluster, 0).await.status, 202);
    let shown = format!("{}?include_metadata=true", path(cluster));
    let created = |answer: &Answer| answer.body["credentials"][0]["state"] == "created";
    fleet.replicas[0].until(&shown, created).await;
    assert_eq!(fleet.owner(cluster).await, Some(0), "whoever was asked owns what nobody owned");
    gate
}

async fn active(service: &Service, cluster: &str) -> Answer {
    service.until(&path(cluster), |answer| answer.body["state"] == "active").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_posts_at_three_replicas_make_one_account_and_equal_answers() {
    let fleet = Fleet::start(3, LEASE).await;
    let posts = (0..100).map(|number| {
        let request = posting(&fleet.replicas[number % 3], "cls-1", 30);
        async move { Answer::of(request.send().await.unwrap()).await }
    });
    let answers = futures_util::future::join_all(posts).await;
    let equal: BTreeSet<(u16, String)> = answers
        .iter()
        .map(|answer| (answer.status, answer.body["pull_secret"].to_string()))
        .collect();
    assert_eq!(equal.len(), 1, "{equal:?}");
    assert_eq!(answers[0].status, 200, "{}", answers[0].body);
    assert_eq!(fleet.quay.live("acme+hyp-").len(), 1);
    assert_eq!(fleet.quay.requests(Op::CreateRobot), 1);
    assert_eq!(fleet.owner("cls-1").await, None, "at rest nobody owns it");
    let page = fleet.replicas[1].metrics_page().await;
    let live = page.lines().find(|line| line.starts_with("hyperfleet_credentials_replicas_live"));
    assert!(live.unwrap().ends_with(" 3"), "{live:?}");
    fleet.assert_calls_are_paired().await;
}

/// How many requests the fake had open at once.
fn most_at_once(log: &[Entry]) -> usize {
    let (mut open, mut most) = (0_usize, 0_usize);
    for entry in log {
        match entry.what {
            What::Request { .. } => open += 1,
            What::Answered { .. } | What::Lost => open -= 1,
            What::Created { .. }
            | What::Deleted { .. }
            | What::SecretChanged { .. }
            | What::Joined { .. }
            | What::Left { .. }
            | What::Granted { .. }
            | What::LoggedIn { .. }
            | What::Pulled { .. } => {}
        }
        most = most.max(open);
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_keep_to_the_limits_of_a_registry_together() {
    let fleet = Fleet::start(3, LEASE).await;
    for replica in &fleet.replicas {
        let deadline = Instant::now() + Duration::from_secs(60);
        let live = |line: &str| {
            line.starts_with("hyperfleet_credentials_replicas_live") && line.ends_with(" 3")
        };
        while !replica.metrics_page().await.lines().any(live) {
            assert!(Instant::now() < deadline, "three are not known to live");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let slow = Fault::Before(When::After(Duration::from_millis(100)));
    fleet.quay.script(move |_| Some(slow.clone()));
    let posts = (0..36).map(|number| {
        let request = posting(&fleet.replicas[number % 3], &format!("cls-{number}"), 60);
        async move { Answer::of(request.send().await.unwrap()).await.status }
    });
    let answers = futures_util::future::join_all(posts).await;
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    let most = most_at_once(&fleet.quay.log());
    // `max_concurrent` without configuration.
    assert!((3..=8).contains(&most), "{most} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_at_another_replica_ends_when_the_owner_is_done() {
    let fleet = Fleet::start(2, LONG_LEASE).await;
    let gate = issuing(&fleet, "cls-1").await;
    let waiting = tokio::spawn(posting(&fleet.replicas[1], "cls-1", 60).send());
    // It is told of once by the owner, which was asked to.
    fleet.replicas[1].until(&path("cls-1"), |answer| answer.body["state"] == "issuing").await;
    let_login(&fleet, &gate);
    let answer = Answer::of(waiting.await.unwrap().unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(fleet.entries(1, "taken_over").is_empty(), "its owner did the work");
    assert_eq!(fleet.quay.requests(Op::CreateRobot), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_at_another_replica_is_carried_out_by_the_owner_and_seen_everywhere() {
    let fleet = Fleet::start(3, LONG_LEASE).await;
    let gate = issuing(&fleet, "cls-1").await;
    // Decided by one, worked off by another, which has no way to know but by the database.
    let request = fleet.replicas[1].request(Method::DELETE, &path("cls-1"));
    let deleting = tokio::spawn(request.header("Prefer", "wait=60").send());
    fleet.replicas[2].until(&path("cls-1"), |answer| answer.body["state"] == "revoking").await;
    let_login(&fleet, &gate);
    assert_eq!(deleting.await.unwrap().unwrap().status(), 204);
    fleet.robots(0).await;
    // Right after the answer every replica knows, and none of them goes back.
    for replica in &fleet.replicas {
        assert_eq!(replica.get(&path("cls-1")).await.status, 404);
    }
    for (number, replica) in fleet.replicas.iter().enumerate() {
        let made = post(replica, "cls-2", 30).await;
        assert_eq!(made.status, 200, "{number}: {}", made.body);
    }
    let asked = |replica: &Service| {
        let request = replica.request(Method::POST, &format!("{}/rotations", path("cls-2")));
        request.header("Idempotency-Key", "the-same").json(&json!({"reason": "manual"}))
    };
    let first = Answer::of(asked(&fleet.replicas[0]).send().await.unwrap()).await;
    let second = Answer::of(asked(&fleet.replicas[1]).send().await.unwrap()).await;
    assert_eq!((first.status, second.status), (201, 201), "{} {}", first.body, second.body);
    assert_eq!(first.header("location"), second.header("location"));
    assert_eq!(second.header("idempotency-replayed"), "true");
    let served = |answer: &Answer| answer.body["generation"] == 2;
    fleet.replicas[2].until(&path("cls-2"), served).await;
    for replica in &fleet.replicas {
        let answer = replica.get(&path("cls-2")).await;
        assert_eq!(answer.body["generation"], 2, "never back to an older generation");
        let beat = replica.heartbeat("cls-2", &answer.auth(HOST), json!({})).await;
        assert_eq!((beat.status, &beat.body["credential"]), (200, &json!("current")));
    }
    let rotation = first.header("location").to_owned();
    fleet.replicas[0].until(&rotation, |answer| answer.body["status"] == "completed").await;
    fleet.robots(1).await;
    fleet.assert_calls_are_paired().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_killed_replica_goes_on() {
    let mut fleet = Fleet::start(3, LEASE).await;
    let gate = issuing(&fleet, "cls-1").await;
    let dead = fleet.id(0);
    fleet.replicas[0].kill();
    let taken = fleet.taken_over(&[1, 2], "cls-1").await;
    assert_eq!(taken["from"], dead.as_str());
    assert!(taken["epoch"].as_u64() >= Some(2), "{taken}");
    let taker = if taken["to"] == fleet.id(1).as_str() { 1 } else { 2 };
    let_login(&fleet, &gate);
    active(&fleet.replicas[3 - taker], "cls-1").await;
    let page = fleet.replicas[taker].metrics_page().await;
    let takeovers = "hyperfleet_credentials_takeovers_total";
    let takeovers = page.lines().find(|line| line.starts_with(takeovers)).unwrap();
    assert!(!takeovers.ends_with(" 0"), "{takeovers}");
    fleet.robots(1).await;
    assert_eq!(fleet.quay.reused_names(), Vec::<String>::new());
    fleet.assert_calls_are_paired().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_told_to_stop_hands_its_work_over_at_once() {
    // Were it not handed over, nobody would take it within this test.
    let mut fleet = Fleet::start(2, LONG_LEASE).await;
    let gate = issuing(&fleet, "cls-1").await;
    fleet.replicas[0].stop();
    let_login(&fleet, &gate);
    active(&fleet.replicas[1], "cls-1").await;
    assert!(fleet.entries(1, "replica_died").is_empty());
    fleet.robots(1).await;
    fleet.assert_calls_are_paired().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stood_still_does_nothing_twice() {
    let fleet = Fleet::start(2, LEASE).await;
    // Its create arrives, and is applied when nobody counts on it any more.
    let gate = Gate::default();
    fleet.quay.next(Op::CreateRobot, Fault::Before(When::Opened(gate.clone())));
    assert_eq!(post(&fleet.replicas[0], "cls-1", 0).await.status, 202);
    let arrived = |entry: &Entry| matches!(entry.what, What::Request { op: Op::CreateRobot, .. });
    fleet.quay.reached(move |log| log.iter().any(arrived)).await;
    fleet.replicas[0].signal("STOP");
    fleet.taken_over(&[1], "cls-1").await;
    active(&fleet.replicas[1], "cls-1").await;
    gate.open();
    // Twice the lease, and on again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.replicas[0].signal("CONT");
    fleet.replicas[0].logged("this replica goes on").await;
    assert!(!fleet.entries(0, "replica_buried").is_empty(), "it was taken for dead, and says so");
    let (here, there) =
        (post(&fleet.replicas[0], "cls-1", 5), post(&fleet.replicas[1], "cls-1", 5));
    let (here, there) = (here.await, there.await);
    assert_eq!((here.status, &here.body["pull_secret"]), (200, &there.body["pull_secret"]));
    // What was applied late is found and deleted; nothing else was ever made.
    fleet.robots(1).await;
    assert_eq!(fleet.quay.requests(Op::CreateRobot), 2);
    assert_eq!(fleet.quay.reused_names(), Vec::<String>::new());
    fleet.assert_calls_are_paired().await;
    // It works again.
    assert_eq!(post(&fleet.replicas[0], "cls-2", 30).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_nothing_is_begun_and_all_goes_on_by_itself() {
    let mut server = Server::start();
    let url = server.database(None).await;
    let fleet = Fleet::start_on(url, 2, LEASE).await;
    let gate = issuing(&fleet, "cls-1").await;
    server.crash();
    for replica in &fleet.replicas {
        replica.logged("no call begins until this replica can say that it lives").await;
        replica.logged("others may have taken over: what is in memory is dropped").await;
        let answer = replica.get(&path("cls-1")).await;
        assert_eq!(
            (answer.status, &answer.body["retryable"]),
            (503, &json!(true)),
            "{}",
            answer.body
        );
        let ready =
            Answer::of(replica.anonymous(Method::GET, "/readyz").send().await.unwrap()).await;
        assert_eq!((ready.status, &ready.body["checks"]["database"]), (503, &json!("error")));
    }
    let before = fleet.quay.log().len();
    assert_eq!(post(&fleet.replicas[1], "cls-2", 0).await.status, 503);
    assert_eq!(fleet.quay.log().len(), before, "nothing outside was begun");
    server.start_again();
    let_login(&fleet, &gate);
    active(&fleet.replicas[1], "cls-1").await;
    for replica in &fleet.replicas {
        replica.logged("this replica goes on").await;
        replica.until("/readyz", |ready| ready.status == 200).await;
    }
    assert_eq!(post(&fleet.replicas[0], "cls-2", 30).await.status, 200);
    fleet.robots(2).await;
    fleet.assert_calls_are_paired().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_replica_lacks_is_not_written_with() {
    let mut fleet = Fleet::start(1, LONG_LEASE).await;
    assert_eq!(post(&fleet.replicas[0], "cls-1", 30).await.status, 200);
    // Its mounted keys are newer, and the newest is to be the primary.
    let newer = fleet.data().join("newer-keys");
    std::fs::create_dir(&newer).unwrap();
    for name in ["dev.key", "audit.key"] {
        std::fs::copy(fleet.data().join("keys").join(name), newer.join(name)).unwrap();
    }
    hyperfleet_credentials::crypto::generate_key(&newer, "new", true).unwrap();
    let setup = fleet.setup().env("HYPERFLEET_ENCRYPTION_KEYS_DIR", &newer.to_string_lossy());
    fleet.join_with(setup).await;
    assert_eq!(post(&fleet.replicas[1], "cls-2", 30).await.status, 200);
    let keys = sealed_with(&fleet.url).await;
    assert_eq!(keys, ["dev", "dev"], "the other one could not open it");
    fleet.replicas[0].stop();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut number = 3;
    while !sealed_with(&fleet.url).await.contains(&"new".to_owned()) {
        assert!(Instant::now() < deadline, "every replica that lives has it");
        assert_eq!(post(&fleet.replicas[1], &format!("cls-{number}"), 30).await.status, 200);
        number += 1;
    }
}

async fn sealed_with(url: &str) -> Vec<String> {
    use sqlx::Connection as _;
    let mut db = sqlx::postgres::PgConnection::connect(url).await.unwrap();
    let rows: Vec<(String,)> =
        sqlx::query_as("SELECT key_id FROM account_secrets").fetch_all(&mut db).await.unwrap();
    rows.into_iter().map(|(id,)| id).collect()
}

#[tokio::test]
async fn another_installation_is_refused() {
    let fleet = Fleet::start(1, LEASE).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = fleet.setup().env("HYPERFLEET_INSTALLATION_ID", "somebody-else");
    let mut other = Service::spawned(directory.path(), setup);
    assert_eq!(other.ended().await.code(), Some(1));
    assert!(other.log().contains("belongs to installation"), "{}", other.log());
    assert_eq!(fleet.replicas[0].get("/readyz").await.status, 200);
}
