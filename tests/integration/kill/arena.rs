//! One service (or several) with its clusters, and the book of its deaths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, Front, Orders};
use super::judge::{self, Rows};
use super::scene::{Database, Scene};
use super::table::Deaths;
use crate::support::postgres;
use crate::support::seed::random;
use crate::support::service::Service;

pub struct Arena {
    pub service: Service,
    /// The other processes on the same database.
    pub others: Vec<Service>,
    pub scene: Scene,
    fronts: watch::Sender<Vec<Front>>,
    pub orders: Orders,
    clusters: Vec<JoinHandle<()>>,
    deaths: Deaths,
}

impl Arena {
    /// Starts everything once; the service is dead then, and its clusters wait for it.
    pub async fn start(seed: u64, scene: Scene) -> Self {
        let mut service = Service::start(scene.directory.path(), scene.setup.clone()).await;
        let mut others = Vec::new();
        for number in 1..scene.replicas {
            let directory = scene.directory.path().join(format!("replica-{number}"));
            std::fs::create_dir(&directory).unwrap();
            // Keys and tokens are shared, as mounted secrets are.
            std::os::unix::fs::symlink("../data", directory.join("data")).unwrap();
            others.push(Service::start(&directory, scene.setup.clone()).await);
        }
        let all = std::iter::once(&service).chain(&others).map(front).collect();
        let fronts = watch::Sender::new(all);
        let orders = Orders {
            pace: scene.pace,
            fronts: fronts.subscribe(),
            rest: Arc::new(AtomicBool::new(false)),
            over: Arc::new(AtomicBool::new(false)),
            delete_in_rotation: Arc::default(),
            jumped: Arc::default(),
            registries: scene.registries.clone(),
        };
        // The first restart is a death of its own kind: nothing has happened yet.
        service.kill();
        // Longer than anybody sleeps: what was given up and is carried out later would look like a fault.
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build();
        let client = client.unwrap();
        let live = |number: u64| {
            let cluster = Cluster {
                name: format!("cls-{number}"),
                orders: orders.clone(),
                random: random(seed, number),
                client: client.clone(),
                held: None,
                newest: 0,
                rolled_back: false,
            };
            tokio::spawn(cluster.live())
        };
        let clusters = (1..=scene.clusters).map(live).collect();
        Self { service, others, scene, fronts, orders, clusters, deaths: Deaths::default() }
    }

    /// One of the processes; the first is the one that the strikes fall on.
    pub fn replica(&mut self, number: usize) -> &mut Service {
        std::iter::once(&mut self.service).chain(&mut self.others).nth(number).unwrap()
    }

    pub async fn rows(&self) -> Rows {
        Rows::open(&self.scene.database).await
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
        self.forget_the_dead().await;
        let ready = self.service.restart_armed(failpoints).await;
        if ready {
            self.tell_fronts();
        }
        ready
    }

    /// Where the processes are now.
    pub fn tell_fronts(&self) {
        let all = std::iter::once(&self.service).chain(&self.others).map(front).collect();
        self.fronts.send_replace(all);
    }

    /// A killed process does not say goodbye, and PostgreSQL's row of it has to get stale before the next one
    /// may serve. Here it is made old at once.
    pub async fn forget_the_dead(&self) {
        if let Database::Postgres(_, url) = &self.scene.database
            && self.scene.replicas == 1
        {
            let old = "UPDATE replicas SET seen_at = seen_at - interval '1 hour'";
            postgres::execute(url, old).await;
        }
    }

    pub async fn assert_safe(&self) {
        for (task, number) in self.clusters.iter().zip(1..) {
            if task.is_finished() {
                let story = self.rows().await.story_of_cluster(&format!("cls-{number}")).await;
                panic!("cls-{number} was told something wrong: see above\n{story}");
            }
        }
        self.rows().await.assert_safe(&self.scene.registries).await;
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
        if let Err(restless) = rows.until_at_rest(Duration::from_secs(120)).await {
            let logs: Vec<String> = self.others.iter().map(Service::log).collect();
            panic!("{restless}\n{}\n{}", self.service.log(), logs.join("\nanother replica:\n"));
        }
        rows.assert_exact(&self.scene.registries).await;
        let told = rows.told().await;
        judge::assert_audit(&told);
        for registry in &self.scene.registries {
            judge::assert_announced(registry, &told);
        }
        self.orders.rest.store(false, Ordering::SeqCst);
    }

    /// The last rest, and the table of all that happened.
    pub async fn finish(mut self) {
        self.rest().await;
        self.orders.over.store(true, Ordering::SeqCst);
        for task in self.clusters.drain(..) {
            task.await.unwrap();
        }
        let rows = self.rows().await;
        if self.deaths.count() > 0 {
            println!("{} kills\n{}", self.deaths.count(), self.deaths.table(&rows.told().await));
        }
        println!("rotations: {:?}", rows.rotations().await);
    }
}

fn front(service: &Service) -> Front {
    Front { api: service.api.clone(), token: service.token.clone() }
}
