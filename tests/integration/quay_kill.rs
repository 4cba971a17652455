//! The real program, killed again and again beside a Quay that loses answers and applies calls late. Judged
//! by Quay's own log.

use std::time::{Duration, Instant};

use rand::RngExt as _;
use reqwest::Method;
use serde_json::json;

use crate::quay_service::{HOST, path, setup};
use crate::support::fake_quay::{self, FakeQuay, Fault, Op, Reply, When};
use crate::support::seed::{random, seed};
use crate::support::service::{Answer, Service};

const CLUSTERS: [&str; 3] = ["cls-a", "cls-b", "cls-c"];
const KILLS: usize = 25;

/// Now and then an answer is lost, a change comes late, or Quay has no time.
fn troubled(quay: &FakeQuay) {
    quay.script(|call| match (call.op, call.nth % 6) {
        (Op::CreateRobot | Op::DeleteRobot, 1) => Some(Fault::LoseAfter),
        (Op::CreateRobot | Op::DeleteRobot, 3) => {
            Some(Fault::AppliedLate(When::After(Duration::from_millis(700))))
        }
        (Op::CreateRobot | Op::JoinTeam, 4) => Some(Fault::LoseBefore),
        (Op::GetRobot | Op::Auth, 5) => Some(Fault::Instead(Reply::rate_limited())),
        _ => None,
    });
}

/// One thing that somebody wants of a cluster; nobody minds when the service is just being killed.
async fn want(service: &Service, cluster: &str, choice: u32) {
    let request = match choice % 5 {
        0 | 1 => service.request(Method::POST, &path(cluster)).header("Prefer", "respond-async"),
        2 | 3 => service.request(Method::POST, &format!("{}/rotations", path(cluster))),
        _ => service
            .request(Method::POST, &format!("{}/rotations", path(cluster)))
            .json(&json!({"reason": "compromise"})),
    };
    let _ = request.send().await;
    present(service, cluster).await;
}

/// The cluster takes what is handed out and presents it.
async fn present(service: &Service, cluster: &str) {
    let Ok(response) = service.request(Method::GET, &path(cluster)).send().await else { return };
    let answer = Answer::of(response).await;
    let auth = answer.auth(HOST);
    if answer.status == 200 && !auth.is_empty() {
        let beat = service.heartbeat(cluster, &auth, json!({})).await;
        assert_eq!(beat.status, 200, "what GET returns is valid: {}", beat.body);
    }
}

async fn at_rest(service: &Service, quay: &FakeQuay, cluster: &str) -> bool {
    present(service, cluster).await;
    let answer = service.get(&path(cluster)).await;
    answer.body["state"] == "active" && quay.live(&format!("acme+hyp-{cluster}-")).len() == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_beside_a_quay_that_loses_answers_it_forgets_no_robot() {
    let mut random = random(seed(), 0);
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let mut service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    troubled(&quay);
    for _ in 0..KILLS {
        let dies_at = Instant::now() + Duration::from_millis(random.random_range(50..700));
        while Instant::now() < dies_at {
            let cluster = CLUSTERS[random.random_range(0..CLUSTERS.len())];
            want(&service, cluster, random.random_range(0..5)).await;
        }
        service.kill();
        service.restart().await;
    }
    quay.heal();
    for cluster in CLUSTERS {
        service.post(&path(cluster), json!({})).await;
        let deadline = Instant::now() + Duration::from_secs(90);
        while !at_rest(&service, &quay, cluster).await {
            let live = quay.live("acme+hyp-");
            assert!(Instant::now() < deadline, "{cluster}: {live:?}\n{}", service.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        crate::quay_service::assert_works(&quay, &service.get(&path(cluster)).await);
    }
    assert_eq!(quay.live("acme+hyp-").len(), CLUSTERS.len(), "nothing lives that no row names");
    assert_eq!(quay.reused_names(), Vec::<String>::new());
    for cluster in CLUSTERS {
        assert!(service.delete(&path(cluster)).await.status < 300);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !quay.live("acme+hyp-").is_empty() {
        assert!(Instant::now() < deadline, "{:?}\n{}", quay.live("acme+hyp-"), service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
