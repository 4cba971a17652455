//! Several servers on one PostgreSQL and one fake Quay, as replicas of one installation.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use uuid::Uuid;

use super::fake_quay::{self, FakeQuay};
use super::postgres;
use super::service::{Service, Setup};

/// The host of the fake in pull secrets.
pub const HOST: &str = "quay.test";

pub struct Fleet {
    pub replicas: Vec<Service>,
    pub quay: FakeQuay,
    /// The database's address.
    pub url: String,
    setup: Setup,
    directory: tempfile::TempDir,
}

impl Fleet {
    /// So many replicas with this lease, on a database of their own.
    pub async fn start(replicas: usize, lease: &str) -> Self {
        Self::start_on(postgres::shared().database(None).await, replicas, lease).await
    }

    /// The same on this database.
    pub async fn start_on(url: String, replicas: usize, lease: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let quay = fake_quay::start();
        let setup = setup(directory.path(), &quay)
            .env("HYPERFLEET_DB_URL", &url)
            .env("HYPERFLEET_SCHEDULER_LEASE", lease);
        let mut fleet = Self { replicas: Vec::new(), quay, url, setup, directory };
        for _ in 0..replicas {
            fleet.join().await;
        }
        fleet
    }

    /// One replica more.
    pub async fn join(&mut self) {
        self.join_with(self.setup.clone()).await;
    }

    /// One replica more, which is configured a little differently.
    pub async fn join_with(&mut self, setup: Setup) {
        let own = self.directory.path().join(format!("replica-{}", self.replicas.len()));
        std::fs::create_dir(&own).unwrap();
        // Keys, tokens and the installation are the same for all.
        std::os::unix::fs::symlink(self.directory.path().join("data"), own.join("data")).unwrap();
        self.replicas.push(Service::start(&own, setup).await);
    }

    /// How all of them are configured.
    pub fn setup(&self) -> Setup {
        self.setup.clone()
    }

    /// What all of them share: keys, tokens.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The id of a replica, as it says itself.
    pub fn id(&self, replica: usize) -> String {
        let log = self.replicas[replica].log();
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut joined = entries.filter(|entry| entry["event_name"] == "replica_joined");
        joined.next().expect("it has joined")["replica"].as_str().unwrap().to_owned()
    }

    /// Which replica owns a cluster's credential.
    pub async fn owner(&self, cluster: &str) -> Option<usize> {
        let sql = format!("SELECT owner FROM pull_secrets WHERE cluster_id = '{cluster}'");
        let mut db = PgConnection::connect(&self.url).await.unwrap();
        let (owner,): (Option<Uuid>,) =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut db).await.unwrap();
        let owner = owner?.to_string();
        (0..self.replicas.len()).find(|replica| self.id(*replica) == owner)
    }

    /// The entries with this `event_name` in a replica's log.
    pub fn entries(&self, replica: usize, event: &str) -> Vec<Value> {
        let log = self.replicas[replica].log();
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        entries.filter(|entry| entry["event_name"] == event).collect()
    }

    /// Waits until one of these replicas has logged such an entry about a cluster.
    pub async fn taken_over(&self, replicas: &[usize], cluster: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut entries = replicas.iter().flat_map(|it| self.entries(*it, "taken_over"));
            if let Some(entry) = entries.find(|entry| entry["cluster_id"] == cluster) {
                return entry;
            }
            assert!(Instant::now() < deadline, "nobody took {cluster} over");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the fake has so many robots of ours.
    pub async fn robots(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.quay.live("acme+hyp-").len() != count {
            let live = self.quay.live("acme+hyp-");
            assert!(Instant::now() < deadline, "{live:?}\n{}", self.replicas[0].log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Each announced call was answered exactly once; one that runs was not yet.
    pub async fn assert_calls_are_paired(&self) {
        let sql = "SELECT detail->>'token', sum((action = 'call_announced')::int), \
             sum((action = 'call_answered')::int) FROM audit_events \
             WHERE action IN ('call_announced', 'call_answered') GROUP BY 1";
        let mut db = PgConnection::connect(&self.url).await.unwrap();
        let calls: Vec<(String, i64, i64)> = sqlx::query_as(sql).fetch_all(&mut db).await.unwrap();
        let open = "SELECT call_token FROM accounts WHERE call_token IS NOT NULL";
        let open: Vec<(Uuid,)> = sqlx::query_as(open).fetch_all(&mut db).await.unwrap();
        assert!(!calls.is_empty());
        for (token, announced, answered) in calls {
            let runs = open.iter().any(|(open,)| open.to_string() == token);
            assert_eq!((announced, answered), (1, i64::from(!runs)), "{token}");
        }
    }
}

/// The fake as the only registry; the shortest times that a short lease allows.
fn setup(directory: &Path, quay: &FakeQuay) -> Setup {
    let token_file = directory.join("quay.token");
    std::fs::write(&token_file, &quay.token).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token_file, private).unwrap();
    quay.add_team("pullers");
    quay.add_repository("app", &["pullers"]);
    let config = json!({
        "registries": [{
            "id": "quay", "type": "quay", "host": HOST, "url": quay.url,
            "organization": quay.organization, "team": "pullers", "repositories": ["app"],
            "token_file": token_file, "timeout": "1s", "settle_time": "10s", "rate": "off",
        }],
    });
    let file = directory.join("config.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    Setup::quick().env("HYPERFLEET_CONFIG", &file.to_string_lossy())
}
