//! An old copy of the database is put back: nothing is deleted until somebody has seen it, and no generation
//! is ever given out twice.

use std::path::Path;

use serde_json::{Value, json};

use super::{quick, until};
use crate::quay_service::{HOST, path};
use crate::support::fake_quay::{self, What};
use crate::support::service::{Service, Setup};

const ACKNOWLEDGE: &str = "/v1/restored/acknowledge";

/// The database's files; the service is stopped.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(to).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("credentials.db-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    std::fs::copy(from.join("credentials.db"), to.join("credentials.db")).unwrap();
}

async fn rotated(service: &Service, cluster: &str, host: &str) {
    let started = service.post(&format!("{}/rotations", path(cluster)), json!({})).await;
    let rotation = started.header("location").to_owned();
    service.until(&rotation, |r| r.body["progress"]["phase"] == "dual_credential_period").await;
    let auth = service.get(&path(cluster)).await.auth(host);
    service.heartbeat(cluster, &auth, json!({})).await;
    service.until(&rotation, |r| r.body["status"] == "completed").await;
}

async fn is_restored(service: &Service) {
    let ready = service.get("/readyz").await;
    assert_eq!((ready.status, &ready.body["checks"]["restored"]), (200, &json!("degraded")));
    let items = service.get("/v1/attention?kind=restored").await.body["items"].clone();
    assert_eq!((items.as_array().unwrap().len(), &items[0]["cluster_id"]), (1, &Value::Null));
    let shown = service.get("/v1/registries").await.body["restored"].clone();
    assert_eq!(shown["acknowledged_at"], Value::Null, "{shown}");
    assert_ne!(shown["restored_at"], Value::Null);
    let page = service.metrics_page().await;
    let metric = page.lines().find(|line| line.starts_with("hyperfleet_credentials_restored{"));
    assert!(metric.unwrap().ends_with(" 1"), "{page}");
}

#[tokio::test]
async fn an_old_copy_with_quay() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let (data, kept) = (directory.path().join("data"), tempfile::tempdir().unwrap());
    // A dead account is looked at twice, and the second look does not wait longer than this.
    let setup = quick(directory.path(), &quay).env("HYPERFLEET_ROTATION_DRIFT_INTERVAL", "500ms");
    let mut service = Service::start(directory.path(), setup).await;
    for cluster in ["cls-1", "cls-2"] {
        assert_eq!(service.post(&path(cluster), json!({})).await.status, 200);
    }
    service.stop();
    copy(&data, kept.path());
    // What the copy does not know: a rotation, and a new cluster.
    service.restart().await;
    rotated(&service, "cls-1", HOST).await;
    assert_eq!(service.post(&path("cls-3"), json!({})).await.status, 200);
    service.stop();
    let live = quay.live("acme+hyp-");
    copy(kept.path(), &data);
    service.restart().await;
    let before = quay.changes().len();

    let found = super::sweep(&service, true).await.body;
    assert_eq!((&found["restored"], &found["deleted"]), (&json!(true), &json!([])), "{found}");
    assert_eq!(found["unknown"].as_array().unwrap().len(), 2);
    is_restored(&service).await;
    // Each account is looked at again: the one that is handed out to cls-1 is dead, that of cls-2 lives.
    service
        .until("/v1/attention?kind=drifted", |page| page.body["items"][0]["cluster_id"] == "cls-1")
        .await;
    // A deletion waits, too, whoever asks for it.
    assert_eq!(service.delete(&path("cls-2")).await.status, 202);
    for _ in 0..3 {
        assert_eq!(super::sweep(&service, true).await.body["deleted"], json!([]));
    }
    assert_eq!(quay.live("acme+hyp-"), live, "nothing is deleted");
    assert_eq!(quay.changes().len(), before);
    // It stands in the database.
    service.kill();
    service.restart().await;
    is_restored(&service).await;
    assert_eq!(quay.live("acme+hyp-"), live);

    // cls-1 is made whole before anything may be deleted: with a number that nobody has seen.
    let started = service.post(&format!("{}/rotations", path("cls-1")), json!({})).await;
    assert_eq!((started.status, &started.body["to_generation"]), (201, &json!(3)));
    let served = service.until(&path("cls-1"), |it| it.body["generation"] == 3).await;
    crate::quay_service::assert_works(&quay, &served);

    let done = service.post(ACKNOWLEDGE, json!({})).await;
    assert_eq!(done.status, 200, "{}", done.body);
    assert_ne!(done.body["acknowledged_at"], Value::Null);
    assert_eq!(service.post(ACKNOWLEDGE, json!({})).await.problem(), (409, "HYPERFLEET-CNF-003"));
    assert_eq!(service.get("/v1/attention?kind=restored").await.body["items"], json!([]));
    assert_eq!(service.get("/readyz").await.body["checks"].get("restored"), None);
    until("the deletion goes on", &service, || quay.live("acme+hyp-cls-2-").is_empty()).await;
    let made = service.post(&path("cls-3"), json!({})).await;
    assert_eq!((made.status, &made.body["generation"]), (200, &json!(2)), "{}", made.body);
    // What the copy did not know is deleted once it was known for the safety age after that.
    super::sweep(&service, true).await;
    until("the forgotten go", &service, || {
        quay.live("acme+hyp-cls-1-g2-").is_empty() && quay.live("acme+hyp-cls-3-g1-").is_empty()
    })
    .await;
    for auth in ["cls-1", "cls-3"] {
        crate::quay_service::assert_works(&quay, &service.get(&path(auth)).await);
    }
    assert_eq!(quay.reused_names(), Vec::<String>::new());
    let of = |generation: &str| {
        let made = |robot: &String| robot.contains(generation);
        let log = quay.log();
        let created = log.iter().filter_map(|entry| match &entry.what {
            What::Created { robot } => Some(robot.clone()),
            _ => None,
        });
        created.filter(made).count()
    };
    assert_eq!((of("cls-1-g2-"), of("cls-3-g1-"), of("cls-1-g3-")), (1, 1, 1));
}

#[tokio::test]
async fn an_old_copy_with_a_registry_without_markers() {
    let directory = tempfile::tempdir().unwrap();
    let (data, kept) = (directory.path().join("data"), tempfile::tempdir().unwrap());
    let mut service = Service::start(directory.path(), Setup::quick()).await;
    assert_eq!(service.post(&path("cls-1"), json!({})).await.status, 200);
    service.stop();
    copy(&data, kept.path());
    service.restart().await;
    rotated(&service, "cls-1", "localhost:5000").await;
    service.stop();
    copy(kept.path(), &data);
    service.restart().await;
    let sweeps = "/v1/registries/local/sweeps";
    let dry = service.post(sweeps, json!({})).await.body;
    assert_eq!((&dry["restored"], &dry["dry_run"]), (&json!(true), &json!(true)), "{dry}");
    assert_eq!(service.get("/v1/registries").await.body["restored"], Value::Null);
    let found = service.post(sweeps, json!({"delete": true})).await.body;
    assert_eq!((&found["restored"], &found["foreign"]), (&json!(true), &json!(1)), "{found}");
    is_restored(&service).await;
    let started = service.post(&format!("{}/rotations", path("cls-1")), json!({})).await;
    assert_eq!(started.body["to_generation"], 3, "{}", started.body);
    service.until(&path("cls-1"), |it| it.body["generation"] == 3).await;
    assert_eq!(service.post(ACKNOWLEDGE, json!({})).await.status, 200);
}
