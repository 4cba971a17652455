//! `serve` and `migrate`: the one place that knows all layers and puts them together.

use std::sync::Arc;

use actix_web::web::Data;
use anyhow::{Context, bail};
use async_trait::async_trait;
use secrecy::ExposeSecret;
use tokio::signal::unix::{SignalKind, signal};

use crate::actors::deps::Deps;
use crate::actors::registries;
use crate::actors::system::System;
use crate::config::{AuthMode, Config};
use crate::crypto::{AUDIT_KEY_FILE, AuditKey, SharedKeyring};
use crate::http::auth::{Authenticator, StaticTokens};
use crate::http::edge::{Edge, Lifecycle};
use crate::http::handlers::{Backend, Work, handlers};
use crate::http::health::{Check, Passed, Readiness, RegistryHealth};
use crate::http::server::{self, Bound};
use crate::registries::lane::BreakerState;
use crate::store::{AuditSeal, PgStore, SqliteStore, Store};
use crate::telemetry::Metrics;
use crate::time::{Clock, SystemClock};

/// Runs the service until it is told to stop. `dev`: the database is migrated first.
///
/// # Errors
/// When something that the service cannot do without is missing.
pub async fn serve(config: Config, dev: bool) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::new()?;
    let lifecycle = Lifecycle::default();
    let backend = Backend::default();
    let edge = Data::new(Edge {
        metrics: metrics.clone(),
        clock: clock.clone(),
        authenticator: authenticator(&config)?,
        lifecycle: lifecycle.clone(),
        readiness: readiness(&backend),
        request_wait: config.server.request_wait,
    });
    // Listening comes first: a probe is answered while the rest is set up.
    let bound =
        server::listen(&config.server, &config.metrics, None, &edge, handlers(backend.clone()))?;
    let Bound { api, metrics: pages, .. } = bound;
    let (api_handle, pages_handle) = (api.handle(), pages.handle());
    let servers = (actix_rt::spawn(api), actix_rt::spawn(pages));

    let deps = Arc::new(deps(&config, dev, clock, metrics.clone()).await?);
    let system = System::start(deps.clone()).await?;
    backend.set(Work::new(deps.clone(), system.shards.clone()));
    lifecycle.begin_serving();
    metrics.up.set(1);
    tracing::info!("ready");

    let outcome = tokio::select! {
        stopped = told_to_stop() => stopped,
        reason = system.failed() => Err(anyhow::anyhow!("{reason}; the process has to be started again")),
    };
    metrics.up.set(0);
    lifecycle.begin_draining();
    tracing::info!("stopping: no new requests are taken");
    if tokio::time::timeout(config.server.shutdown_timeout, api_handle.stop(true)).await.is_err() {
        tracing::warn!("requests were still in flight when the time for them was over");
    }
    system.stop(config.server.shutdown_timeout).await;
    pages_handle.stop(false).await;
    let _ = servers.0.await;
    let _ = servers.1.await;
    deps.store.close().await;
    tracing::info!("stopped");
    outcome
}

async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "told to stop"),
        _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "told to stop"),
    }
    Ok(())
}

async fn deps(
    config: &Config,
    dev: bool,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> anyhow::Result<Deps> {
    let keys_dir = &config.encryption.keys_dir;
    let keyring = SharedKeyring::load(keys_dir, config.encryption.primary.as_deref())?;
    let store = open_store(config, sealer(config)?).await?;
    if dev {
        store.migrate().await?;
    } else {
        store.check_schema().await?;
    }
    store.claim_installation(&config.installation.id, clock.now()).await?;
    let needed: Vec<String> = store.key_census().await?.into_keys().collect();
    keyring.get().check_needed(&needed)?;
    let registries = registries::registries(config)?;
    // Last: a start that fails before keeps nobody waiting.
    store.hold_alone().await?;
    Ok(Deps {
        store,
        keyring: Arc::new(keyring),
        clock,
        policy: registries::policy(config, &registries),
        registries,
        metrics: Arc::new(metrics),
        installation: config.installation.id.clone(),
        tuning: registries::tuning(config),
        activity: crate::actors::activity::Activity::default(),
    })
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

/// What `/readyz` looks at. Before the set-up is done nothing of it is there.
fn readiness(backend: &Backend) -> Readiness {
    let for_registries = backend.clone();
    Readiness::default()
        .deciding("config", Passed)
        .deciding("database", Database(backend.clone()))
        .deciding("encryption_keys", Keys(backend.clone()))
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
        work.deps.store.ping().await.map_err(|error| error.to_string())
    }
}

/// Every key that rows need is at hand.
struct Keys(Backend);

#[async_trait]
impl Check for Keys {
    async fn check(&self) -> Result<(), String> {
        let work = self.0.get().map_err(|error| error.to_string())?;
        let census = work.deps.store.key_census().await.map_err(|error| error.to_string())?;
        let needed: Vec<String> = census.into_keys().collect();
        work.deps.keyring.get().check_needed(&needed).map_err(|error| error.to_string())
    }
}

/// Brings the database to this release's schema.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn migrate(config: Config) -> anyhow::Result<()> {
    let store = open_store(&config, sealer(&config)?).await?;
    let before = store.schema_version().await?;
    store.migrate().await?;
    let after = store.schema_version().await?;
    tracing::info!(before, after, "migrated");
    store.close().await;
    Ok(())
}

/// Opens the configured database for writing.
async fn open_store(
    config: &Config,
    seal: Option<Arc<dyn AuditSeal>>,
) -> anyhow::Result<Arc<dyn Store>> {
    let url = config.db.connection_url()?;
    let (url, connections) = (url.expose_secret(), config.db.max_connections);
    if url.starts_with("postgres") {
        let store = PgStore::open(url, connections).await?;
        return Ok(match seal {
            Some(seal) => Arc::new(store.with_audit_seal(seal)),
            None => Arc::new(store),
        });
    }
    let store = SqliteStore::open(url, connections).await?;
    Ok(match seal {
        Some(seal) => Arc::new(store.with_audit_seal(seal)),
        None => Arc::new(store),
    })
}

/// The keyed hash of audit rows, where `audit.key` stands beside the keys.
#[derive(Debug)]
struct Sealer(AuditKey);

impl AuditSeal for Sealer {
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        self.0.hash(&[message]).to_vec()
    }
}

fn sealer(config: &Config) -> anyhow::Result<Option<Arc<dyn AuditSeal>>> {
    let dir = &config.encryption.keys_dir;
    if !dir.join(AUDIT_KEY_FILE).exists() {
        tracing::warn!(file = AUDIT_KEY_FILE, "the audit is not sealed: there is no key for it");
        return Ok(None);
    }
    Ok(Some(Arc::new(Sealer(AuditKey::load(dir)?))))
}

/// Counts the stored values of each key, read beside a running server.
pub struct StoredCensus;

#[async_trait]
impl super::keys::KeyCensus for StoredCensus {
    async fn rows(
        &self,
        config: &Config,
    ) -> anyhow::Result<Option<std::collections::BTreeMap<String, u64>>> {
        let url = config.db.connection_url()?;
        let Some(path) = url.expose_secret().strip_prefix("sqlite://") else {
            let store = PgStore::open(url.expose_secret(), 1).await?;
            let migrated = store.schema_version().await? > 0;
            let census = if migrated { Some(store.key_census().await?) } else { None };
            store.close().await;
            return Ok(census);
        };
        if !std::path::Path::new(path).exists() {
            return Ok(None);
        }
        let store = SqliteStore::open_read_only(url.expose_secret(), 1).await?;
        let census = store.key_census().await;
        store.close().await;
        Ok(Some(census?))
    }
}
