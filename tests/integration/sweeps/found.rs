//! What a sweep finds at Quay, and what becomes of it.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    INSTALLATION, SWEEPS, assert_paired, deleted, leave_over, marker, quick, sweep, until,
};
use crate::quay_service::path;
use crate::support::fake_quay::{self, Fault, Gate, Op, When};
use crate::support::service::{Answer, Service};

#[tokio::test]
async fn a_leftover_is_reported_remembered_and_deleted_and_nothing_else_is() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    quay.add_organization("acmex", true);
    let service = Service::start(directory.path(), quick(directory.path(), &quay)).await;
    assert_eq!(service.post(&path("cls-1"), json!({})).await.status, 200);
    let served = quay.live("acme+hyp-").remove(0);
    let leftover = leave_over(&quay, "cls-1", 1, "aaaaaaaaaa");
    let foreign = [
        ("acme+hyp-cls-1-g1-bbbbbbbbbb", String::new()),
        ("acme+hyp-cls-1-g1-cccccccccc", marker("another-installation", "cls-1", 1)),
        ("acme+hyp-jenkins", "builds things".to_owned()),
        ("acme+other-cls-1-g1-aaaaaaaaaa", marker(INSTALLATION, "cls-1", 1)),
        // Quay's filter lets other organisations through.
        ("acmex+hyp-cls-1-g1-aaaaaaaaaa", marker(INSTALLATION, "cls-1", 1)),
    ];
    for (robot, description) in &foreign {
        quay.add_robot(robot, "secret", description);
    }

    // A dry run says what there is, and changes nothing, however often it is asked.
    for _ in 0..2 {
        let dry = sweep(&service, false).await.body;
        assert_eq!(
            (&dry["listed"], &dry["ours"], &dry["foreign"]),
            (&json!(5), &json!(1), &json!(3))
        );
        assert_eq!(dry["unknown"][0]["name"], leftover.strip_prefix("acme+").unwrap());
        assert_eq!(dry["unknown"][0]["marker"], marker(INSTALLATION, "cls-1", 1));
        assert_eq!(dry["unknown"][0]["first_seen_at"], Value::Null);
        assert_eq!((&dry["missing"], &dry["deleted"]), (&json!([]), &json!([])));
        assert_eq!((&dry["dry_run"], &dry["restored"]), (&json!(true), &json!(false)));
    }
    let shown = service.get("/v1/registries").await.body;
    assert_eq!(shown["registries"][0]["last_sweep"], Value::Null, "{shown}");

    let found = sweep(&service, true).await.body;
    assert_ne!(found["unknown"][0]["first_seen_at"], Value::Null);
    assert_eq!(found["deleted"], json!([]), "nobody has known it for long enough");
    assert_eq!(deleted(&quay.log(), &leftover), 0);
    // It goes on by itself: the next comparison is due when the leftover is old enough.
    let gone = leftover.clone();
    quay.reached(move |log| deleted(log, &gone) == 1).await;
    for (robot, _) in &foreign {
        assert_eq!(deleted(&quay.log(), robot), 0, "{robot}");
    }
    assert!(quay.live("acme+hyp-").contains(&served));
    assert_eq!(quay.secrets_listed(), 0, "nobody asks for secrets to compare names");
    until("the outcome is stored", &service, || {
        service.log().contains("\"event_name\":\"call_ended\"")
    })
    .await;
    service
        .until("/v1/audit-events?action=call_answered&limit=100", |page| {
            page.body["audit_events"]
                .as_array()
                .unwrap()
                .iter()
                .any(|it| it["account"] == leftover.strip_prefix("acme+").unwrap())
        })
        .await;
    assert_eq!(assert_paired(&service, leftover.strip_prefix("acme+").unwrap()).await, 1);
    assert_eq!(sweep(&service, true).await.body["unknown"], json!([]));

    let shown = service.get("/v1/registries").await.body;
    let registry = &shown["registries"][0];
    assert_eq!((&registry["registry_id"], &registry["health"]), (&json!("quay"), &json!("ok")));
    assert_eq!(registry["limits"], json!({"max_concurrent": 8, "rate": "off"}));
    assert_eq!(registry["last_sweep"]["foreign"], 3);
    assert_eq!((&registry["last_sweep_error"], &registry["blocked"]), (&Value::Null, &Value::Null));
    let page = service.metrics_page().await;
    for (series, value) in [
        ("sweeps_total", "outcome=\"dry_run\""),
        ("sweeps_total", "outcome=\"completed\""),
        ("sweep_deletions_total", "outcome=\"deleted\""),
    ] {
        let named = |line: &&str| line.contains(series) && line.contains(value);
        assert!(page.lines().any(|line| named(&line)), "{series} {value}:\n{page}");
    }
}

#[tokio::test]
async fn who_asks_and_what_for_is_checked_and_kept() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), quick(directory.path(), &quay)).await;
    let unknown = service.post("/v1/registries/harbor/sweeps", json!({})).await;
    assert_eq!(unknown.problem(), (400, "HYPERFLEET-VAL-005"));
    assert_eq!(unknown.body["errors"][0]["allowed_values"], json!(["quay"]));
    let bad = service.post(SWEEPS, json!({"remove": true})).await;
    assert_eq!(bad.problem(), (400, "HYPERFLEET-VAL-002"));
    let request = service.request(Method::POST, SWEEPS).header("X-Reason", "spring cleaning");
    assert_eq!(Answer::of(request.send().await.unwrap()).await.body["dry_run"], true);
    let told = service.get("/v1/audit-events?action=swept").await.body;
    let event = &told["audit_events"][0];
    assert_eq!(event["reason"], "spring cleaning");
    assert_eq!(
        (&event["detail"]["dry_run"], &event["registry_id"]),
        (&json!(true), &json!("quay"))
    );
    let nothing = service.post("/v1/restored/acknowledge", json!({})).await;
    assert_eq!(nothing.problem(), (409, "HYPERFLEET-CNF-003"));

    // One at a time.
    let gate = Gate::default();
    quay.next(Op::ListRobots, Fault::Before(When::Opened(gate.clone())));
    let first = service.request(Method::POST, SWEEPS).send();
    let second = async {
        service.until("/v1/registries", |it| it.body["registries"][0]["sweeping"] == true).await;
        let refused = service.post(SWEEPS, json!({})).await;
        gate.open();
        refused
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(second.problem(), (409, "HYPERFLEET-CNF-003"));

    // A registry that does not answer is said to be the cause.
    quay.next(Op::ListRobots, Fault::LoseBefore);
    let down = service.post(SWEEPS, json!({"delete": true})).await;
    assert_eq!(down.problem(), (503, "HYPERFLEET-SVC-001"));
    let shown = service.get("/v1/registries").await.body;
    assert_ne!(shown["registries"][0]["last_sweep_error"], Value::Null);
    assert_eq!(service.post(SWEEPS, json!({"delete": true})).await.status, 200);
    let shown = service.get("/v1/registries").await.body;
    assert_eq!(shown["registries"][0]["last_sweep_error"], Value::Null);
}

#[tokio::test]
async fn a_listing_that_is_older_than_an_account_says_nothing_of_it() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), quick(directory.path(), &quay)).await;
    // Quay has looked, its answer is on its way: a cluster is made meanwhile.
    let gate = Gate::default();
    quay.next(Op::ListRobots, Fault::After(When::Opened(gate.clone())));
    let swept = service.request(Method::POST, SWEEPS).json(&json!({"delete": true})).send();
    let made = async {
        while quay.requests(Op::ListRobots) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // The listing must be answered within the registry's timeout of a second.
        let made = service.request(Method::POST, &path("cls-1")).header("Prefer", "respond-async");
        let made = Answer::of(made.send().await.unwrap()).await;
        quay.reached(|log| log.iter().any(|entry| entry.what.is_change())).await;
        gate.open();
        made
    };
    let (swept, made) = tokio::join!(swept, made);
    assert!(made.status < 300);
    let swept = Answer::of(swept.unwrap()).await;
    if swept.status == 200 {
        let counts = (&swept.body["listed"], &swept.body["unknown"], &swept.body["missing"]);
        assert_eq!(counts, (&json!(0), &json!([]), &json!([])), "{}", swept.body);
    }
    service.until(&path("cls-1"), |it| it.body["state"] == "active").await;
    assert_eq!(service.get("/v1/attention").await.body["items"], json!([]));

    // Quay has made it, its answer is on its way: the row was there before it.
    let gate = Gate::default();
    quay.next(Op::CreateRobot, Fault::After(When::Opened(gate.clone())));
    let before = quay.changes().len();
    let waiting = service.request(Method::POST, &path("cls-2")).header("Prefer", "respond-async");
    assert_eq!(waiting.send().await.unwrap().status(), 202);
    quay.reached(move |log| log.iter().filter(|it| it.what.is_change()).count() > before).await;
    for _ in 0..3 {
        let found = sweep(&service, true).await.body;
        assert_eq!((&found["listed"], &found["unknown"]), (&json!(2), &json!([])), "{found}");
    }
    gate.open();
    service.until(&path("cls-2"), |it| it.body["state"] == "active").await;
    assert_eq!(quay.reused_names(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_handed_out_and_not_there_is_drifted() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), quick(directory.path(), &quay)).await;
    for cluster in ["cls-1", "cls-2"] {
        assert_eq!(service.post(&path(cluster), json!({})).await.status, 200);
    }
    let lost = quay.live("acme+hyp-cls-1-").remove(0);
    assert!(quay.delete_behind_the_back(&lost));
    // A young account may not be listed yet: it is missed once the settle time has passed.
    let missing = loop {
        let found = sweep(&service, true).await.body;
        if found["missing"] != json!([]) {
            break found["missing"].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(missing[0]["cluster_id"], "cls-1");
    assert_eq!(missing.as_array().unwrap().len(), 1);
    let drifted =
        service.until("/v1/attention?kind=drifted", |page| page.body["items"] != json!([])).await;
    assert_eq!(drifted.body["items"][0]["cluster_id"], "cls-1");
    assert_eq!(drifted.body["pagination"]["total_count"], 1);
}

#[tokio::test]
async fn what_comes_and_goes_begins_anew() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let setup = quick(directory.path(), &quay).env("HYPERFLEET_SCHEDULER_SWEEP_SAFETY_AGE", "1h");
    let service = Service::start(directory.path(), setup).await;
    assert_eq!(service.post(&path("cls-1"), json!({})).await.status, 200);
    let leftover = leave_over(&quay, "cls-1", 1, "aaaaaaaaaa");
    let first = sweep(&service, true).await.body["unknown"][0]["first_seen_at"].clone();
    let again = sweep(&service, true).await.body["unknown"][0].clone();
    assert_eq!(again["first_seen_at"], first, "it is remembered");
    assert!(quay.delete_behind_the_back(&leftover));
    assert_eq!(sweep(&service, true).await.body["unknown"], json!([]));
    leave_over(&quay, "cls-1", 1, "aaaaaaaaab");
    let dry = sweep(&service, false).await.body;
    assert_eq!(dry["unknown"][0]["first_seen_at"], Value::Null);
    let anew = sweep(&service, true).await.body["unknown"][0]["first_seen_at"].clone();
    assert!(anew.as_str() > first.as_str(), "{first} {anew}");
    // A restart repeats nothing: the next time stands in the database.
    let due = service.get("/v1/registries").await.body["registries"][0]["next_sweep_at"].clone();
    let mut service = service;
    service.kill();
    service.restart().await;
    let after = service.get("/v1/registries").await.body["registries"][0].clone();
    assert_eq!(after["next_sweep_at"], due);
    assert_eq!(after["last_sweep"]["unknown"], 1);
}
