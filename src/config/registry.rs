//! One configured registry: what all have in common, and what each type needs.
//!
//! Values only: nothing here calls a registry. An entry is read in three steps: defaults of its
//! type below it, its keys parted into the common ones and the type's, each part read strictly, so
//! that an error names the exact key.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::{Display, EnumString, VariantNames};

use super::duration;
use super::error::{Problem, Problems};
use super::keys::{REGISTRY_KEYS, RegistryKey};
use super::rate::Rate;
use super::read::read_collecting;
use super::secret_url::SecretUrl;
use crate::ids::RegistryId;

/// The kinds of registries there are.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RegistryType {
    /// Quay: robot accounts of an organisation.
    Quay,
    /// registry.redhat.io: partner service accounts.
    Rhit,
    /// Harbor: robot accounts.
    Harbor,
    /// Nexus 3: local users.
    Nexus,
    /// A file read by a CNCF Distribution registry.
    Htpasswd,
}

/// One registry.
#[derive(Debug, Clone, Serialize)]
pub struct RegistryConfig {
    /// What all types have in common.
    #[serde(flatten)]
    pub common: RegistryCommon,
    /// The type, and its own keys.
    #[serde(flatten)]
    pub kind: RegistryKind,
}

/// What all types have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryCommon {
    /// The name in our API, metrics and logs.
    pub id: RegistryId,
    /// The host in the pull secret.
    pub host: String,
    /// More hosts with the same entry.
    pub aliases: Vec<String>,
    /// The e-mail in the pull secret's entries.
    pub email: Option<String>,
    /// Whether new pull secrets get an account here.
    pub enabled: bool,
    /// Begins every account name.
    pub prefix: String,
    /// How long one call may take.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How many calls run at once.
    pub max_concurrent: u32,
    /// How many calls begin per time.
    pub rate: Rate,
    /// How long a lost create may still appear.
    #[serde(with = "duration")]
    pub settle_time: Duration,
    /// How long tokens live on that the registry issued before a revocation.
    #[serde(with = "duration")]
    pub token_ttl: Duration,
    /// Accounts made in advance.
    pub pool: Pool,
}

/// Accounts made in advance: filled to `high` when there are fewer than `low`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Filled when fewer are left.
    pub low: u32,
    /// Filled up to so many; zero switches the pool off.
    pub high: u32,
}

/// The type of a registry and its own keys.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RegistryKind {
    /// Quay.
    Quay(QuayConfig),
    /// registry.redhat.io.
    Rhit(RhitConfig),
    /// Harbor.
    Harbor(HarborConfig),
    /// Nexus 3.
    Nexus(NexusConfig),
    /// A file.
    Htpasswd(HtpasswdConfig),
}

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }
    };
}

/// Where evidence of use comes from at Quay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QuayUsage {
    /// The organisation's log.
    Log,
    /// The robot's `last_accessed`.
    LastAccessed,
    /// Nowhere.
    None,
}

/// Over what a Harbor robot reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HarborLevel {
    /// One project.
    Project,
    /// All of them.
    System,
}

kind!(
    /// Quay.
    QuayConfig {
        /// The API's base.
        url: String,
        /// The organisation that owns the robots.
        organization: String,
        /// A team that each robot joins.
        team: Option<String>,
        /// Repositories that each robot may read.
        repositories: Vec<String>,
        /// The service's own OAuth token.
        token_file: PathBuf,
        /// The service name in `/v2/auth`; none: the host.
        service: Option<String>,
        /// Where evidence of use comes from.
        usage: QuayUsage,
        /// More trusted roots, PEM.
        ca_file: Option<PathBuf>,
        /// A proxy.
        proxy: Option<SecretUrl>,
        /// Whether plain `http` may be spoken beyond loopback.
        allow_http: bool,
    }
);

kind!(
    /// registry.redhat.io.
    RhitConfig {
        /// The partner API's base.
        url: String,
        /// The path, with `{partner_code}` in it.
        path: String,
        /// Who we are there.
        partner_code: String,
        /// The client certificate, PEM.
        cert_file: PathBuf,
        /// Its key, PEM.
        key_file: PathBuf,
        /// The registry that accounts are verified at.
        verify_url: String,
        /// More trusted roots, PEM.
        ca_file: Option<PathBuf>,
        /// A proxy.
        proxy: Option<SecretUrl>,
        /// Whether plain `http` may be spoken beyond loopback.
        allow_http: bool,
    }
);

kind!(
    /// Harbor.
    HarborConfig {
        /// The API's base.
        url: String,
        /// The service's own account.
        username: String,
        /// Its password.
        password_file: PathBuf,
        /// Over what a robot reaches.
        level: HarborLevel,
        /// The project, for level `project`.
        project: Option<String>,
        /// The registry's own expiry in days; -1: never.
        duration_days: i64,
        /// More trusted roots, PEM.
        ca_file: Option<PathBuf>,
        /// A proxy.
        proxy: Option<SecretUrl>,
        /// Whether plain `http` may be spoken beyond loopback.
        allow_http: bool,
    }
);

kind!(
    /// Nexus 3.
    NexusConfig {
        /// The API's base.
        url: String,
        /// The service's own account.
        username: String,
        /// Its password.
        password_file: PathBuf,
        /// The role that each user gets.
        role: String,
        /// The Docker connector that accounts are verified at.
        verify_url: String,
        /// More trusted roots, PEM.
        ca_file: Option<PathBuf>,
        /// A proxy.
        proxy: Option<SecretUrl>,
        /// Whether plain `http` may be spoken beyond loopback.
        allow_http: bool,
    }
);

kind!(
    /// A file.
    HtpasswdConfig {
        /// The file.
        file: PathBuf,
        /// The registry that accounts are verified at; none: the hash in the file is checked.
        verify_url: Option<String>,
        /// The cost of each hash.
        bcrypt_cost: u32,
        /// More trusted roots, PEM.
        ca_file: Option<PathBuf>,
        /// A proxy.
        proxy: Option<SecretUrl>,
        /// Whether plain `http` may be spoken beyond loopback.
        allow_http: bool,
    }
);

impl RegistryKind {
    /// The type's name.
    #[must_use]
    pub const fn registry_type(&self) -> RegistryType {
        match self {
            Self::Quay(_) => RegistryType::Quay,
            Self::Rhit(_) => RegistryType::Rhit,
            Self::Harbor(_) => RegistryType::Harbor,
            Self::Nexus(_) => RegistryType::Nexus,
            Self::Htpasswd(_) => RegistryType::Htpasswd,
        }
    }
}

/// The defaults of a type; `host` fills the addresses that usually are the host's own.
pub(super) fn defaults(kind: RegistryType, host: &str) -> Map<String, Value> {
    let https = format!("https://{host}");
    let own = match kind {
        RegistryType::Quay => json!({
            "url": https, "team": null, "repositories": [], "service": null, "usage": "log",
            "token_ttl": "1h",
        }),
        RegistryType::Rhit => json!({
            "path": "/management/v1/partners/{partner_code}/service-accounts",
            "partner_code": "hyperfleet", "verify_url": https,
        }),
        RegistryType::Harbor => json!({
            "url": https, "level": "project", "project": null, "duration_days": -1,
            "token_ttl": "31m",
        }),
        RegistryType::Nexus => json!({"verify_url": https}),
        RegistryType::Htpasswd => json!({
            "verify_url": null, "bcrypt_cost": 5, "timeout": "2s", "settle_time": "5s",
            "rate": "off",
        }),
    };
    let mut all = json!({
        "aliases": [], "email": null, "enabled": true, "prefix": "hyp", "timeout": "10s",
        "max_concurrent": 8, "rate": "60/1m", "settle_time": "10m", "token_ttl": "0s",
        "pool": {"low": 0, "high": 0}, "ca_file": null, "proxy": null, "allow_http": false,
    });
    super::layers::merge(&mut all, own);
    match all {
        Value::Object(map) => map,
        // `json!` of a map is a map; there is nothing else to return.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// Reads one entry of `registries`; `at` is its path for messages.
pub(super) fn read_entry(
    at: &str,
    entry: &Map<String, Value>,
    problems: &mut Problems,
) -> Option<RegistryConfig> {
    let before = problems.len();
    let kind = read_type(at, entry, problems)?;
    let host = entry.get("host").and_then(Value::as_str).unwrap_or_default();
    let mut merged = Value::Object(defaults(kind, host));
    super::layers::merge(&mut merged, Value::Object(entry.clone()));
    let Value::Object(mut own) = merged else { return None };
    own.remove("type");

    let keys: Vec<&RegistryKey> = REGISTRY_KEYS
        .iter()
        // The type has been read already.
        .filter(|key| key.is_for(kind) && key.name != "type")
        .collect();
    for key in keys.iter().filter(|key| key.required) {
        if own.get(key.name).is_none_or(Value::is_null) {
            own.remove(key.name);
            problems.add(Problem::registry(at, key, None, "is required".to_owned()));
        }
    }
    for name in own.keys().filter(|name| !keys.iter().any(|key| key.top() == name.as_str())) {
        let known: Vec<&str> = keys.iter().map(|key| key.top()).collect();
        problems.add(Problem::unknown(&format!("{at}.{name}"), name, &known));
    }
    if problems.len() > before {
        // Still look at the keys that are there, so that one start shows every fault.
        own.retain(|name, _| keys.iter().any(|key| key.top() == name.as_str()));
        for key in keys.iter().filter(|key| key.required) {
            // Of the right form, only so that reading goes on; the result is thrown away.
            own.entry(key.name).or_insert_with(|| Value::String("missing".to_owned()));
        }
    }
    let is_common = |name: &str| keys.iter().any(|k| k.common && k.top() == name);
    let (common, own): (Map<_, _>, Map<_, _>) =
        own.into_iter().partition(|(name, _)| is_common(name));
    let fallback = defaults(kind, host);
    let common = read_collecting(at, common, &fallback, problems);
    let kind = match kind {
        RegistryType::Quay => read_collecting(at, own, &fallback, problems).map(RegistryKind::Quay),
        RegistryType::Rhit => read_collecting(at, own, &fallback, problems).map(RegistryKind::Rhit),
        RegistryType::Harbor => {
            read_collecting(at, own, &fallback, problems).map(RegistryKind::Harbor)
        }
        RegistryType::Nexus => {
            read_collecting(at, own, &fallback, problems).map(RegistryKind::Nexus)
        }
        RegistryType::Htpasswd => {
            read_collecting(at, own, &fallback, problems).map(RegistryKind::Htpasswd)
        }
    };
    Some(RegistryConfig { common: common?, kind: kind? })
}

fn read_type(
    at: &str,
    entry: &Map<String, Value>,
    problems: &mut Problems,
) -> Option<RegistryType> {
    let given = entry.get("type");
    let kind = given.and_then(Value::as_str).and_then(|text| text.parse().ok());
    if kind.is_none() {
        let rule = format!("must be one of {}", RegistryType::VARIANTS.join(", "));
        let key = REGISTRY_KEYS.iter().find(|key| key.name == "type")?;
        problems.add(Problem::registry(at, key, given, rule));
    }
    kind
}
