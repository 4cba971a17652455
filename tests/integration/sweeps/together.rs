//! Two replicas sweep one registry at once, by themselves and when asked, while pull secrets are made and rotated:
//! each leftover is deleted by one call, and nothing that is wanted is touched.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use super::{SWEEPS, deleted, marker};
use crate::quay_service::path;
use crate::support::fake_quay::{FakeQuay, Op};
use crate::support::fleet::Fleet;
use crate::support::service::Service;

const INSTALLATION: &str = "together-1";
const LEFT_OVER: usize = 60;
const CLUSTERS: usize = 12;

fn leave_over(quay: &FakeQuay, number: usize) -> String {
    let digits: Vec<char> = "abcdefghijkmnpqr".chars().collect();
    let random = format!("aaaaaaaa{}{}", digits[number / 16], digits[number % 16]);
    let full = format!("acme+hyp-cls-0-g1-{random}");
    quay.add_robot(&full, "leftover-secret", &marker(INSTALLATION, "cls-0", 1));
    full
}

/// Asks again and again until nothing of these is left. A sweep that another replica does is no error.
async fn sweep_on(service: &Service, quay: &FakeQuay, leftovers: &[String]) -> usize {
    let (deadline, mut done) = (Instant::now() + Duration::from_secs(60), 0);
    while quay.live("acme+hyp-cls-0-").iter().any(|robot| leftovers.contains(robot)) {
        assert!(Instant::now() < deadline, "leftovers stay\n{}", service.log());
        let answer = service.post(SWEEPS, json!({ "delete": true })).await;
        match answer.status {
            200 => done += 1,
            409 => {}
            _ => panic!("{} {}", answer.status, answer.body),
        }
    }
    done
}

async fn made(service: &Service, number: usize) -> u16 {
    let path = path(&format!("cls-{number}"));
    let request = service.request(reqwest::Method::POST, &path).header("Prefer", "wait=60");
    request.json(&json!({})).send().await.unwrap().status().as_u16()
}

async fn live_a_little(service: &Service, first: usize) {
    for number in (first..CLUSTERS).step_by(2) {
        assert_eq!(made(service, number).await, 200, "{}", service.log());
        let path = path(&format!("cls-{number}"));
        let rotated = service.post(&format!("{path}/rotations"), json!({"reason": "manual"})).await;
        assert_eq!(rotated.status, 201, "{}", rotated.body);
        service.until(&path, |answer| answer.body["generation"] == 2).await;
    }
}

/// The outcome of each deletion is stored: the row of what was found goes with it.
async fn nothing_remembered(url: &str) {
    let mut db = PgConnection::connect(url).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let count = "SELECT count(*) FROM unknown_accounts";
    while sqlx::query_scalar::<_, i64>(count).fetch_one(&mut db).await.unwrap() > 0 {
        assert!(Instant::now() < deadline, "outcomes are not stored");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_delete_each_leftover_once_and_nothing_else() {
    let mut fleet = Fleet::start(0, "30s").await;
    for _ in 0..2 {
        let setup = fleet
            .setup()
            .env("HYPERFLEET_INSTALLATION_ID", INSTALLATION)
            .env("HYPERFLEET_SCHEDULER_SWEEP_INTERVAL", "1s")
            .env("HYPERFLEET_SCHEDULER_SWEEP_SAFETY_AGE", "300ms");
        fleet.join_with(setup).await;
    }
    let quay = &fleet.quay;
    // Generations that were never given out would speak of a restored database.
    assert_eq!(made(&fleet.replicas[0], 0).await, 200);
    let leftovers: Vec<String> = (0..LEFT_OVER).map(|number| leave_over(quay, number)).collect();
    let [one, two] = &fleet.replicas[..] else { panic!("two replicas") };
    let (first, second, (), ()) = tokio::join!(
        sweep_on(one, quay, &leftovers),
        sweep_on(two, quay, &leftovers),
        live_a_little(one, 0),
        live_a_little(two, 1),
    );
    println!("{first} and {second} sweeps were asked for");
    assert!(first + second > 0);

    nothing_remembered(&fleet.url).await;
    for leftover in &leftovers {
        assert_eq!(deleted(&quay.log(), leftover), 1, "{leftover}");
    }
    for number in 0..CLUSTERS {
        let cluster = format!("cls-{number}");
        let served = one.get(&path(&cluster)).await;
        assert_eq!(served.body["generation"], 2, "{}", served.body);
        let beat = two.heartbeat(&cluster, &served.auth("quay.test"), json!({})).await;
        assert_eq!((beat.status, &beat.body["credential"]), (200, &json!("current")));
    }
    // The old generations are retired by their rotations; the sweeper had no hand in it.
    fleet.robots(CLUSTERS).await;
    assert_eq!(quay.requests(Op::DeleteRobot), LEFT_OVER + CLUSTERS);
    assert_eq!(quay.reused_names(), Vec::<String>::new());
    fleet.assert_calls_are_paired().await;
}
