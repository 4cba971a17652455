//! Every key of the configuration: its form, its flag and what it means.
//!
//! One table, from which the environment names, the hints in messages and the reference page are
//! made, so that they cannot disagree. A test compares it with the typed sections.

use strum::VariantNames;

use super::registry::{HarborLevel, QuayUsage, RegistryType};
use super::sections::{
    Approval, AuditReads, AuthMode, LogFormat, LogLevel, LogOutput, OnDeadline, OnDrift, Proof,
    SignerKind,
};

/// The form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Text,
    Path,
    Url,
    Host,
    Port,
    Count,
    Number,
    Fraction,
    Bool,
    Duration,
    Rate,
    Burst,
    Texts,
    Word(&'static [&'static str]),
    Words(&'static [&'static str]),
}

impl Form {
    /// The rule as a message says it.
    pub(super) fn rule(self) -> String {
        match self {
            Self::Text => "must be text (in quotes where it looks like a number)".to_owned(),
            Self::Path => "must be the path of a file or directory".to_owned(),
            Self::Url => "must be a URL".to_owned(),
            Self::Host => "must be a host name or an address".to_owned(),
            Self::Port => "must be a port number from 0 to 65535".to_owned(),
            Self::Count => "must be a whole number from 0 to 4294967295".to_owned(),
            Self::Number => "must be a number".to_owned(),
            Self::Fraction => "must be a number from 0 to 1".to_owned(),
            Self::Bool => "must be true or false".to_owned(),
            Self::Duration => super::duration::ParseDurationError.to_string(),
            Self::Rate => super::rate::ParseRateError.to_string(),
            Self::Burst => "must be a whole number of at least 1, or \"off\"".to_owned(),
            Self::Texts => "must be a list of texts".to_owned(),
            Self::Word(words) => format!("must be one of {}", words.join(", ")),
            Self::Words(words) => format!("must be a list of {}", words.join(", ")),
        }
    }

    /// The word for the form in the reference page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Path => "path",
            Self::Url => "URL",
            Self::Host => "host",
            Self::Port => "port",
            Self::Count => "whole number",
            Self::Number | Self::Fraction => "number",
            Self::Bool => "true or false",
            Self::Duration => "duration",
            Self::Rate => "rate",
            Self::Burst => "whole number or `off`",
            Self::Texts => "list of texts",
            Self::Word(_) => "word",
            Self::Words(_) => "list of words",
        }
    }
}

/// One key outside `registries`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) form: Form,
    /// The flag's name without dashes in front.
    pub(super) flag: Option<&'static str>,
    pub(super) secret: bool,
    pub(super) about: &'static str,
}

const fn key(path: &'static str, form: Form, about: &'static str) -> Key {
    Key { path, form, flag: None, secret: false, about }
}

impl Key {
    /// With a flag `--section-field`.
    const fn with_flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// Its value may hold a secret: never shown, and never a flag.
    const fn is_secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The environment variable.
    pub(super) fn env(&self) -> String {
        env_name(self.path)
    }

    /// The flag as it is typed, if it has one.
    pub(super) fn flag_name(&self) -> Option<String> {
        self.flag.map(|flag| format!("--{flag}"))
    }
}

/// A flag that sets a key, for the command line to offer.
#[derive(Debug, Clone, Copy)]
pub struct FlagSpec {
    /// The key's path, as [`super::Sources::flags`] wants it.
    pub path: &'static str,
    /// The flag's name without dashes in front.
    pub name: &'static str,
    /// What the key means.
    pub about: &'static str,
}

/// Every flag there is. None of them takes a secret.
pub fn flags() -> impl Iterator<Item = FlagSpec> {
    KEYS.iter()
        .filter_map(|key| key.flag.map(|name| FlagSpec { path: key.path, name, about: key.about }))
}

/// One key of an entry of `registries`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegistryKey {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// Types that have it; empty: all.
    pub(super) types: &'static [RegistryType],
    pub(super) common: bool,
    pub(super) required: bool,
    pub(super) about: &'static str,
}

impl RegistryKey {
    pub(super) fn is_for(&self, kind: RegistryType) -> bool {
        self.types.is_empty() || self.types.contains(&kind)
    }

    /// The part before a dot.
    pub(super) fn top(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(top, _)| top)
    }
}

const fn all(name: &'static str, form: Form, about: &'static str) -> RegistryKey {
    RegistryKey { name, form, types: &[], common: true, required: false, about }
}

const fn of(
    types: &'static [RegistryType],
    name: &'static str,
    form: Form,
    about: &'static str,
) -> RegistryKey {
    RegistryKey { name, form, types, common: false, required: false, about }
}

impl RegistryKey {
    const fn must(mut self) -> Self {
        self.required = true;
        self
    }
}

/// `rotation.max_concurrent` as an environment variable.
pub(super) fn env_name(path: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = path.chars().map(upper).collect();
    format!("HYPERFLEET_{name}")
}

/// The key of a path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

use Form::{
    Bool, Burst, Count, Duration, Fraction, Host, Number, Path, Port, Rate, Text, Texts, Url, Word,
    Words,
};
use RegistryType::{Harbor, Htpasswd, Nexus, Quay, Rhit};

/// Every key outside `registries`, in the order of the sections.
pub(super) const KEYS: &[Key] = &[
    key("installation.id", Text, "Names this installation; must agree with the database's. Required, except with `--dev`, which makes one").with_flag("installation-id"),
    key("server.host", Host, "Address of the API and the probes").with_flag("server-host"),
    key("server.port", Port, "Port of the API and the probes; 0 picks a free one").with_flag("server-port"),
    key("server.request_wait", Duration, "How long a request waits for the work it started before it answers `202`; at most 60s").with_flag("server-request-wait"),
    key("server.drain_delay", Duration, "How long a shutdown still serves requests after `/readyz` says no, so that load balancers notice; below `shutdown_timeout`").with_flag("server-drain-delay"),
    key("server.shutdown_timeout", Duration, "How long a shutdown may take in all; above 0s").with_flag("server-shutdown-timeout"),
    key("server.tls.cert_file", Path, "Certificate chain of the API, PEM; only together with `key_file`"),
    key("server.tls.key_file", Path, "Its key, PEM; a secret's file mode"),
    key("metrics.host", Host, "Address of `/metrics`").with_flag("metrics-host"),
    key("metrics.port", Port, "Port of `/metrics`; 0 picks a free one").with_flag("metrics-port"),
    key("db.url", Url, "`sqlite://<file>` or `postgres://<user>@<host>/<database>?sslmode=verify-full`; SQLite serves one process, a second one is refused; PostgreSQL serves any number; may hold a password, so prefer `url_file`").is_secret(),
    key("db.url_file", Path, "A file that holds the URL; wins over `url`"),
    key("db.max_connections", Count, "Size of the connection pool; at least 1 (PostgreSQL: at least 2 are used)").with_flag("db-max-connections"),
    key("encryption.keys_dir", Path, "Directory of `<key id>.key` files, 32 bytes in base64 each, and `audit.key`").with_flag("encryption-keys-dir"),
    key("encryption.primary", Text, "Id of the key that seals; without it the file `primary` in `keys_dir` names it, re-read as it changes").with_flag("encryption-primary"),
    key("auth.mode", Word(AuthMode::VARIANTS), "Who says who a caller is").with_flag("auth-mode"),
    key("auth.kubernetes.audiences", Texts, "Audiences of which a token must have one; not empty in mode `kubernetes`"),
    key("auth.static.tokens_file", Path, "Lines of `name role sha256:<hex>`; required in mode `static`; a secret's file mode"),
    key("auth.oidc.issuer", Text, "Issuer, compared exactly; required in mode `oidc`"),
    key("auth.oidc.jwks_url", Url, "Where the issuer's keys are; required in mode `oidc`"),
    key("auth.oidc.audiences", Texts, "Audiences of which a token must have one; not empty in mode `oidc`"),
    key("auth.oidc.role_claim", Text, "Claim that holds the roles"),
    key("limits.requests", Rate, "Requests per caller, or `off`"),
    key("limits.burst", Burst, "How many requests may come at once, or `off`"),
    key("limits.rotations", Rate, "Rotations a caller may start, or `off`"),
    key("rotation.interval", Duration, "How often each cluster is rotated; above 0s"),
    key("rotation.min_overlap", Duration, "How long both generations work at least"),
    key("rotation.grace_period", Duration, "How long proof of adoption is waited for; above 0s"),
    key("rotation.on_deadline", Word(OnDeadline::VARIANTS), "What happens then without proof"),
    key("rotation.compromise_deadline", Duration, "The same wait after a compromise; above 0s"),
    key("rotation.quiet", Duration, "How long the old generation must not have been seen in use; 0s is allowed"),
    key("rotation.consumer_ttl", Duration, "How long a consumer's last word counts; above 0s"),
    key("rotation.proof", Words(Proof::VARIANTS), "Which kinds of evidence count; at least one"),
    key("rotation.max_concurrent", Count, "How many rotations do work at once; at least 1"),
    key("rotation.spread", Fraction, "Over which last part of the interval due times are spread; 0 to 1"),
    key("rotation.window.cron", Text, "When scheduled rotations may begin: a cron pattern of five fields (minute, hour, day, month, weekday) in UTC; without it at any time. A cluster may have a window of its own"),
    key("rotation.window.length", Duration, "How long the window stays open; 1m to 7d"),
    key("rotation.drift_interval", Duration, "How often each served account is verified again; above 0s"),
    key("rotation.on_drift", Word(OnDrift::VARIANTS), "What happens when one is dead: only shown as `drifted`, or made anew"),
    key("retry.initial", Duration, "First pause between tries; above 0s"),
    key("retry.factor", Number, "By what the pause grows; at least 1"),
    key("retry.max", Duration, "Longest pause"),
    key("retry.jitter", Fraction, "Which part of a pause is random; 0 to 1"),
    key("retry.give_up_after", Duration, "When lasting trouble of one account becomes `failed`; above 0s"),
    key("scheduler.tick", Duration, "How often the database is asked what is due; above 0s"),
    key("scheduler.batch", Count, "How many due items are claimed at once; at least 1"),
    key("scheduler.lease", Duration, "How long a silent replica keeps its credentials; above 0s"),
    key("scheduler.sweep_interval", Duration, "How often a registry's accounts are compared with ours; above 0s"),
    key("scheduler.sweep_safety_age", Duration, "How long an unknown account of ours is left alone after it was first seen"),
    key("cleanup.denied_after", Duration, "When a `denied` record is removed"),
    key("cleanup.failed_after", Duration, "When a `failed` record is removed"),
    key("cleanup.history_after", Duration, "When an ended rotation is removed"),
    key("cleanup.audit_after", Duration, "When audit rows are removed"),
    key("cleanup.tombstone", Duration, "For how long a POST after a DELETE is refused; 0s: not at all"),
    key("audit.reads", Word(AuditReads::VARIANTS), "How reads of secrets enter the audit"),
    key("events.sink", Url, "Where CloudEvents go; without it nowhere").is_secret(),
    key("events.secret_file", Path, "File of the secret that signs events; a secret's file mode"),
    key("events.allow_http", Bool, "Whether the sink may be plain `http` beyond loopback"),
    key("break_glass.default_expiration", Duration, "Life of a credential when the request does not say; 10m to `max_expiration`"),
    key("break_glass.max_expiration", Duration, "Longest life of a credential; 10m to 24h"),
    key("break_glass.approval", Word(Approval::VARIANTS), "Whether a second person has to agree"),
    key("break_glass.signer", Word(SignerKind::VARIANTS), "Who signs the certificates"),
    key("break_glass.group", Text, "Organisation (group) in the certificates"),
    key("break_glass.wait", Duration, "How long a request waits for `issued`; at most 60s"),
    key("break_glass.clusters_file", Path, "Which cluster has which API servers; a cluster that it does not name has no break-glass"),
    key("break_glass.issue_deadline", Duration, "When an unanswered signing request has failed; above 0s"),
    key("break_glass.probe.interval", Duration, "How often API servers are asked; above 0s"),
    key("break_glass.probe.timeout", Duration, "How long one question may take; above 0s"),
    key("break_glass.probe.successes", Count, "How many equal answers in a row count; at least 1"),
    key("log.level", Word(LogLevel::VARIANTS), "From which level on").with_flag("log-level"),
    key("log.format", Word(LogFormat::VARIANTS), "In which form").with_flag("log-format"),
    key("log.output", Word(LogOutput::VARIANTS), "Where to").with_flag("log-output"),
];

/// Every key of an entry of `registries`.
pub(super) const REGISTRY_KEYS: &[RegistryKey] = &[
    all("id", Text, "Name in the API, metrics and logs; unique").must(),
    all("type", Word(RegistryType::VARIANTS), "What kind of registry it is").must(),
    all("host", Host, "Host in the pull secret; unique among all hosts and aliases").must(),
    all("aliases", Texts, "More hosts that get the same entry"),
    all("email", Text, "E-mail in the pull secret's entries"),
    all("enabled", Bool, "Whether new pull secrets get an account here"),
    all(
        "prefix",
        Text,
        "Begins every account name: 1 to 12 lower-case letters and digits with single separators",
    ),
    all(
        "timeout",
        Duration,
        "How long one call may take; above 0s, at most a third of `scheduler.lease`",
    ),
    all("max_concurrent", Count, "How many calls run at once; at least 1"),
    all("rate", Rate, "How many calls begin per time at most, or `off`"),
    all(
        "settle_time",
        Duration,
        "How long a lost create may still appear; at least twice the timeout",
    ),
    all(
        "token_ttl",
        Duration,
        "How long tokens live on that the registry issued before a revocation",
    ),
    all(
        "pool.low",
        Count,
        "Accounts made in advance: filled up when fewer are left; not above `pool.high`",
    ),
    all("pool.high", Count, "Filled up to so many; 0 switches the pool off"),
    of(&[Quay, Rhit, Harbor, Nexus], "url", Url, "Base of the API").must(),
    of(&[Quay], "organization", Text, "Organisation that owns the robot accounts").must(),
    of(&[Quay], "team", Text, "Team that each robot joins after it was made"),
    of(&[Quay], "repositories", Texts, "Repositories that each robot may read"),
    of(&[Quay], "token_file", Path, "OAuth token of the service; a secret's file mode").must(),
    of(&[Quay], "service", Text, "Service name in `/v2/auth`; without it the host"),
    of(&[Quay], "usage", Word(QuayUsage::VARIANTS), "Where evidence of use comes from"),
    of(&[Rhit], "path", Text, "Path of service accounts; `{partner_code}` is replaced"),
    of(&[Rhit], "partner_code", Text, "Who the service is there"),
    of(&[Rhit], "cert_file", Path, "Client certificate, PEM").must(),
    of(&[Rhit], "key_file", Path, "Its key, PEM; a secret's file mode").must(),
    of(&[Harbor, Nexus], "username", Text, "Account of the service").must(),
    of(&[Harbor, Nexus], "password_file", Path, "Its password; a secret's file mode").must(),
    of(&[Harbor], "level", Word(HarborLevel::VARIANTS), "Over what a robot reaches"),
    of(&[Harbor], "project", Text, "The project; required with level `project`"),
    of(&[Harbor], "duration_days", Number, "Expiry at the registry in days; -1: never"),
    of(&[Nexus], "role", Text, "Role that each user gets").must(),
    of(&[Htpasswd], "file", Path, "The file that the registry reads").must(),
    of(&[Htpasswd], "bcrypt_cost", Count, "Cost of each hash; 4 to 14"),
    of(
        &[Rhit, Nexus, Htpasswd],
        "verify_url",
        Url,
        "Registry that accounts are verified at; htpasswd without it: the hash in the file is checked",
    ),
    of(&[], "ca_file", Path, "More trusted roots, PEM"),
    of(&[], "proxy", Url, "Proxy for the calls; may hold a password"),
    of(&[], "allow_http", Bool, "Whether plain `http` may be spoken beyond loopback"),
];
