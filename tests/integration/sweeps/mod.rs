//! The sweeper from the outside: what it finds, what it deletes, what it must never touch. Judged by the
//! registry's own log of the truth.

mod clone;
mod found;
mod htpasswd;
mod kill;
mod restored;
mod together;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::quay_service::setup;
use crate::support::fake_quay::{Entry, FakeQuay, What};
use crate::support::service::{Answer, Service, Setup};

pub const INSTALLATION: &str = "sweeps-1";
pub const SWEEPS: &str = "/v1/registries/quay/sweeps";

/// A service beside Quay that deletes what it has known for a moment, and sweeps only when asked.
pub fn quick(directory: &Path, quay: &FakeQuay) -> Setup {
    setup(directory, quay)
        .env("HYPERFLEET_INSTALLATION_ID", INSTALLATION)
        .env("HYPERFLEET_SCHEDULER_SWEEP_INTERVAL", "6h")
        .env("HYPERFLEET_SCHEDULER_SWEEP_SAFETY_AGE", "300ms")
}

pub fn marker(installation: &str, cluster: &str, generation: u32) -> String {
    format!(
        "hyperfleet-credentials/1 installation={installation} cluster={cluster} generation={generation}"
    )
}

/// A robot that this installation made and no row names, as a lost process leaves it.
pub fn leave_over(quay: &FakeQuay, cluster: &str, generation: u32, random: &str) -> String {
    let full = format!("acme+hyp-{cluster}-g{generation}-{random}");
    quay.add_robot(&full, "leftover-secret", &marker(INSTALLATION, cluster, generation));
    full
}

pub async fn sweep(service: &Service, delete: bool) -> Answer {
    loop {
        let answer = service.post(SWEEPS, json!({ "delete": delete })).await;
        // The service has begun one by itself.
        if answer.status != 409 {
            assert_eq!(answer.status, 200, "{}", answer.body);
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn deleted(log: &[Entry], robot: &str) -> usize {
    let is = |entry: &&Entry| matches!(&entry.what, What::Deleted { robot: name } if name == robot);
    log.iter().filter(is).count()
}

/// Waits until this is so.
pub async fn until(what: &str, service: &Service, wanted: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !wanted() {
        assert!(Instant::now() < deadline, "not so: {what}\n{}", service.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every call of the sweeper's was announced once and answered once.
pub async fn assert_paired(service: &Service, account: &str) -> usize {
    let of = async |action: &str| {
        let page = service.get(&format!("/v1/audit-events?action={action}&limit=100")).await;
        let events = page.body["audit_events"].as_array().unwrap().clone();
        let ours = events.into_iter().filter(|event| event["account"] == account);
        let mut tokens: Vec<Value> = ours.map(|event| event["detail"]["token"].clone()).collect();
        tokens.sort_by_key(Value::to_string);
        tokens
    };
    let (announced, answered) = (of("call_announced").await, of("call_answered").await);
    assert_eq!(announced, answered, "each call has one intent and one outcome");
    announced.len()
}
