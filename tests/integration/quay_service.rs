//! The real program with a Quay that fails in every way that was measured: the record says so, nothing is
//! lost, and the work goes on by itself when Quay heals.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::fake_quay::{self, FakeQuay, Fault, Reply, When};
use crate::support::service::{Answer, Service, Setup};

pub const HOST: &str = "quay.test";

pub fn path(cluster: &str) -> String {
    format!("/v1/clusters/{cluster}/pull-secrets")
}

pub fn setup(directory: &Path, quay: &FakeQuay) -> Setup {
    let token_file = directory.join("quay.token");
    std::fs::write(&token_file, &quay.token).unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    quay.add_team("pullers");
    quay.add_repository("app", &["pullers"]);
    // JSON is YAML, too.
    let config = json!({
        "registries": [{
            "id": "quay", "type": "quay", "host": HOST, "aliases": ["cloud.test"], "url": quay.url,
            "organization": quay.organization, "team": "pullers", "repositories": ["app"],
            "token_file": token_file, "timeout": "1s", "settle_time": "3s", "rate": "off",
        }],
    });
    let file = directory.join("config.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    Setup::quick().env("HYPERFLEET_CONFIG", &file.to_string_lossy())
}

async fn issue(service: &Service, cluster: &str) -> Answer {
    let request = service.request(Method::POST, &path(cluster)).header("Prefer", "wait=1");
    Answer::of(request.send().await.unwrap()).await
}

pub fn assert_works(quay: &FakeQuay, answer: &Answer) {
    use base64::Engine as _;
    let auth = answer.auth(HOST);
    assert_eq!(answer.auth("cloud.test"), auth, "an alias repeats the entry");
    let pair = base64::engine::general_purpose::STANDARD.decode(auth).unwrap();
    let pair = String::from_utf8(pair).unwrap();
    let (username, secret) = pair.split_once(':').unwrap();
    assert!(quay.secret_works(username, secret), "{}", answer.body);
    assert!(quay.may_read(username, "app") && quay.is_member(username, "pullers"));
}

#[tokio::test]
async fn a_robot_is_made_rotated_and_deleted() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    let made = issue(&service, "cls-1").await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_works(&quay, &made);
    let started = service.post(&format!("{}/rotations", path("cls-1")), json!({})).await;
    let rotation = started.header("location").to_owned();
    service.until(&rotation, |r| r.body["progress"]["phase"] == "dual_credential_period").await;
    let new = service.get(&path("cls-1")).await;
    assert_works(&quay, &new);
    assert_eq!(quay.live("acme+hyp-").len(), 2);
    service.heartbeat("cls-1", &new.auth(HOST), json!({})).await;
    service.until(&rotation, |r| r.body["status"] == "completed").await;
    assert_eq!(quay.live("acme+hyp-").len(), 1);
    assert_eq!(service.delete(&path("cls-1")).await.status, 204);
    assert_eq!(quay.live("acme+hyp-"), Vec::<String>::new());
    assert_eq!(quay.reused_names(), Vec::<String>::new());
}

#[tokio::test]
async fn whatever_quay_answers_the_record_says_so_and_the_work_goes_on() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    let faults = [
        ("unauthorized", Fault::Instead(Reply::json(401, &json!({"error_type": "invalid_token"})))),
        (
            "csrf",
            Fault::Instead(Reply::html(403, "{\"error\": \"CSRF token was invalid or missing.\"}")),
        ),
        ("limited", Fault::Instead(Reply::rate_limited())),
        ("broken", Fault::Instead(Reply::html(500, "<html>oops</html>"))),
        ("garbage", Fault::InsteadAfter(Reply::html(200, "not json at all"))),
        ("cut", Fault::Truncated),
        ("lost-before", Fault::LoseBefore),
        ("lost-after", Fault::LoseAfter),
        ("slow", Fault::After(When::After(Duration::from_millis(1500)))),
        ("late", Fault::AppliedLate(When::After(Duration::from_millis(1500)))),
    ];
    for (name, fault) in faults {
        let cluster = format!("cls-{name}");
        quay.break_down(fault);
        let waiting = issue(&service, &cluster).await;
        assert_eq!(waiting.status, 202, "{name}: {}", waiting.body);
        assert!(!waiting.header("retry-after").is_empty());
        let told = service
            .until(&path(&cluster), |answer| answer.body["status_details"]["message"] != "")
            .await;
        assert_eq!(told.body["state"], "issuing", "{name}");
        assert!(told.body.get("pull_secret").is_none(), "{name}: nothing unverified is shown");
        quay.heal();
        let made = service.until(&path(&cluster), |answer| answer.body["state"] == "active").await;
        assert_works(&quay, &made);
        // A name that the fault spoilt is spoken of until it is gone for certain.
        service
            .until(&path(&cluster), |answer| answer.body["status_details"]["message"] == "")
            .await;
    }
    let accounts: BTreeSet<String> = quay.live("acme+hyp-").into_iter().collect();
    // Names spoilt by a lost create are deleted once they are settled; ten clusters keep one each.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while quay.live("acme+hyp-").len() != 10 {
        assert!(std::time::Instant::now() < deadline, "{accounts:?}\n{}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(quay.reused_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_token_of_ours_is_read_when_the_file_changes() {
    let (directory, mut quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    quay.replace_token();
    assert_eq!(issue(&service, "cls-1").await.status, 202);
    service.until("/readyz", |ready| ready.body["registries"]["quay"] == "degraded").await;
    std::fs::write(directory.path().join("quay.token"), &quay.token).unwrap();
    service.until(&path("cls-1"), |answer| answer.body["state"] == "active").await;
}
