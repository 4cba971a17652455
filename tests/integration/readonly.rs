//! A database that refuses every write while the program runs: nothing is promised, no call is begun, reads
//! go on, and all goes on by itself afterwards.
//!
//! PostgreSQL is told to be read-only, as a primary that became a standby. A SQLite file that a process has
//! open for writing cannot be made read-only under it (the kernel refuses that, and permissions are looked at
//! only when a file is opened), so there somebody holds the file's lock for writing; `disk.rs` has the file
//! that must not grow.

use std::path::Path;

use reqwest::Method;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Executor as _};

use crate::quay_service::{HOST, assert_works, path, setup};
use crate::support::fake_quay::{self, FakeQuay, Op, What};
use crate::support::postgres;
use crate::support::service::{Answer, Service};

enum Database {
    Sqlite(SqliteConnection),
    Postgres(String),
}

impl Database {
    async fn sqlite(directory: &Path) -> Self {
        let file = SqliteConnectOptions::new().filename(directory.join("data/credentials.db"));
        Self::Sqlite(SqliteConnection::connect_with(&file).await.unwrap())
    }

    async fn refuse_writes(&mut self) {
        match self {
            Self::Sqlite(shell) => {
                shell.execute("BEGIN IMMEDIATE").await.unwrap();
            }
            Self::Postgres(url) => set_read_only(url, true).await,
        }
    }

    async fn take_writes(&mut self) {
        match self {
            Self::Sqlite(shell) => {
                shell.execute("ROLLBACK").await.unwrap();
            }
            Self::Postgres(url) => set_read_only(url, false).await,
        }
    }
}

/// As a fail-over does it: the database changes sides, and every connection is cut.
async fn set_read_only(url: &str, read_only: bool) {
    let (server, name) = url.rsplit_once('/').unwrap();
    let word = if read_only { "on" } else { "off" };
    let server = format!("{server}/postgres");
    let alter = format!("ALTER DATABASE {name} SET default_transaction_read_only = {word}");
    postgres::execute(&server, &alter).await;
    // In a transaction of its own: whoever comes back at once has to find the other side.
    let cut =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    postgres::execute(&server, &cut).await;
}

/// What came in at the registry so far about accounts, by its own log. A reading of who used them may have
/// begun before.
fn requests(quay: &FakeQuay) -> usize {
    let about_accounts = |what: &What| match what {
        What::Request { op, .. } => !matches!(op, Op::OrgLog | Op::ListRobots),
        _ => false,
    };
    quay.log().iter().filter(|entry| about_accounts(&entry.what)).count()
}

async fn nothing_is_begun_and_nothing_is_lost(
    service: &Service,
    quay: &FakeQuay,
    database: &mut Database,
) {
    let one = path("cls-1");
    let made = service.post(&one, json!({})).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let before = requests(quay);

    database.refuse_writes().await;
    for (method, path) in [
        (Method::POST, path("cls-2")),
        (Method::POST, format!("{one}/rotations")),
        (Method::DELETE, one.clone()),
    ] {
        let answer = Answer::of(service.request(method, &path).send().await.unwrap()).await;
        assert_eq!(answer.problem(), (503, "HYPERFLEET-SVC-001"), "{path}: {}", answer.body);
        assert!(!answer.header("retry-after").is_empty(), "{path}");
    }
    let ready = service.until("/readyz", |ready| ready.status == 503).await;
    assert_eq!(ready.body["checks"]["database"], "error", "{}", ready.body);
    let held = service.get(&one).await;
    assert_eq!((held.status, &held.body["pull_secret"]), (200, &made.body["pull_secret"]));
    assert_eq!(service.get(&path("cls-2")).await.status, 404);
    assert_eq!(service.get("/healthz").await.status, 200, "nobody has to start it again");
    assert_eq!(requests(quay), before, "no call was begun");

    database.take_writes().await;
    service.until("/readyz", |ready| ready.status == 200).await;
    let other = service.post(&path("cls-2"), json!({})).await;
    assert_eq!(other.status, 200, "{}", other.body);
    assert_works(quay, &other);
    let started = service.post(&format!("{one}/rotations"), json!({})).await;
    assert_eq!(started.status, 201, "{}", started.body);
    let rotation = started.header("location").to_owned();
    service.until(&rotation, |r| r.body["progress"]["phase"] == "dual_credential_period").await;
    let new = service.get(&one).await;
    assert_works(quay, &new);
    assert_eq!(service.heartbeat("cls-1", &new.auth(HOST), json!({})).await.status, 200);
    service.until(&rotation, |r| r.body["status"] == "completed").await;
    assert_eq!(quay.live("acme+hyp-").len(), 2);
    // What was handed out while nothing could be written stands in the audit all the same.
    let reads = "/v1/audit-events?cluster_id=cls-1&action=pull_secret_read";
    let told = |told: &Answer| told.body["audit_events"].as_array().unwrap().len() >= 3;
    service.until(reads, told).await;
}

#[tokio::test]
async fn a_sqlite_file_that_somebody_holds() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    let mut database = Database::sqlite(directory.path()).await;
    nothing_is_begun_and_nothing_is_lost(&service, &quay, &mut database).await;
}

#[tokio::test]
async fn a_postgres_that_became_read_only() {
    let url = postgres::shared().database(None).await;
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let setup = setup(directory.path(), &quay).env("HYPERFLEET_DB_URL", &url);
    let service = Service::start(directory.path(), setup).await;
    let mut database = Database::Postgres(url);
    nothing_is_begun_and_nothing_is_lost(&service, &quay, &mut database).await;
}

/// A file that is deleted or replaced under the program takes what is written with it.
#[tokio::test]
async fn a_database_or_lock_file_that_left_its_place() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    let one = path("cls-1");
    assert_eq!(service.post(&one, json!({})).await.status, 200);
    for name in ["credentials.db", "credentials.db.lock"] {
        let place = directory.path().join("data").join(name);
        let aside = place.with_extension("aside");
        for replaced in [false, true] {
            std::fs::rename(&place, &aside).unwrap();
            if replaced {
                std::fs::copy(&aside, &place).unwrap();
            }
            let before = requests(&quay);
            let refused = service.post(&path("cls-2"), json!({})).await;
            assert_eq!(refused.problem(), (503, "HYPERFLEET-SVC-001"), "{name} {replaced}");
            let ready = service.get("/readyz").await;
            assert_eq!((ready.status, &ready.body["checks"]["database"]), (503, &json!("error")));
            assert_eq!(service.get(&one).await.status, 200, "reads go on");
            assert_eq!(requests(&quay), before, "no call was begun");
            std::fs::rename(&aside, &place).unwrap();
            service.until("/readyz", |ready| ready.status == 200).await;
        }
    }
    assert!(service.whole_log().contains("was replaced while it was in use"));
    let other = service.post(&path("cls-2"), json!({})).await;
    assert_eq!(other.status, 200, "{}", other.body);
    assert_works(&quay, &other);
}

/// A key that rows need and that goes missing while the program runs.
#[tokio::test]
async fn a_data_key_that_goes_missing() {
    let (directory, quay) = (tempfile::tempdir().unwrap(), fake_quay::start());
    let service = Service::start(directory.path(), setup(directory.path(), &quay)).await;
    let one = path("cls-1");
    let made = service.post(&one, json!({})).await;
    let keys = directory.path().join("data/keys");
    let aside = directory.path().join("dev.key.aside");
    std::fs::rename(keys.join("dev.key"), &aside).unwrap();
    std::fs::copy(keys.join("audit.key"), keys.join("other.key")).unwrap();
    std::fs::write(keys.join("primary"), "other").unwrap();
    let ready = service.until("/readyz", |ready| ready.status == 503).await;
    assert_eq!(ready.body["checks"]["encryption_keys"], "error", "{}", ready.body);
    let missing = service.get(&one).await;
    assert_eq!(missing.problem(), (503, "HYPERFLEET-SVC-001"), "{}", missing.body);
    assert!(!missing.header("retry-after").is_empty() && !missing.text.contains("dev"));
    let beat = service.heartbeat("cls-1", &made.auth(HOST), json!({})).await;
    assert_eq!(beat.problem(), (503, "HYPERFLEET-SVC-001"), "{}", beat.body);
    std::fs::rename(&aside, keys.join("dev.key")).unwrap();
    std::fs::write(keys.join("primary"), "dev").unwrap();
    service.until("/readyz", |ready| ready.status == 200).await;
    assert_eq!(service.get(&one).await.body["pull_secret"], made.body["pull_secret"]);
    let beat = service.heartbeat("cls-1", &made.auth(HOST), json!({})).await;
    assert_eq!(beat.status, 200, "{}", beat.body);
}
