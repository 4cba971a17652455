//! Everything below HTTP, in one process, over a database of its own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hyperfleet_credentials::actors::activity::Activity;
use hyperfleet_credentials::actors::audit::Caller;
use hyperfleet_credentials::actors::credential::{Executed, Snapshot};
use hyperfleet_credentials::actors::deps::{ConfiguredRegistry, Deps, Tuning};
use hyperfleet_credentials::actors::log::Cause;
use hyperfleet_credentials::actors::read;
use hyperfleet_credentials::actors::replica::Replica;
use hyperfleet_credentials::actors::restored::RestoredLatch;
use hyperfleet_credentials::actors::shard::CommandError;
use hyperfleet_credentials::actors::system::{System, wait_until};
use hyperfleet_credentials::crypto::{SharedKeyring, generate_key};
use hyperfleet_credentials::ids::{ClusterId, Generation, RegistryId, RotationId};
use hyperfleet_credentials::registries::lane::{BreakerSettings, Lane, LaneSettings};
use hyperfleet_credentials::registries::rate::Rate;
use hyperfleet_credentials::registries::scripted::{Flavour, Scripted};
use hyperfleet_credentials::registries::{Marker, Registry as _};
use hyperfleet_credentials::state::pull_secret::{
    Account, Backoff, Command, EvidenceSource, OnDeadline, Policy, PullSecret, RegistryPolicy,
    RotationReason, StateName,
};
use hyperfleet_credentials::store::{SqliteStore, Store};
use hyperfleet_credentials::telemetry::metrics::Metrics;
use hyperfleet_credentials::time::{Clock, SystemClock, Timestamp};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::stock::Stock;

const WAIT: Duration = Duration::from_secs(30);

/// The system's clock, which a test can make panic, stop or jump.
#[derive(Default)]
pub struct TestClock {
    panics: AtomicU32,
    ahead: Mutex<Duration>,
    stopped: Mutex<bool>,
    waits: AtomicBool,
    go_on: Condvar,
}

impl TestClock {
    /// The next looks at the clock panic: whoever looks is in the middle of its work.
    pub fn panic(&self, times: u32) {
        self.panics.store(times, Ordering::SeqCst);
    }

    pub fn jump(&self, time: Duration) {
        *self.ahead.lock().unwrap() += time;
    }

    /// Whoever looks at the clock hangs until `go_on`.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap() = true;
    }

    pub fn go_on(&self) {
        *self.stopped.lock().unwrap() = false;
        self.go_on.notify_all();
    }

    /// True once somebody hangs.
    pub fn somebody_waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let left =
            self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert!(left.is_err(), "the clock panics because a test says so");
        let mut stopped = self.stopped.lock().unwrap();
        while *stopped {
            self.waits.store(true, Ordering::SeqCst);
            stopped = self.go_on.wait(stopped).unwrap();
        }
        drop(stopped);
        SystemClock.now().plus(*self.ahead.lock().unwrap())
    }
}

pub struct World {
    pub registry: Scripted,
    pub clock: Arc<TestClock>,
    pub system: System,
    pub deps: Arc<Deps>,
    /// The second registry, `other`.
    pub other: Scripted,
    directory: TempDir,
    setting: Setting,
}

/// How a world is made.
#[derive(Clone)]
pub struct Setting {
    pub flavour: Flavour,
    pub tuning: Tuning,
    /// The limits of each registry.
    pub lane: LaneSettings,
    /// Whether there is a second registry; then a cluster has to say where it wants its accounts.
    pub two: bool,
}

impl Setting {
    pub fn new(flavour: Flavour) -> Self {
        let breaker = BreakerSettings {
            min_pause: Duration::from_millis(50),
            max_pause: Duration::from_millis(200),
            ..BreakerSettings::default()
        };
        let lane = LaneSettings { max_concurrent: 8, rate: Rate::Off, breaker };
        Self { flavour, tuning: tuning(), lane, two: false }
    }
}

pub fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn policy(flavour: Flavour, registries: &[&str]) -> Policy {
    let rules = RegistryPolicy {
        enabled: true,
        prefix: "hyp".to_owned(),
        timeout: Duration::from_millis(500),
        settle_time: Duration::from_millis(1200),
        own_secret: flavour == Flavour::Chosen,
    };
    Policy {
        interval: None,
        spread: 0.1,
        window: None,
        drift_interval: None,
        reissue: false,
        min_overlap: Duration::ZERO,
        grace_period: Duration::from_secs(600),
        on_deadline: OnDeadline::Hold,
        compromise_deadline: Duration::from_secs(60),
        quiet: Duration::ZERO,
        consumer_ttl: Duration::from_secs(3600),
        proof: vec![EvidenceSource::Heartbeat, EvidenceSource::Adapter],
        retry: Backoff {
            initial: Duration::from_millis(20),
            factor: 2.0,
            max: Duration::from_millis(200),
            jitter: 0.2,
        },
        give_up_after: Duration::from_secs(3600),
        denied_after: Duration::from_secs(3600),
        failed_after: Duration::from_secs(3600),
        history_after: Duration::from_secs(24 * 3600),
        registries: registries.iter().map(|id| (id.parse().unwrap(), rules.clone())).collect(),
    }
}

pub fn tuning() -> Tuning {
    Tuning {
        shards: 2,
        mailbox: 256,
        idle_after: Duration::from_secs(30),
        tick: Duration::from_millis(50),
        batch: 100,
        lease: Duration::from_secs(2),
        restart_pause: Duration::from_millis(20),
        // Tests that jump mean the time to have passed.
        trust_after: Duration::ZERO,
        ..Tuning::default()
    }
}

impl World {
    pub async fn start(flavour: Flavour) -> Self {
        Self::start_as(Setting::new(flavour)).await
    }

    pub async fn start_with(flavour: Flavour, tuning: Tuning) -> Self {
        Self::start_as(Setting { tuning, ..Setting::new(flavour) }).await
    }

    pub async fn start_as(setting: Setting) -> Self {
        let directory = tempfile::tempdir().unwrap();
        generate_key(&directory.path().join("keys"), "test", true).unwrap();
        let registry = Scripted::new(setting.flavour);
        let other = Scripted::new(setting.flavour);
        Self::over(directory, registry, other, Arc::new(TestClock::default()), setting).await
    }

    async fn over(
        directory: TempDir,
        registry: Scripted,
        other: Scripted,
        clock: Arc<TestClock>,
        setting: Setting,
    ) -> Self {
        let second = setting.two.then_some(("other", &other));
        let registries = std::iter::once(("scripted", &registry)).chain(second);
        let deps = make_deps(&directory, registries.collect(), &clock, &setting).await;
        let system = System::start(deps.clone(), None).await.unwrap();
        Self { registry, clock, system, deps, other, directory, setting }
    }

    /// The process ends without a word and a new one starts over the same database.
    pub async fn die_and_start_again(self) -> Self {
        let Self { registry, clock, system, deps, other, directory, setting } = self;
        // As little as a kill: what runs is not waited for.
        system.stop(Duration::ZERO).await;
        deps.store.close().await;
        drop(deps);
        Self::over(directory, registry, other, clock, setting).await
    }

    pub async fn execute(&self, name: &str, command: Command) -> Result<Executed, CommandError> {
        self.system.shards.execute(&cluster(name), command, Caller::service("test")).await
    }

    pub async fn issue(&self, name: &str) -> Result<Executed, CommandError> {
        let cluster_id = cluster(name);
        self.execute(name, Command::Issue { cluster_id, registries: None }).await
    }

    /// Asks for a pull secret with accounts at these registries.
    pub async fn issue_at(&self, name: &str, registries: &[&str]) {
        let cluster_id = cluster(name);
        let registries = Some(registries.iter().map(|id| id.parse().unwrap()).collect());
        self.execute(name, Command::Issue { cluster_id, registries }).await.unwrap();
    }

    /// Clusters with an account each that the registry did not let go, to be tried again now.
    pub async fn plant_residue(&self, name: &str) {
        let day = Duration::from_secs(25 * 3600);
        let now = self.clock.now();
        let past =
            Timestamp::from_micros(now.as_micros() - i64::try_from(day.as_micros()).unwrap());
        let username = |account: &Account| self.registry.username(account.name.as_str());
        let stock = Stock::active(&self.deps.policy, past, name, &username).not_let_go("in use");
        self.store(&stock).await;
    }

    /// A cluster that is served.
    pub async fn plant_active(&self, name: &str) {
        let username = |account: &Account| self.registry.username(account.name.as_str());
        let stock = Stock::active(&self.deps.policy, self.clock.now(), name, &username);
        self.store(&stock).await;
    }

    async fn store(&self, stock: &Stock<'_>) {
        let installation = self.deps.installation.clone();
        for (account, secret) in stock.store(self.deps.store.as_ref(), &self.deps.keyring).await {
            let marker = Marker {
                installation: installation.clone(),
                cluster_id: Some(stock.record().cluster_id.clone()),
                generation: account.born_generation,
            };
            assert!(self.registry.add_marked(account.name.as_str(), marker, secret));
        }
    }

    /// Asks for a pull secret and waits until it is there.
    pub async fn issued(&self, name: &str) -> Snapshot {
        let executed = self.issue(name).await.unwrap();
        let snapshot =
            wait_until(executed.watch, WAIT, |seen| state(seen) == Some(StateName::Active));
        let snapshot = snapshot.await;
        assert_eq!(state(&snapshot), Some(StateName::Active), "{snapshot:#?}");
        snapshot
    }

    pub async fn rotate(&self, name: &str) -> RotationId {
        let rotation_id = RotationId(Uuid::now_v7());
        let reason = RotationReason::Manual;
        let command = Command::Rotate { rotation_id, reason, force_immediate: false };
        self.execute(name, command).await.unwrap();
        rotation_id
    }

    /// Waits until the record is as wanted, in the database.
    pub async fn until(&self, name: &str, wanted: impl Fn(Option<&PullSecret>) -> bool) {
        let looking = async {
            loop {
                let loaded = self.deps.store.load(&cluster(name)).await.unwrap();
                if wanted(loaded.record.as_ref()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(WAIT, looking).await.is_err() {
            let loaded = self.deps.store.load(&cluster(name)).await.unwrap();
            panic!("not as wanted: {loaded:#?}\n{:#?}", self.registry.log());
        }
    }

    pub async fn until_active(&self, name: &str, generation: u32) {
        self.until(name, |record| {
            record.is_some_and(|record| {
                record.state.name() == StateName::Active
                    && record.generation() == Generation(generation)
            })
        })
        .await;
    }

    /// Waits until this generation is served.
    pub async fn until_generation(&self, name: &str, generation: u32) {
        self.until(name, |record| {
            record.is_some_and(|record| record.generation() == Generation(generation))
        })
        .await;
    }

    /// What is handed out works at the registry.
    pub async fn assert_served_works(&self, name: &str) {
        let view = self.deps.store.served(&cluster(name)).await.unwrap().unwrap();
        assert_eq!(view.credentials.len(), 1, "{view:?}");
        for credential in view.credentials {
            let secret = read::open(&self.deps, credential.account_id, &credential.secret).unwrap();
            assert!(
                self.registry.secret_works(&credential.username, &secret),
                "{view:?}",
                view = credential.username
            );
        }
    }

    /// Presents what is handed out.
    pub async fn heartbeat(&self, name: &str) -> read::HeartbeatAnswer {
        let view = self.deps.store.served(&cluster(name)).await.unwrap().unwrap();
        let credential = &view.credentials[0];
        let secret = read::open(&self.deps, credential.account_id, &credential.secret).unwrap();
        let beat = read::Heartbeat { username: credential.username.clone(), secret };
        let cluster_id = cluster(name);
        let known = read::recognised(&self.deps, &cluster_id, &beat).await.unwrap();
        let cause = Cause::default();
        let shards = &self.system.shards;
        let consumer = read::DEFAULT_CONSUMER;
        let beat = read::heartbeat(&self.deps, shards, &cluster_id, known, consumer, &cause);
        beat.await.unwrap()
    }

    pub fn metric(&self, name: &str) -> f64 {
        let text = self.deps.metrics.encode().unwrap();
        text.lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit(' ').next())
            .filter_map(|value| value.parse::<f64>().ok())
            .sum()
    }
}

pub fn state(snapshot: &Snapshot) -> Option<StateName> {
    snapshot.0.record.as_ref().map(|record| record.state.name())
}

async fn make_deps(
    directory: &TempDir,
    registries: Vec<(&str, &Scripted)>,
    clock: &Arc<TestClock>,
    setting: &Setting,
) -> Arc<Deps> {
    let url = format!("sqlite://{}", directory.path().join("test.db").display());
    let store = SqliteStore::open(&url, 2).await.unwrap();
    store.migrate().await.unwrap();
    let flavour = setting.flavour;
    let ids: Vec<&str> = registries.iter().map(|(id, _)| *id).collect();
    let policy = policy(flavour, &ids);
    let configured = |(id, registry): &(&str, &Scripted)| {
        assert_eq!(registry.capabilities().own_secret, flavour == Flavour::Chosen);
        let id: RegistryId = id.parse().unwrap();
        let configured = ConfiguredRegistry {
            registry: Arc::new(Scripted::clone(registry)),
            lane: Lane::new(setting.lane.clone()),
            host: format!("{id}.test"),
            aliases: Vec::new(),
            email: None,
            timeout: policy.registries[&id].timeout,
        };
        (id, configured)
    };
    let registries = registries.iter().map(configured).collect();
    let tuning = setting.tuning.clone();
    Arc::new(Deps {
        store: Arc::new(store),
        keyring: Arc::new(SharedKeyring::load(&directory.path().join("keys"), None).unwrap()),
        clock: clock.clone(),
        policy,
        registries,
        metrics: Arc::new(Metrics::new().unwrap()),
        installation: "test".to_owned(),
        activity: Activity::default(),
        restored: RestoredLatch::default(),
        replica: Replica::new(tuning.lease, tuning.trust_after),
        tuning,
        failpoints: None,
    })
}
