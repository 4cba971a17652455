//! One service with its clusters, and the book of its deaths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, Front, Orders};
use super::judge::{self, Rows};
use super::table::Deaths;
use crate::support::seed::random;
use crate::support::service::{Service, Setup};

const CLUSTERS: u64 = 6;

pub struct Arena {
    pub service: Service,
    directory: TempDir,
    front: watch::Sender<Front>,
    orders: Orders,
    clusters: Vec<JoinHandle<()>>,
    watcher: JoinHandle<()>,
    deaths: Deaths,
}

impl Arena {
    pub async fn start(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup::quick()
            .env("HYPERFLEET_REGISTRIES_LOCAL_TIMEOUT", "1s")
            .env("HYPERFLEET_REGISTRIES_LOCAL_SETTLE_TIME", "2s")
            .env("HYPERFLEET_REGISTRIES_LOCAL_BCRYPT_COST", "4")
            .env("HYPERFLEET_ROTATION_GRACE_PERIOD", "10m")
            .env("HYPERFLEET_LIMITS_REQUESTS", "off")
            .env("HYPERFLEET_LIMITS_ROTATIONS", "off");
        let mut service = Service::start(directory.path(), setup).await;
        let front = watch::Sender::new(front(&service));
        let orders = Orders {
            front: front.subscribe(),
            rest: Arc::new(AtomicBool::new(false)),
            over: Arc::new(AtomicBool::new(false)),
            htpasswd: directory.path().join("data/registry.htpasswd"),
        };
        // The first restart is a death of its own kind: nothing has happened yet.
        service.kill();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build();
        let client = client.unwrap();
        let live = |number: u64| {
            let cluster = Cluster {
                name: format!("cls-{number}"),
                orders: orders.clone(),
                random: random(seed, number),
                client: client.clone(),
                held: None,
            };
            tokio::spawn(cluster.live())
        };
        let clusters = (1..=CLUSTERS).map(live).collect();
        let watcher = tokio::spawn(watch_names(orders.htpasswd.clone(), orders.over.clone()));
        Self { service, directory, front, orders, clusters, watcher, deaths: Deaths::default() }
    }

    async fn rows(&self) -> Rows {
        Rows::open(&self.directory.path().join("data/credentials.db")).await
    }

    /// Starts the service again, with failure points, and looks whether all is well.
    pub async fn restart(&mut self, failpoints: &str) {
        if !self.try_restart(failpoints).await {
            // A point may be reached before the service is ready: that is a death like any other.
            return;
        }
        self.assert_safe().await;
    }

    /// False when it died before it was ready.
    pub async fn try_restart(&mut self, failpoints: &str) -> bool {
        let ready = self.service.restart_armed(failpoints).await;
        if ready {
            self.front.send_replace(front(&self.service));
        }
        ready
    }

    async fn assert_safe(&self) {
        for cluster in &self.clusters {
            assert!(!cluster.is_finished(), "a cluster was told something wrong: see above");
        }
        assert!(!self.watcher.is_finished(), "a name came back: see above");
        self.rows().await.assert_safe(&self.orders.htpasswd).await;
    }

    /// The service is dead: what did it leave open?
    pub async fn note_death(&mut self, point: String, call: String) {
        let open = self.rows().await.open_calls().await;
        self.deaths.note((point, call), open);
    }

    /// Started once more, the service works undisturbed until nothing is left to do.
    pub async fn rest(&mut self) {
        self.orders.rest.store(true, Ordering::SeqCst);
        assert!(self.try_restart("").await, "{}", self.service.log());
        self.settle().await;
        self.service.kill();
        self.orders.rest.store(false, Ordering::SeqCst);
    }

    /// The clusters want nothing new until the service, as it is, has nothing left to do.
    pub async fn settle(&mut self) {
        self.orders.rest.store(true, Ordering::SeqCst);
        self.assert_safe().await;
        let rows = self.rows().await;
        if let Err(restless) = rows.until_at_rest(Duration::from_secs(60)).await {
            panic!("{restless}\n{}", self.service.log());
        }
        rows.assert_exact(&self.orders.htpasswd).await;
        judge::assert_audit(&rows.told().await);
        self.orders.rest.store(false, Ordering::SeqCst);
    }

    /// The last rest, and the table of all that happened.
    pub async fn finish(mut self) {
        self.rest().await;
        self.orders.over.store(true, Ordering::SeqCst);
        for task in self.clusters.drain(..) {
            task.await.unwrap();
        }
        self.watcher.await.unwrap();
        let rows = Rows::open(&self.directory.path().join("data/credentials.db")).await;
        if self.deaths.count() > 0 {
            println!("{} kills\n{}", self.deaths.count(), self.deaths.table(&rows.told().await));
        }
        println!("rotations: {:?}", rows.rotations().await);
    }
}

fn front(service: &Service) -> Front {
    Front { api: service.api.clone(), token: service.token.clone() }
}

/// The registry's own memory: a name that went never comes again.
async fn watch_names(htpasswd: PathBuf, over: Arc<AtomicBool>) {
    let (mut before, mut gone) = (BTreeSet::new(), BTreeSet::new());
    while !over.load(Ordering::SeqCst) {
        let now: BTreeSet<String> = names(&htpasswd);
        let again: Vec<_> = now.intersection(&gone).collect();
        assert!(again.is_empty(), "created a second time: {again:?}");
        gone.extend(before.difference(&now).cloned());
        before = now;
        // Nobody tells when the file changes.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

fn names(htpasswd: &Path) -> BTreeSet<String> {
    judge::accounts_in(htpasswd).into_keys().collect()
}
