//! From the configuration to what the actors use: the machine's rules, the registries and their lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::deps::{ConfiguredRegistry, Tuning};
use crate::config::{self, Config, Proof, RegistryConfig, RegistryKind};
use crate::ids::RegistryId;
use crate::registries::Registry;
use crate::registries::htpasswd::{Htpasswd, HtpasswdError, HtpasswdSettings};
use crate::registries::lane::{BreakerSettings, Lane, LaneSettings};
use crate::registries::rate::{Rate, RateError};
use crate::state::pull_secret::{Backoff, EvidenceSource, OnDeadline, Policy, RegistryPolicy};

/// A registry that cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// This type has no implementation yet.
    #[error("registries.{0}: type {1} is not available yet; only htpasswd is")]
    Type(RegistryId, &'static str),
    /// The address for logins.
    #[error("registries.{0}.verify_url: {1}")]
    VerifyUrl(RegistryId, String),
    /// The rate.
    #[error("registries.{0}.rate: {1}")]
    Rate(RegistryId, RateError),
    /// The HTTP client could not be made.
    #[error("registries.{0}: the HTTP client cannot be made: {1}")]
    Client(RegistryId, reqwest::Error),
    /// The file.
    #[error("registries.{0}.file: {1}")]
    Htpasswd(RegistryId, HtpasswdError),
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
            let parse = |url: &str| {
                reqwest::Url::parse(url)
                    .map_err(|error| SetupError::VerifyUrl(id(), error.to_string()))
            };
            let verify_url = own.verify_url.as_ref().map(|url| parse(url.as_str())).transpose()?;
            let client = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .build()
                .map_err(|error| SetupError::Client(id(), error))?;
            let settings = HtpasswdSettings {
                file: own.file.clone(),
                verify_url,
                bcrypt_cost: own.bcrypt_cost,
            };
            let htpasswd = Htpasswd::new(settings, client)
                .map_err(|error| SetupError::Htpasswd(id(), error))?;
            Ok(Arc::new(htpasswd))
        }
        RegistryKind::Quay(_) => Err(SetupError::Type(id(), "quay")),
        RegistryKind::Rhit(_) => Err(SetupError::Type(id(), "rhit")),
        RegistryKind::Harbor(_) => Err(SetupError::Type(id(), "harbor")),
        RegistryKind::Nexus(_) => Err(SetupError::Type(id(), "nexus")),
    }
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
        lease: config.scheduler.lease,
        audit_after: config.cleanup.audit_after,
        ..Tuning::default()
    }
}
