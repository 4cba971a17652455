//! What a run is played with: registries, a database, how many clusters and how many processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::truth::Registry;
use crate::quay_service;
use crate::support::fake_quay::{self, FakeQuay};
use crate::support::postgres;
use crate::support::service::Setup;

/// Where the rows are.
pub enum Database {
    Sqlite(PathBuf),
    /// A server of the scene's own, which may be stopped, and the address of the database in it.
    Postgres(postgres::Server, String),
}

pub struct Scene {
    pub directory: TempDir,
    pub setup: Setup,
    pub registries: Vec<Arc<Registry>>,
    /// The Quay among them, to make it fail.
    pub quay: Option<Arc<FakeQuay>>,
    pub database: Database,
    pub clusters: u64,
    /// Between two requests of one cluster.
    pub pace: Duration,
    /// How many processes serve from the one database. With SQLite always one.
    pub replicas: usize,
}

const PACE: Duration = Duration::from_millis(20);
const LOCAL: &str = "local";
const LOCAL_HOST: &str = "localhost:5000";

impl Scene {
    /// A file that a registry reads.
    pub fn htpasswd() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let setup = busy(Setup::quick())
            .env("HYPERFLEET_REGISTRIES_LOCAL_TIMEOUT", "1s")
            .env("HYPERFLEET_REGISTRIES_LOCAL_SETTLE_TIME", "2s")
            .env("HYPERFLEET_REGISTRIES_LOCAL_BCRYPT_COST", "4");
        let registries = vec![Arc::new(local(directory.path()))];
        Self::of(directory, setup, registries, None)
    }

    /// A Quay.
    pub fn quay() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let quay = Arc::new(fake_quay::start());
        let setup = busy(quay_service::setup(directory.path(), &quay));
        let registries = vec![of_quay(&quay)];
        Self::of(directory, setup, registries, Some(quay))
    }

    /// A Quay and a file: each cluster has an account at both.
    pub fn both() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let quay = Arc::new(fake_quay::start());
        let setup = busy(quay_service::setup(directory.path(), &quay));
        let file = directory.path().join("config.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let list = config["registries"].as_array_mut().unwrap();
        list[0]["aliases"] = json!([]);
        list.push(json!({
            "id": LOCAL, "type": "htpasswd", "host": LOCAL_HOST, "file": "data/registry.htpasswd",
            "timeout": "1s", "settle_time": "3s", "bcrypt_cost": 4, "rate": "off",
        }));
        std::fs::write(&file, config.to_string()).unwrap();
        let registries = vec![of_quay(&quay), Arc::new(local(directory.path()))];
        Self::of(directory, setup, registries, Some(quay))
    }

    fn of(
        directory: TempDir,
        setup: Setup,
        registries: Vec<Arc<Registry>>,
        quay: Option<Arc<FakeQuay>>,
    ) -> Self {
        let database = Database::Sqlite(directory.path().join("data/credentials.db"));
        Self { directory, setup, registries, quay, database, clusters: 6, pace: PACE, replicas: 1 }
    }

    /// Each registry may take its time.
    pub fn be_patient(&self) {
        let file = self.directory.path().join("config.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        for registry in config["registries"].as_array_mut().unwrap() {
            registry["timeout"] = json!("10s");
            registry["settle_time"] = json!("20s");
        }
        std::fs::write(&file, config.to_string()).unwrap();
    }

    /// The same on PostgreSQL, with so many processes.
    pub async fn on_postgres(mut self, replicas: usize) -> Self {
        let server = postgres::Server::start();
        let url = server.database(None).await;
        self.setup = self.setup.env("HYPERFLEET_DB_URL", &url);
        self.database = Database::Postgres(server, url);
        self.replicas = replicas;
        self
    }
}

fn local(directory: &Path) -> Registry {
    Registry::htpasswd(LOCAL, LOCAL_HOST, directory.join("data/registry.htpasswd"))
}

fn of_quay(quay: &Arc<FakeQuay>) -> Arc<Registry> {
    Arc::new(Registry::quay("quay", quay_service::HOST, Arc::clone(quay)))
}

/// Clusters that are always at something, and no limit in their way.
fn busy(setup: Setup) -> Setup {
    setup
        .env("HYPERFLEET_ROTATION_GRACE_PERIOD", "10m")
        .env("HYPERFLEET_LIMITS_REQUESTS", "off")
        .env("HYPERFLEET_LIMITS_ROTATIONS", "off")
}
