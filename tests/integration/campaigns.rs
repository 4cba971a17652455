//! Campaigns and processes that die: the real program is killed again and again, and one of several replicas is.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::RngExt as _;
use serde_json::json;

use crate::cli::{run, told};
use crate::support::fleet::Fleet;
use crate::support::seed::{random, seed};
use crate::support::service::{Answer, Service, Setup};

const CAMPAIGNS: &str = "/v1/rotation-campaigns";

async fn campaign(service: &Service, registry: &str, per_minute: u32) -> String {
    let body = json!({"selector": {"registry": registry}, "canary": 2, "max_in_flight": 3,
        "max_per_minute": per_minute});
    let made = service.post(CAMPAIGNS, body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    made.header("location").to_owned()
}

/// How many clusters of the campaign have begun.
fn begun(answer: &Answer) -> u64 {
    answer.body["progress"]["total"].as_u64().unwrap()
        - answer.body["progress"]["pending"].as_u64().unwrap()
}

/// Each cluster was rotated once, and the campaign knows it.
async fn assert_rotated_once(service: &Service, path: &str, clusters: usize) {
    let list = service.get(&format!("{path}/clusters?limit=100")).await;
    let list = list.body["clusters"].as_array().unwrap().clone();
    assert_eq!(list.len(), clusters);
    let mut rotations = BTreeSet::new();
    for member in &list {
        assert_eq!(member["status"], "succeeded", "{member}");
        let cluster = member["cluster_id"].as_str().unwrap();
        let path = format!("/v1/clusters/{cluster}/pull-secrets");
        assert_eq!(service.get(&path).await.body["generation"], 2, "{cluster}");
        let of = service.get(&format!("{path}/rotations")).await;
        assert_eq!(of.body["pagination"]["total_count"], 1, "{cluster}");
        assert_eq!(of.body["rotations"][0]["rotation_id"], member["rotation_id"]);
        assert!(rotations.insert(member["rotation_id"].to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_survives_its_process() {
    const CLUSTERS: usize = 16;
    let mut random = random(seed(), 0);
    let directory = tempfile::tempdir().unwrap();
    // Whoever follows waits for the lease of the dead.
    let setup = Setup::quick()
        .env("HYPERFLEET_SCHEDULER_LEASE", "1500ms")
        .env("HYPERFLEET_REGISTRIES_LOCAL_TIMEOUT", "500ms")
        .env("HYPERFLEET_REGISTRIES_LOCAL_SETTLE_TIME", "1s");
    let mut service = Service::start(directory.path(), setup).await;
    for number in 0..CLUSTERS {
        let path = format!("/v1/clusters/cls-{number}/pull-secrets");
        assert_eq!(service.post(&path, json!({})).await.status, 200);
    }
    let path = campaign(&service, "local", 1000).await;
    for kill in 0..5 {
        // In the middle of a wave, at a moment of its own.
        service.until(&path, |answer| begun(answer) > kill * 3).await;
        let moment = Duration::from_micros(random.random_range(0..20_000));
        tokio::time::sleep(moment).await;
        service.kill();
        service.restart().await;
    }
    let done = service.until(&path, |answer| answer.body["state"] == "completed").await;
    let all = json!({"total": 16, "pending": 0, "running": 0, "succeeded": 16, "failed": 0, "skipped": 0});
    assert_eq!(done.body["progress"], all);
    assert_rotated_once(&service, &path, CLUSTERS).await;
    service.stop();
    let (code, out, err) = told(&run(directory.path(), &["audit", "verify", "--dev"], &[]));
    assert_eq!(code, 0, "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_drive_it_in_turns_and_a_dead_one_is_followed() {
    const CLUSTERS: usize = 9;
    let mut fleet = Fleet::start(3, "3s").await;
    for number in 0..CLUSTERS {
        let path = format!("/v1/clusters/cls-{number}/pull-secrets");
        let answer = fleet.replicas[number % 3].post(&path, json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let path = campaign(&fleet.replicas[0], "quay", 1000).await;
    fleet.replicas[1].until(&path, |answer| begun(answer) > 2).await;
    fleet.replicas[0].kill();
    let done = fleet.replicas[2].until(&path, |answer| answer.body["state"] == "completed").await;
    assert_eq!(done.body["progress"]["succeeded"], 9, "{}", done.body);
    assert_rotated_once(&fleet.replicas[1], &path, CLUSTERS).await;
    assert_eq!(fleet.quay.reused_names(), Vec::<String>::new());
    // Somebody else may pause it than whoever has it.
    let again = campaign(&fleet.replicas[1], "quay", 1).await;
    for (replica, word, state) in [(2, "pause", "paused"), (1, "abort", "aborted")] {
        let answer = fleet.replicas[replica].post(&format!("{again}/{word}"), json!({})).await;
        assert_eq!((answer.status, &answer.body["state"]), (200, &json!(state)), "{}", answer.body);
    }
}
