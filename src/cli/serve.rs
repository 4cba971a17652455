//! `serve` and `migrate`: the one place that knows all layers and puts them together.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use actix_web::web::Data;
use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use super::shutdown::{Shutdown, Signals};
use crate::actors::activity::Activity;
use crate::actors::break_glass::fleet::{self, Fleet};
use crate::actors::break_glass::kit::Kit;
use crate::actors::break_glass::service::Service;
use crate::actors::break_glass::step::Tools;
use crate::actors::deps::Deps;
use crate::actors::measured::Measured;
use crate::actors::reads::{self, ReadLog};
use crate::actors::registries;
use crate::actors::replica::{Replica, Standing};
use crate::actors::system::System;
use crate::config::{AuthMode, CLOCK_VARIABLE, Config, FAILPOINTS_VARIABLE};
use crate::crypto::{AuditKey, SharedKeyring};
use crate::failpoints::FailPoints;
use crate::http::auth::{Authenticator, StaticTokens};
use crate::http::edge::{Edge, Lifecycle};
use crate::http::handlers::break_glass::{Desk, DeskRules, Lifetimes};
use crate::http::handlers::{Backend, Repeats, Work, handlers};
use crate::http::health::{Check, Passed, Readiness, RegistryHealth};
use crate::http::limits::Limits;
use crate::http::server;
use crate::registries::lane::BreakerState;
use crate::store::break_glass::BreakGlassStore;
use crate::store::{AuditSeal, PgStore, SqliteStore, Store, StoreError};
use crate::telemetry::Metrics;
use crate::time::{Clock, SystemClock};

const NO_AUDIT_KEY: &str = "the audit needs its key; `keys generate` makes it beside a data key";

/// Runs the service until it is told to stop. `dev`: the database is migrated first.
///
/// # Errors
/// When something that the service cannot do without is missing.
pub async fn serve(config: Config, dev: bool) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    if let Some(file) = std::env::var_os(CLOCK_VARIABLE) {
        tracing::warn!(?file, "the clock is moved by a file: this process has a time of its own");
        crate::time::shift_by_file(file.into());
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::new()?;
    let lifecycle = Lifecycle::default();
    let backend = Backend::default();
    let late: LateService = Arc::default();
    let edge = Data::new(Edge {
        metrics: metrics.clone(),
        clock: clock.clone(),
        authenticator: authenticator(&config)?,
        limits: Limits::new(&config.limits),
        lifecycle: lifecycle.clone(),
        readiness: readiness(&backend, &late),
        request_wait: config.server.request_wait,
    });
    // Listening comes first: a probe is answered while the rest is set up.
    let bound =
        server::listen(&config.server, &config.metrics, None, &edge, handlers(backend.clone()))?;
    let (api, pages) = (bound.api.handle(), bound.metrics.handle());
    actix_rt::spawn(bound.api);
    actix_rt::spawn(bound.metrics);

    let audit_key = AuditKey::load(&config.encryption.keys_dir).context(NO_AUDIT_KEY)?;
    let repeats = Repeats::new(&audit_key, config.server.request_wait);
    let slow_repeats = Repeats::new(&audit_key, config.break_glass.wait);
    let set_up = async {
        let fleet = Fleet::load(&config).await?;
        let stores = stores(&config, dev, audit_key).await?;
        let deps = deps(&config, &stores, clock, metrics.clone()).await?;
        let deps = Arc::new(deps);
        let (store, policy) = (stores.break_glass, fleet::policy(&config));
        let kit = Kit { tools: Tools { deps: deps.clone(), store, policy }, fleet };
        anyhow::Ok((System::start(deps.clone(), Some(Arc::new(kit))).await?, deps))
    };
    let (system, deps) = tokio::select! {
        done = set_up => done?,
        signal = signals.next() => {
            tracing::info!(signal, "told to stop before it was ready");
            return Ok(());
        }
    };
    let reads = ReadLog::start(deps.clone(), config.audit.reads, reads::BUFFER);
    backend.set(Work::new(deps.clone(), system.shards.clone(), repeats, reads));
    if let Some(shards) = system.actors.break_glass.clone() {
        let break_glass = Arc::new(Service::new(shards));
        let _ = late.set(break_glass.clone());
        backend.set_desk(desk(&config, &deps, break_glass, slow_repeats));
    }
    lifecycle.begin_serving();
    metrics.up.set(1);
    tracing::info!("ready");

    let outcome = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "told to stop");
            Ok(())
        }
        reason = system.failed() => Err(anyhow!("{reason}; the process has to be started again")),
    };
    metrics.up.set(0);
    let shutdown = Shutdown {
        lifecycle,
        api,
        pages,
        backend,
        system,
        deps,
        delay: config.server.drain_delay,
        limit: config.server.shutdown_timeout,
    };
    let ended = shutdown.run(&mut signals).await;
    outcome.and(ended)
}

/// Whether `serve` could begin with this configuration: what it names is available, and its keys are there.
/// Opens no database and calls nobody.
///
/// # Errors
/// The first thing that `serve` would refuse.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    authenticator(config)?;
    database_url(config)?;
    registries::registries(config)?;
    let keys_dir = &config.encryption.keys_dir;
    SharedKeyring::load(keys_dir, config.encryption.primary.as_deref())?;
    AuditKey::load(keys_dir).map(drop).context(NO_AUDIT_KEY)
}

/// The database, asked in two ways.
struct Stores {
    all: Arc<dyn Store>,
    break_glass: Arc<dyn BreakGlassStore>,
}

impl Stores {
    fn of<S: Store + BreakGlassStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { all: store.clone(), break_glass: store }
    }
}

async fn stores(config: &Config, dev: bool, audit_key: AuditKey) -> anyhow::Result<Stores> {
    let stores = open_stores(config, Some(Arc::new(Sealer(audit_key)))).await?;
    if dev {
        stores.all.migrate().await?;
    } else {
        stores.all.check_schema().await?;
    }
    Ok(stores)
}

/// How many sealed values each key has.
async fn census<S: Store + ?Sized, B: BreakGlassStore + ?Sized>(
    store: &S,
    break_glass: &B,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut census = store.key_census().await?;
    for (key_id, count) in break_glass.break_glass_key_census().await? {
        *census.entry(key_id).or_default() += count;
    }
    Ok(census)
}

async fn deps(
    config: &Config,
    stores: &Stores,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> anyhow::Result<Deps> {
    let keys_dir = &config.encryption.keys_dir;
    let keyring = SharedKeyring::load(keys_dir, config.encryption.primary.as_deref())?;
    let store = stores.all.clone();
    store.claim_installation(&config.installation.id, clock.now()).await?;
    let census = census(&*store, &*stores.break_glass).await?;
    let needed: Vec<String> = census.into_keys().collect();
    keyring.get().check_needed(&needed)?;
    let registries = registries::registries(config)?;
    let tuning = registries::tuning(config);
    Ok(Deps {
        store: Arc::new(Measured::new(store, metrics.clone())),
        keyring: Arc::new(keyring),
        clock,
        policy: registries::policy(config, &registries),
        registries,
        metrics: Arc::new(metrics),
        installation: config.installation.id.clone(),
        replica: Replica::new(tuning.lease, tuning.trust_after),
        tuning,
        activity: activity(config)?,
        restored: crate::actors::restored::RestoredLatch::default(),
        failpoints: failpoints()?,
    })
}

fn desk(config: &Config, deps: &Deps, break_glass: Arc<Service>, repeats: Repeats) -> Desk {
    let section = &config.break_glass;
    let lifetimes =
        Lifetimes { default: section.default_expiration, longest: section.max_expiration };
    Desk {
        break_glass,
        rules: DeskRules { lifetimes, wait: section.wait },
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        repeats,
    }
}

/// SQLite has one writer; of PostgreSQL's connections some are kept for those who wait for an answer.
fn activity(config: &Config) -> anyhow::Result<Activity> {
    let postgres = database_url(config)?.expose_secret().starts_with("postgres");
    let connections = usize::try_from(config.db.max_connections)?;
    Ok(if postgres { Activity::new(connections * 3 / 4) } else { Activity::default() })
}

/// Armed by nobody but tests.
fn failpoints() -> anyhow::Result<Option<FailPoints>> {
    let Ok(rules) = std::env::var(FAILPOINTS_VARIABLE) else { return Ok(None) };
    tracing::warn!(rules, "failure points are armed: this process fails on purpose");
    Ok(Some(rules.parse().context(FAILPOINTS_VARIABLE)?))
}

fn authenticator(config: &Config) -> anyhow::Result<Arc<dyn Authenticator>> {
    match config.auth.mode {
        AuthMode::Static => {
            let file = config.auth.r#static.tokens_file.as_ref();
            let file = file.context("auth.static.tokens_file: is needed with auth.mode static")?;
            Ok(Arc::new(StaticTokens::load(file)?))
        }
        AuthMode::Kubernetes | AuthMode::Oidc => {
            bail!("auth.mode: only static is available in this version")
        }
    }
}

/// Empty until it is set up.
type LateService = Arc<OnceLock<Arc<Service>>>;

/// What `/readyz` looks at. Before the set-up is done nothing of it is there.
fn readiness(backend: &Backend, late: &LateService) -> Readiness {
    let (for_registries, for_restored) = (backend.clone(), backend.clone());
    Readiness::default()
        .deciding("config", Passed)
        .deciding("database", Database(backend.clone()))
        .deciding("encryption_keys", Keys(backend.clone(), late.clone()))
        .noticing("restored", move || {
            for_restored.get().is_ok_and(|work| work.deps.restored.is_latched())
        })
        .registries(move || match for_registries.get() {
            Ok(work) => work.deps.registries.iter().map(health).collect(),
            Err(_) => Vec::new(),
        })
}

fn health(
    (id, configured): (&crate::ids::RegistryId, &crate::actors::deps::ConfiguredRegistry),
) -> (String, RegistryHealth) {
    let health = match configured.lane.status().breaker {
        BreakerState::Closed => RegistryHealth::Ok,
        BreakerState::Open | BreakerState::HalfOpen => RegistryHealth::Degraded,
    };
    (id.to_string(), health)
}

struct Database(Backend);

#[async_trait]
impl Check for Database {
    async fn check(&self) -> Result<(), String> {
        let work = self.0.get().map_err(|error| error.to_string())?;
        if work.deps.replica.standing() == Standing::Lost {
            return Err("this replica could not say for too long that it lives".to_owned());
        }
        work.deps.store.ping().await.map_err(|error| error.to_string())
    }
}

/// Every key that rows need is at hand.
struct Keys(Backend, LateService);

#[async_trait]
impl Check for Keys {
    async fn check(&self) -> Result<(), String> {
        let work = self.0.get().map_err(|error| error.to_string())?;
        let census = work.deps.store.key_census().await.map_err(|error| error.to_string())?;
        let mut needed: Vec<String> = census.into_keys().collect();
        if let Some(break_glass) = self.1.get() {
            let census = break_glass.key_census().await.map_err(|error| error.to_string())?;
            needed.extend(census.into_keys());
        }
        work.deps.keyring.get().check_needed(&needed).map_err(|error| error.to_string())
    }
}

/// Brings the database to this release's schema.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn migrate(config: Config) -> anyhow::Result<()> {
    // A migration writes no audit.
    let store = open_stores(&config, None).await?.all;
    let before = store.schema_version().await?;
    store.migrate().await?;
    let after = store.schema_version().await?;
    tracing::info!(before, after, "migrated");
    store.close().await;
    Ok(())
}

pub(super) fn database_url(config: &Config) -> anyhow::Result<SecretString> {
    let url = config.db.connection_url()?;
    let known = ["sqlite:", "postgres://", "postgresql://"];
    if !known.iter().any(|scheme| url.expose_secret().starts_with(scheme)) {
        bail!("db.url: must begin with sqlite:, postgres:// or postgresql://");
    }
    Ok(url)
}

/// Opens the configured database for writing.
async fn open_stores(config: &Config, seal: Option<Arc<dyn AuditSeal>>) -> anyhow::Result<Stores> {
    let url = database_url(config)?;
    let (url, connections) = (url.expose_secret(), config.db.max_connections);
    if url.starts_with("postgres") {
        let store = PgStore::open(url, connections).await?;
        store.check_server().await?;
        return Ok(match seal {
            Some(seal) => Stores::of(store.with_audit_seal(seal)),
            None => Stores::of(store),
        });
    }
    let store = SqliteStore::open(url, connections).await?;
    Ok(match seal {
        Some(seal) => Stores::of(store.with_audit_seal(seal)),
        None => Stores::of(store),
    })
}

/// The keyed hash of audit rows.
#[derive(Debug)]
pub(super) struct Sealer(pub(super) AuditKey);

impl AuditSeal for Sealer {
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        self.0.hash(&[message]).to_vec()
    }
}

/// Counts the stored values of each key, read beside a running server.
pub struct StoredCensus;

#[async_trait]
impl super::keys::KeyCensus for StoredCensus {
    async fn rows(&self, config: &Config) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
        let url = config.db.connection_url()?;
        let Some(path) = url.expose_secret().strip_prefix("sqlite://") else {
            let store = PgStore::open(url.expose_secret(), 1).await?;
            let migrated = store.schema_version().await? > 0;
            let census = if migrated { Some(census(&store, &store).await?) } else { None };
            store.close().await;
            return Ok(census);
        };
        if !std::path::Path::new(path).exists() {
            return Ok(None);
        }
        let store = SqliteStore::open_read_only(url.expose_secret(), 1).await?;
        let census = census(&store, &store).await;
        store.close().await;
        Ok(Some(census?))
    }
}
