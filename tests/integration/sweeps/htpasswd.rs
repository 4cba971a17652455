//! A registry without room for markers: the record of names is all that says what is ours.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;

use super::{assert_paired, until};
use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const SWEEPS: &str = "/v1/registries/local/sweeps";

fn names(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

fn add(file: &Path, name: &str) {
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    writeln!(file, "{name}:$2y$05$C6UzMDM.H6dfI/f/IKcEeO7PBUm6cYYf9NYw0v0LXHXxw4bJ3xXYW").unwrap();
}

#[tokio::test]
async fn a_zombie_is_deleted_and_a_stranger_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::quick()
        .env("HYPERFLEET_SCHEDULER_SWEEP_INTERVAL", "6h")
        .env("HYPERFLEET_SCHEDULER_SWEEP_SAFETY_AGE", "300ms");
    let service = Service::start(directory.path(), setup).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    let file = directory.path().join("data/registry.htpasswd");
    let zombie = names(&file).remove(0);
    assert_eq!(service.delete(PATH).await.status, 204);
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    let served = names(&file).remove(0);
    // Somebody restores an old copy of the file, with an entry of their own in it.
    let strangers = ["hyp-cls-1-g1-aaaaaaaaaa", "hyp-jenkins", "admin"];
    add(&file, &zombie);
    strangers.iter().for_each(|name| add(&file, name));

    let found = service.post(SWEEPS, json!({"delete": true})).await;
    assert_eq!(found.status, 200, "{}", found.body);
    assert_eq!(found.body["unknown"][0]["name"], zombie, "its row says that it is gone");
    assert_eq!((&found.body["foreign"], &found.body["ours"]), (&json!(2), &json!(1)));
    until("the zombie is gone", &service, || !names(&file).contains(&zombie)).await;
    for name in strangers.iter().chain([&served.as_str()]) {
        assert!(names(&file).contains(&(*name).to_owned()), "{name} stays");
    }
    service
        .until("/v1/registries", |it| it.body["registries"][0]["last_sweep"]["unknown"] == 1)
        .await;
    let swept = service
        .until("/v1/audit-events?action=call_answered&limit=100", |page| {
            let events = page.body["audit_events"].as_array().unwrap();
            events.iter().filter(|it| it["account"] == zombie.as_str()).count() >= 4
        })
        .await;
    assert_eq!(swept.status, 200);
    // Created, verified, revoked by its cluster; revoked once more by the sweeper.
    assert_eq!(assert_paired(&service, &zombie).await, 4);
}
