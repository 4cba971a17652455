//! From the configuration to what the actors use: the machine's rules, the registries and their lanes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, Proxy, Url};
use secrecy::ExposeSecret;

use super::break_glass::fleet;
use super::deps::{ConfiguredRegistry, Tuning};
use crate::config::{self, Config, Proof, QuayUsage, RegistryConfig, RegistryKind, SecretUrl};
use crate::ids::RegistryId;
use crate::registries::Registry;
use crate::registries::htpasswd::{Htpasswd, HtpasswdSettings};
use crate::registries::lane::{BreakerSettings, Lane, LaneSettings};
use crate::registries::quay::{Quay, QuaySettings, UsageSource};
use crate::registries::rate::{Rate, RateError};
use crate::state::pull_secret::{Backoff, EvidenceSource, OnDeadline, Policy, RegistryPolicy};
use crate::window::Window;

/// A registry that cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// This type has no implementation yet.
    #[error("registries.{0}: type {1} is not available yet; htpasswd and quay are")]
    Type(RegistryId, &'static str),
    /// An address.
    #[error("registries.{0}.{1}: {2}")]
    Address(RegistryId, &'static str, String),
    /// The rate.
    #[error("registries.{0}.rate: {1}")]
    Rate(RegistryId, RateError),
    /// The trusted roots.
    #[error("registries.{0}.ca_file: {path}: {2}", path = .1.display())]
    CaFile(RegistryId, PathBuf, String),
    /// The HTTP client could not be made.
    #[error("registries.{0}: the HTTP client cannot be made: {1}")]
    Client(RegistryId, reqwest::Error),
    /// A setting of the type's own.
    #[error("registries.{0}: {1}")]
    Settings(RegistryId, String),
}

/// The registries of a configuration.
///
/// # Errors
/// [`SetupError`], which names the key.
pub fn registries(config: &Config) -> Result<BTreeMap<RegistryId, ConfiguredRegistry>, SetupError> {
    let build = |entry: &RegistryConfig| Ok((entry.common.id.clone(), configured(entry)?));
    config.registries.iter().map(build).collect()
}

fn configured(entry: &RegistryConfig) -> Result<ConfiguredRegistry, SetupError> {
    let common = &entry.common;
    let id = || common.id.clone();
    let rate: Rate =
        common.rate.to_string().parse().map_err(|error| SetupError::Rate(id(), error))?;
    let settings = LaneSettings {
        max_concurrent: usize::try_from(common.max_concurrent).unwrap_or(usize::MAX),
        rate,
        breaker: BreakerSettings::default(),
    };
    Ok(ConfiguredRegistry {
        registry: registry(entry)?,
        lane: Lane::new(settings),
        host: common.host.clone(),
        aliases: common.aliases.clone(),
        email: common.email.clone(),
        timeout: common.timeout,
    })
}

fn registry(entry: &RegistryConfig) -> Result<Arc<dyn Registry>, SetupError> {
    let id = || entry.common.id.clone();
    match &entry.kind {
        RegistryKind::Htpasswd(own) => {
            let verify_url = own.verify_url.as_deref().map(|url| address(entry, "verify_url", url));
            let settings = HtpasswdSettings {
                file: own.file.clone(),
                verify_url: verify_url.transpose()?,
                bcrypt_cost: own.bcrypt_cost,
            };
            let client = client(entry, own.ca_file.as_deref(), own.proxy.as_ref())?;
            let htpasswd = Htpasswd::new(settings, client)
                .map_err(|error| SetupError::Settings(id(), error.to_string()))?;
            Ok(Arc::new(htpasswd))
        }
        RegistryKind::Quay(own) => {
            let settings = QuaySettings {
                url: address(entry, "url", &own.url)?,
                organization: own.organization.clone(),
                team: own.team.clone(),
                repositories: own.repositories.clone(),
                token_file: own.token_file.clone(),
                service: own.service.clone().or_else(|| Some(entry.common.host.clone())),
                usage: match own.usage {
                    QuayUsage::Log => UsageSource::Log,
                    QuayUsage::LastAccessed => UsageSource::LastAccessed,
                    QuayUsage::None => UsageSource::None,
                },
                token_ttl: entry.common.token_ttl,
            };
            let client = client(entry, own.ca_file.as_deref(), own.proxy.as_ref())?;
            let quay = Quay::new(settings, client)
                .map_err(|error| SetupError::Settings(id(), error.to_string()))?;
            Ok(Arc::new(quay))
        }
        RegistryKind::Rhit(_) => Err(SetupError::Type(id(), "rhit")),
        RegistryKind::Harbor(_) => Err(SetupError::Type(id(), "harbor")),
        RegistryKind::Nexus(_) => Err(SetupError::Type(id(), "nexus")),
    }
}

fn address(entry: &RegistryConfig, key: &'static str, text: &str) -> Result<Url, SetupError> {
    Url::parse(text)
        .map_err(|error| SetupError::Address(entry.common.id.clone(), key, error.to_string()))
}

/// One client per registry. Redirects are never followed: they would carry credentials elsewhere.
fn client(
    entry: &RegistryConfig,
    ca_file: Option<&Path>,
    proxy: Option<&SecretUrl>,
) -> Result<Client, SetupError> {
    let id = || entry.common.id.clone();
    let made = |error| SetupError::Client(id(), error);
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("hyperfleet-credentials/", env!("CARGO_PKG_VERSION")))
        // Below nginx's 75s: a connection that closes while a create is sent makes its fate unknown.
        .pool_idle_timeout(Duration::from_secs(50))
        // Only what is configured, never what the environment happens to say.
        .no_proxy();
    if let Some(path) = ca_file {
        let pem = std::fs::read(path)
            .map_err(|error| SetupError::CaFile(id(), path.to_owned(), error.to_string()))?;
        let roots = Certificate::from_pem_bundle(&pem)
            .map_err(|error| SetupError::CaFile(id(), path.to_owned(), error.to_string()))?;
        for root in roots {
            builder = builder.add_root_certificate(root);
        }
    }
    if let Some(proxy) = proxy {
        builder = builder.proxy(Proxy::all(proxy.secret().expose_secret()).map_err(made)?);
    }
    builder.build().map_err(made)
}

/// The machine's rules.
#[must_use]
pub fn policy(config: &Config, registries: &BTreeMap<RegistryId, ConfiguredRegistry>) -> Policy {
    let rotation = &config.rotation;
    let rules = |entry: &RegistryConfig| {
        let id = entry.common.id.clone();
        let own_secret = registries
            .get(&id)
            .is_some_and(|configured| configured.registry.capabilities().own_secret);
        let rules = RegistryPolicy {
            enabled: entry.common.enabled,
            prefix: entry.common.prefix.clone(),
            timeout: entry.common.timeout,
            settle_time: entry.common.settle_time,
            own_secret,
        };
        (id, rules)
    };
    Policy {
        interval: (rotation.interval > Duration::ZERO).then_some(rotation.interval),
        spread: rotation.spread,
        // The configuration was checked: a pattern that is one is a window.
        window: rotation
            .window
            .cron
            .as_deref()
            .and_then(|cron| Window::parse(cron, rotation.window.length).ok()),
        drift_interval: Some(rotation.drift_interval),
        reissue: match rotation.on_drift {
            config::OnDrift::Report => false,
            config::OnDrift::Reissue => true,
        },
        min_overlap: rotation.min_overlap,
        grace_period: rotation.grace_period,
        on_deadline: match rotation.on_deadline {
            config::OnDeadline::Hold => OnDeadline::Hold,
            config::OnDeadline::Revoke => OnDeadline::Revoke,
            config::OnDeadline::Rollback => OnDeadline::Rollback,
        },
        compromise_deadline: rotation.compromise_deadline,
        quiet: rotation.quiet,
        consumer_ttl: rotation.consumer_ttl,
        proof: rotation.proof.iter().map(source).collect(),
        retry: Backoff {
            initial: config.retry.initial,
            factor: config.retry.factor,
            max: config.retry.max,
            jitter: config.retry.jitter,
        },
        give_up_after: config.retry.give_up_after,
        denied_after: config.cleanup.denied_after,
        failed_after: config.cleanup.failed_after,
        history_after: config.cleanup.history_after,
        registries: config.registries.iter().map(rules).collect(),
    }
}

const fn source(proof: &Proof) -> EvidenceSource {
    match proof {
        Proof::Heartbeat => EvidenceSource::Heartbeat,
        Proof::Registry => EvidenceSource::Registry,
        Proof::Adapter => EvidenceSource::Adapter,
    }
}

/// Sizes and pauses of the actors.
#[must_use]
pub fn tuning(config: &Config) -> Tuning {
    Tuning {
        tick: config.scheduler.tick,
        batch: config.scheduler.batch,
        max_rotations: config.rotation.max_concurrent,
        lease: config.scheduler.lease,
        sweep_interval: config.scheduler.sweep_interval,
        sweep_safety_age: config.scheduler.sweep_safety_age,
        audit_after: config.cleanup.audit_after,
        stuck_break_glass: fleet::policy(config).stuck_after(),
        ..Tuning::default()
    }
}
