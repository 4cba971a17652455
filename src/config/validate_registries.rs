//! The rules of `registries`: each entry, and the entries among each other.
//!
//! Pure, as `validate` is.

use std::collections::BTreeMap;

use serde_json::Value;

use super::duration::format;
use super::error::{Problem, Problems};
use super::keys::REGISTRY_KEYS;
use super::registry::{HarborLevel, RegistryConfig, RegistryKind};
use super::sections::Scheduler;
use super::urls::{Transport, check_base_url, check_url};

/// The path of an entry in messages.
pub(super) fn path_of(id: &str) -> String {
    format!("registries[{id}]")
}

/// Checks all entries.
pub(super) fn check(entries: &[RegistryConfig], scheduler: &Scheduler, problems: &mut Problems) {
    for entry in entries {
        let mut rules = Rules { at: path_of(entry.common.id.as_str()), problems };
        common(entry, scheduler, &mut rules);
        own(entry, &mut rules);
    }
    unique(entries, problems);
}

struct Rules<'a> {
    at: String,
    problems: &'a mut Problems,
}

impl Rules<'_> {
    fn must(&mut self, holds: bool, name: &str, value: impl Into<Value>, rule: impl Into<String>) {
        if holds {
            return;
        }
        if let Some(key) = REGISTRY_KEYS.iter().find(|key| key.name == name) {
            self.problems.add(Problem::registry(&self.at, key, Some(&value.into()), rule));
        }
    }

    fn url(&mut self, name: &str, url: &str, allow_http: bool) {
        if let Err(rule) = check_base_url(url, Transport::unless(allow_http)) {
            self.must(false, name, url, rule);
        }
    }
}

fn common(entry: &RegistryConfig, scheduler: &Scheduler, rules: &mut Rules<'_>) {
    let common = &entry.common;
    let host_rule = "must be a host, perhaps with a port, without a scheme and in lower case";
    rules.must(is_host(&common.host), "host", common.host.as_str(), host_rule);
    for alias in &common.aliases {
        rules.must(is_host(alias), "aliases", alias.as_str(), host_rule);
    }
    let rule =
        "must be 1 to 12 lower-case letters and digits with single separators (. _ -) inside";
    rules.must(is_prefix(&common.prefix), "prefix", common.prefix.as_str(), rule);

    let timeout = common.timeout;
    rules.must(!timeout.is_zero(), "timeout", format(timeout), "must be above 0s");
    let third = scheduler.lease / 3;
    let rule = format!(
        "must be at most {}, a third of scheduler.lease, so that no call outlives its owner",
        format(third)
    );
    rules.must(timeout <= third, "timeout", format(timeout), rule);
    let twice = timeout.saturating_mul(2);
    let rule = format!("must be at least {}, twice the timeout", format(twice));
    rules.must(common.settle_time >= twice, "settle_time", format(common.settle_time), rule);
    let count = common.max_concurrent;
    rules.must(count >= 1, "max_concurrent", count, "must be at least 1");
    let pool = common.pool;
    rules.must(pool.low <= pool.high, "pool.low", pool.low, "must not be above pool.high");
}

fn own(entry: &RegistryConfig, rules: &mut Rules<'_>) {
    let proxy = match &entry.kind {
        RegistryKind::Quay(quay) => {
            rules.url("url", &quay.url, quay.allow_http);
            let name = quay.organization.as_str();
            rules.must(!name.trim().is_empty(), "organization", name, "must not be empty");
            &quay.proxy
        }
        RegistryKind::Rhit(rhit) => {
            rules.url("url", &rhit.url, rhit.allow_http);
            rules.url("verify_url", &rhit.verify_url, rhit.allow_http);
            let path = rhit.path.as_str();
            rules.must(path.starts_with('/'), "path", path, "must begin with a slash");
            let code = rhit.partner_code.as_str();
            rules.must(!code.trim().is_empty(), "partner_code", code, "must not be empty");
            &rhit.proxy
        }
        RegistryKind::Harbor(harbor) => {
            rules.url("url", &harbor.url, harbor.allow_http);
            let needs = harbor.level == HarborLevel::Project && harbor.project.is_none();
            rules.must(!needs, "project", Value::Null, "is required with level project");
            let days = harbor.duration_days;
            let fits = days == -1 || (1..=i64::from(i32::MAX) - 1).contains(&days);
            rules.must(fits, "duration_days", days, "must be -1 (never) or from 1 to 2147483646");
            &harbor.proxy
        }
        RegistryKind::Nexus(nexus) => {
            rules.url("url", &nexus.url, nexus.allow_http);
            rules.url("verify_url", &nexus.verify_url, nexus.allow_http);
            &nexus.proxy
        }
        RegistryKind::Htpasswd(htpasswd) => {
            if let Some(url) = &htpasswd.verify_url {
                rules.url("verify_url", url, htpasswd.allow_http);
            }
            let cost = htpasswd.bcrypt_cost;
            rules.must((4..=14).contains(&cost), "bcrypt_cost", cost, "must be from 4 to 14");
            &htpasswd.proxy
        }
    };
    if let Some(proxy) = proxy
        && let Err(rule) = check_url(proxy.expose(), Transport::Any, None)
    {
        rules.must(false, "proxy", proxy.expose(), rule);
    }
}

fn unique(entries: &[RegistryConfig], problems: &mut Problems) {
    let mut hosts: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in entries {
        let id = entry.common.id.as_str();
        let own = std::iter::once(("host", entry.common.host.as_str()));
        let aliases = entry.common.aliases.iter().map(|alias| ("aliases", alias.as_str()));
        for (name, host) in own.chain(aliases) {
            let Some(other) = hosts.insert(host, id) else { continue };
            let rule = format!(
                "must be unique, registries[{other}] has it too: a pull secret holds one entry per \
                 host"
            );
            Rules { at: path_of(id), problems }.must(false, name, host, rule);
        }
    }
}

fn is_host(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_:/[]".contains(&b);
    !host.is_empty()
        && host.bytes().all(allowed)
        && !host.contains("//")
        && !host.starts_with(['/', ':'])
        && !host.ends_with(['/', ':'])
}

/// A prefix has to fit the strictest rule of names: single separators, letters or digits outside.
fn is_prefix(prefix: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = prefix.as_bytes();
    (1..=12).contains(&bytes.len())
        && bytes.iter().all(|b| alnum(*b) || b"._-".contains(b))
        && alnum(bytes[0])
        && alnum(bytes[bytes.len() - 1])
        && bytes.windows(2).all(|pair| alnum(pair[0]) || alnum(pair[1]))
}
