//! The process dies at each step of a sweeper's deletion: the next one ends it, and tells of every call once.

use serde_json::json;

use super::{assert_paired, deleted, leave_over, quick, sweep, until};
use crate::quay_service::path;
use crate::support::fake_quay;
use crate::support::service::Service;

const POINTS: [&str; 6] = [
    "before_commit",
    "after_commit",
    "before_call",
    "after_call",
    "before_outcome_commit",
    "after_outcome_commit",
];

#[tokio::test]
async fn a_deletion_survives_the_process() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let mut service = Service::start(directory.path(), quick(directory.path(), &quay)).await;
    assert_eq!(service.post(&path("cls-1"), json!({})).await.status, 200);
    let served = quay.live("acme+hyp-").remove(0);
    for (number, point) in POINTS.into_iter().enumerate() {
        let random = format!("aaaaaaaaa{}", number + 2);
        let leftover = leave_over(&quay, "cls-1", 1, &random);
        service.kill();
        assert!(service.restart_armed(&format!("{point}:revoke=kill")).await, "{}", service.log());
        sweep(&service, true).await;
        service.ended().await;
        service.start_armed("");
        service.restart_ready().await;
        until(point, &service, || !quay.live("acme+hyp-").contains(&leftover)).await;
        let account = leftover.strip_prefix("acme+").unwrap();
        // The row goes with the outcome.
        service
            .until("/v1/audit-events?action=call_answered&limit=100", |page| {
                let events = page.body["audit_events"].as_array().unwrap();
                events
                    .iter()
                    .any(|it| it["account"] == account && it["detail"]["outcome"] == "account_gone")
            })
            .await;
        let calls = assert_paired(&service, account).await;
        let expected =
            if matches!(point, "before_commit" | "after_outcome_commit") { 1 } else { 2 };
        assert_eq!(calls, expected, "{point}");
        assert_eq!(deleted(&quay.log(), &leftover), 1, "{point}");
    }
    assert_eq!(quay.live("acme+hyp-"), [served]);
    assert_eq!(quay.reused_names(), Vec::<String>::new());
}
