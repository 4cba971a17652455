//! The rules that single values and combinations of values have to keep, registries aside.
//!
//! Pure: no file is opened here, so `config check` finds the same faults on any machine.

use std::time::Duration;

use serde_json::Value;

use super::Config;
use super::error::{Problem, Problems};
use super::read::lookup;
use super::sections::AuthMode;
use super::urls::{Transport, check_url};
use crate::window::{Window, WindowError};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Notes problems with the value that stands in the merged layers.
struct Rules<'a> {
    values: &'a Value,
    problems: &'a mut Problems,
}

impl Rules<'_> {
    fn must(&mut self, holds: bool, path: &str, rule: impl Into<String>) {
        if !holds {
            let names: Vec<&str> = path.split('.').collect();
            let value = lookup(self.values, &names)
                .filter(|value| !value.is_null() && value.as_str() != Some(""));
            self.problems.add(Problem::at(path, value, rule));
        }
    }
}

/// Checks everything outside `registries`.
pub(super) fn check(config: &Config, values: &Value, problems: &mut Problems) {
    let mut rules = Rules { values, problems };
    addresses(config, &mut rules);
    durations(config, &mut rules);
    numbers(config, &mut rules);
    rotation(config, &mut rules);
    break_glass(config, &mut rules);
    callers(config, &mut rules);
    places(config, &mut rules);
}

fn addresses(config: &Config, rules: &mut Rules<'_>) {
    let id = &config.installation.id;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if id.is_empty() {
        rules.must(false, "installation.id", "is required (`serve --dev` makes one)");
    } else {
        let fits = id.len() <= 63 && id.bytes().all(allowed);
        let rule = "must be at most 63 letters, digits, dots, dashes or underscores";
        rules.must(fits, "installation.id", rule);
    }
    for (path, host) in
        [("server.host", &config.server.host), ("metrics.host", &config.metrics.host)]
    {
        let fits = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
        rules.must(fits, path, "must be a host name or an address to listen on");
    }
    let (api, metrics) = (&config.server, &config.metrics);
    let differ = api.port != metrics.port || api.port == 0 || api.host != metrics.host;
    rules.must(differ, "metrics.port", "must not be the port of server.port");
    let tls = &config.server.tls;
    let rule = "is required, because the other file of server.tls is set";
    rules.must(tls.cert_file.is_some() || tls.key_file.is_none(), "server.tls.cert_file", rule);
    rules.must(tls.key_file.is_some() || tls.cert_file.is_none(), "server.tls.key_file", rule);
}

fn durations(config: &Config, rules: &mut Rules<'_>) {
    for (path, value) in [
        ("server.shutdown_timeout", config.server.shutdown_timeout),
        ("rotation.interval", config.rotation.interval),
        ("rotation.grace_period", config.rotation.grace_period),
        ("rotation.compromise_deadline", config.rotation.compromise_deadline),
        ("rotation.consumer_ttl", config.rotation.consumer_ttl),
        ("rotation.drift_interval", config.rotation.drift_interval),
        ("retry.initial", config.retry.initial),
        ("retry.give_up_after", config.retry.give_up_after),
        ("scheduler.tick", config.scheduler.tick),
        ("scheduler.lease", config.scheduler.lease),
        ("scheduler.sweep_interval", config.scheduler.sweep_interval),
        ("break_glass.issue_deadline", config.break_glass.issue_deadline),
        ("break_glass.probe.interval", config.break_glass.probe.interval),
        ("break_glass.probe.timeout", config.break_glass.probe.timeout),
    ] {
        rules.must(!value.is_zero(), path, "must be above 0s");
    }
    let fits = config.server.drain_delay < config.server.shutdown_timeout;
    rules.must(fits, "server.drain_delay", "must be below server.shutdown_timeout");
    for (path, value) in [
        ("server.request_wait", config.server.request_wait),
        ("break_glass.wait", config.break_glass.wait),
    ] {
        rules.must(value <= MINUTE, path, "must be at most 60s");
    }
}

fn numbers(config: &Config, rules: &mut Rules<'_>) {
    for (path, value) in [
        ("db.max_connections", config.db.max_connections),
        ("rotation.max_concurrent", config.rotation.max_concurrent),
        ("scheduler.batch", config.scheduler.batch),
        ("break_glass.probe.successes", config.break_glass.probe.successes),
    ] {
        rules.must(value >= 1, path, "must be at least 1");
    }
    for (path, value) in
        [("rotation.spread", config.rotation.spread), ("retry.jitter", config.retry.jitter)]
    {
        rules.must((0.0..=1.0).contains(&value), path, "must be a number from 0 to 1");
    }
    let factor = config.retry.factor;
    rules.must(factor.is_finite() && factor >= 1.0, "retry.factor", "must be at least 1");
}

fn rotation(config: &Config, rules: &mut Rules<'_>) {
    let rule = "must name at least one of heartbeat, registry, adapter";
    rules.must(!config.rotation.proof.is_empty(), "rotation.proof", rule);
    let window = &config.rotation.window;
    let cron = window.cron.as_deref().unwrap_or("0 0 * * *");
    if let Err(error) = Window::parse(cron, window.length) {
        let path = match error {
            WindowError::Cron | WindowError::Never => "rotation.window.cron",
            WindowError::Length => "rotation.window.length",
        };
        rules.must(false, path, error.to_string());
    }
}

fn break_glass(config: &Config, rules: &mut Rules<'_>) {
    let section = &config.break_glass;
    let life = 10 * MINUTE..=DAY;
    let rule = "must be from 10m to 24h";
    rules.must(life.contains(&section.max_expiration), "break_glass.max_expiration", rule);
    let rule = "must be from 10m to break_glass.max_expiration";
    let fits = (10 * MINUTE..=section.max_expiration).contains(&section.default_expiration);
    rules.must(fits, "break_glass.default_expiration", rule);
    rules.must(!section.group.trim().is_empty(), "break_glass.group", "must not be empty");
}

fn callers(config: &Config, rules: &mut Rules<'_>) {
    let auth = &config.auth;
    match auth.mode {
        AuthMode::Kubernetes => {
            let rule = "must not be empty while auth.mode is kubernetes";
            rules.must(!auth.kubernetes.audiences.is_empty(), "auth.kubernetes.audiences", rule);
        }
        AuthMode::Static => {
            let rule = "is required while auth.mode is static";
            rules.must(auth.r#static.tokens_file.is_some(), "auth.static.tokens_file", rule);
        }
        AuthMode::Oidc => {
            let oidc = &auth.oidc;
            let rule = "is required while auth.mode is oidc";
            rules.must(oidc.issuer.is_some(), "auth.oidc.issuer", rule);
            rules.must(oidc.jwks_url.is_some(), "auth.oidc.jwks_url", rule);
            let rule = "must not be empty while auth.mode is oidc";
            rules.must(!oidc.audiences.is_empty(), "auth.oidc.audiences", rule);
            rules.must(!oidc.role_claim.is_empty(), "auth.oidc.role_claim", "must not be empty");
        }
    }
    if let Some(url) = &auth.oidc.jwks_url
        && let Err(rule) = check_url(url, Transport::LoopbackOrTls, None)
    {
        rules.must(false, "auth.oidc.jwks_url", rule);
    }
}

fn places(config: &Config, rules: &mut Rules<'_>) {
    let url = config.db.url.expose();
    let known = ["sqlite:", "postgres://", "postgresql://"];
    let fits = config.db.url_file.is_some() || known.iter().any(|scheme| url.starts_with(scheme));
    rules.must(fits, "db.url", "must begin with sqlite:, postgres:// or postgresql://");
    if config.encryption.keys_dir.as_os_str().is_empty() {
        rules.must(false, "encryption.keys_dir", "must name a directory");
    }
    if let Some(primary) = &config.encryption.primary {
        let rule = "must be a key id: at most 64 letters, digits, dots, dashes and underscores";
        rules.must(crate::crypto::is_key_id(primary), "encryption.primary", rule);
    }
    if let Some(sink) = &config.events.sink {
        let transport = Transport::unless(config.events.allow_http);
        if let Err(rule) = check_url(sink.expose(), transport, Some("events.allow_http")) {
            rules.must(false, "events.sink", rule);
        }
    }
}

/// What can be meant as it stands, but probably is not.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let (rotation, retry) = (&config.rotation, &config.retry);
    let mut warnings = Vec::new();
    if rotation.min_overlap > rotation.grace_period {
        warnings.push(
            "rotation.min_overlap is above rotation.grace_period, so every deadline passes before \
             a rotation can end"
                .to_owned(),
        );
    }
    if retry.max < retry.initial {
        warnings.push("retry.max is below retry.initial, so every pause is retry.max".to_owned());
    }
    warnings
}
