//! Everything below HTTP, in one process, over a database of its own.

use std::collections::BTreeMap;
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
use hyperfleet_credentials::registries::Registry as _;
use hyperfleet_credentials::registries::lane::{BreakerSettings, Lane, LaneSettings};
use hyperfleet_credentials::registries::rate::Rate;
use hyperfleet_credentials::registries::scripted::{Flavour, Scripted};
use hyperfleet_credentials::state::pull_secret::{
    Backoff, Command, EvidenceSource, OnDeadline, Policy, PullSecret, RegistryPolicy,
    RotationReason, StateName,
};
use hyperfleet_credentials::store::{SqliteStore, Store};
use hyperfleet_credentials::telemetry::metrics::Metrics;
use hyperfleet_credentials::time::{Clock, SystemClock, Timestamp};
use tempfile::TempDir;
use uuid::Uuid;

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
    directory: TempDir,
    flavour: Flavour,
    tuning: Tuning,
}

pub fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn policy(flavour: Flavour) -> Policy {
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
        registries: BTreeMap::from([("scripted".parse().unwrap(), rules)]),
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
        Self::start_with(flavour, tuning()).await
    }

    pub async fn start_with(flavour: Flavour, tuning: Tuning) -> Self {
        let directory = tempfile::tempdir().unwrap();
        generate_key(&directory.path().join("keys"), "test", true).unwrap();
        let registry = Scripted::new(flavour);
        let clock = Arc::new(TestClock::default());
        let deps = make_deps(&directory, &registry, flavour, &clock, &tuning).await;
        let system = System::start(deps.clone(), None).await.unwrap();
        Self { registry, clock, system, deps, directory, flavour, tuning }
    }

    /// The process ends without a word and a new one starts over the same database.
    pub async fn die_and_start_again(self) -> Self {
        let Self { registry, clock, system, deps, directory, flavour, tuning } = self;
        // As little as a kill: what runs is not waited for.
        system.stop(Duration::ZERO).await;
        deps.store.close().await;
        drop(deps);
        let deps = make_deps(&directory, &registry, flavour, &clock, &tuning).await;
        let system = System::start(deps.clone(), None).await.unwrap();
        Self { registry, clock, system, deps, directory, flavour, tuning }
    }

    pub async fn execute(&self, name: &str, command: Command) -> Result<Executed, CommandError> {
        self.system.shards.execute(&cluster(name), command, Caller::service("test")).await
    }

    pub async fn issue(&self, name: &str) -> Result<Executed, CommandError> {
        let cluster_id = cluster(name);
        self.execute(name, Command::Issue { cluster_id, registries: None }).await
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
    registry: &Scripted,
    flavour: Flavour,
    clock: &Arc<TestClock>,
    tuning: &Tuning,
) -> Arc<Deps> {
    let url = format!("sqlite://{}", directory.path().join("test.db").display());
    let store = SqliteStore::open(&url, 2).await.unwrap();
    store.migrate().await.unwrap();
    let policy = policy(flavour);
    let id: RegistryId = "scripted".parse().unwrap();
    let timeout = policy.registries[&id].timeout;
    assert_eq!(registry.capabilities().own_secret, flavour == Flavour::Chosen);
    let breaker = BreakerSettings {
        min_pause: Duration::from_millis(50),
        max_pause: Duration::from_millis(200),
        ..BreakerSettings::default()
    };
    let configured = ConfiguredRegistry {
        registry: Arc::new(registry.clone()),
        lane: Lane::new(LaneSettings { max_concurrent: 8, rate: Rate::Off, breaker }),
        host: "registry.test".to_owned(),
        aliases: Vec::new(),
        email: None,
        timeout,
    };
    Arc::new(Deps {
        store: Arc::new(store),
        keyring: Arc::new(SharedKeyring::load(&directory.path().join("keys"), None).unwrap()),
        clock: clock.clone(),
        policy,
        registries: BTreeMap::from([(id, configured)]),
        metrics: Arc::new(Metrics::new().unwrap()),
        installation: "test".to_owned(),
        tuning: tuning.clone(),
        activity: Activity::default(),
        restored: RestoredLatch::default(),
        replica: Replica::new(tuning.lease, tuning.trust_after),
        failpoints: None,
    })
}
