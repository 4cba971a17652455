//! The configuration: flags over environment over file over defaults, checked before anything runs.
//!
//! Knows names, forms and rules of values. Must not know who uses them: nothing here opens a
//! database, calls a registry or listens. See `docs/configuration.md` for the reference page, which
//! is made from the table in `keys`.

mod clusters;
mod dev;
mod duration;
mod error;
mod files;
mod keys;
mod layers;
mod rate;
mod read;
mod reference;
mod registry;
mod secret_url;
mod sections;
mod tokens;
mod urls;
mod validate;
mod validate_registries;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use clusters::{ClusterEntry, Clusters, ClustersError, ClustersFile, ClustersProblem};
pub use dev::{PrepareError, Prepared, prepare_dev};
pub use duration::format as format_duration;
pub use error::{ConfigError, Problem, Problems};
pub use files::ReadSecretError;
pub use keys::{FlagSpec, flags};
pub use layers::{CLOCK_VARIABLE, FAILPOINTS_VARIABLE, Sources};
pub use rate::{Burst, ParseRateError, Rate};
pub use reference::reference_page;
pub use registry::{
    HarborConfig, HarborLevel, HtpasswdConfig, NexusConfig, Pool, QuayConfig, QuayUsage,
    RegistryCommon, RegistryConfig, RegistryKind, RegistryType, RhitConfig,
};
pub use secret_url::{REDACTED, SecretUrl};
pub use sections::{
    Approval, Audit, AuditReads, Auth, AuthMode, BreakGlass, Cleanup, Db, Encryption, Events,
    Installation, KubernetesAuth, Limits, Log, LogFormat, LogLevel, LogOutput, Metrics, OidcAuth,
    OnDeadline, OnDrift, Probe, Proof, Retry, Rotation, Scheduler, Server, ServerTls, SignerKind,
    StaticAuth,
};
pub use tokens::{Role, TokenEntry, TokensError, TokensFile};

/// Everything that can be configured. `Debug` and `Serialize` show no secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which installation this is.
    pub installation: Installation,
    /// The API's listener.
    pub server: Server,
    /// The metrics' listener.
    pub metrics: Metrics,
    /// The database.
    pub db: Db,
    /// Keys of sealed values.
    pub encryption: Encryption,
    /// Who may call.
    pub auth: Auth,
    /// Limits per caller.
    pub limits: Limits,
    /// Rotations.
    pub rotation: Rotation,
    /// Repeating of calls to registries.
    pub retry: Retry,
    /// Background work.
    pub scheduler: Scheduler,
    /// What is forgotten, and when.
    pub cleanup: Cleanup,
    /// The audit.
    pub audit: Audit,
    /// Events for others.
    pub events: Events,
    /// Break-glass credentials.
    pub break_glass: BreakGlass,
    /// Logging.
    pub log: Log,
    /// The registries; read apart, because each type has keys of its own.
    #[serde(skip_deserializing)]
    pub registries: Vec<RegistryConfig>,
}

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// What has no effect and probably was meant to have one.
    pub warnings: Vec<String>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

impl Config {
    /// Merges all layers and checks the result.
    ///
    /// # Errors
    /// When a named file cannot be read, or with every value that breaks a rule.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
        let (mut loaded, problems) = Self::read(sources)?;
        problems.into_result()?;
        loaded.warnings.extend(validate::warnings(&loaded.config));
        loaded.warnings.extend(files::warnings(&loaded.config));
        Ok(loaded)
    }

    /// The same for a command that needs a few sections only: faults elsewhere do not matter, so
    /// that keys can be made before the rest is written.
    ///
    /// # Errors
    /// When a named file cannot be read, or with every value of these sections that breaks a rule.
    pub fn load_sections(sources: &Sources, sections: &[&str]) -> Result<Self, ConfigError> {
        let (loaded, problems) = Self::read(sources)?;
        problems.of_sections(sections).into_result()?;
        Ok(loaded.config)
    }

    fn read(sources: &Sources) -> Result<(Loaded, Problems), ConfigError> {
        let mut warnings = Vec::new();
        let mut problems = Problems::default();
        let defaults = default_values();
        let mut values = Value::Object(defaults.clone());
        if let Some(data_dir) = &sources.dev {
            layers::merge(&mut values, dev::layer(data_dir));
        }
        let (from_file, file) = layers::read_file(sources)?;
        layers::merge(&mut values, from_file);
        layers::merge(&mut values, layers::read_env(sources, &mut warnings));
        layers::merge(&mut values, layers::read_flags(sources));

        let entries = values.as_object_mut().and_then(|map| map.remove("registries"));
        read::remove_unknown(&mut values, &mut problems);
        let sections = values.as_object().cloned().unwrap_or_default();
        let config: Option<Self> = read::read_collecting("", sections, &defaults, &mut problems);
        let mut config = config.unwrap_or_default();
        config.registries = read_registries(entries, sources, &mut warnings, &mut problems);
        validate::check(&config, &values, &mut problems);
        validate_registries::check(&config.registries, &config.scheduler, &mut problems);
        Ok((Loaded { config, warnings, file }, problems))
    }

    /// The configuration of `serve --dev` with nothing else said.
    ///
    /// # Errors
    /// Never in practice; the defaults keep the rules.
    pub fn dev(data_dir: &Path) -> Result<Self, ConfigError> {
        let sources = Sources { dev: Some(data_dir.to_owned()), ..Sources::default() };
        Self::load(&sources).map(|loaded| loaded.config)
    }

    /// The merged configuration as YAML, secrets replaced by [`REDACTED`].
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Writing plain data into a string cannot fail; if it did, an empty page is honest.
        serde_saphyr::to_string(self).unwrap_or_default()
    }

    /// The registry of an id.
    #[must_use]
    pub fn registry(&self, id: &crate::ids::RegistryId) -> Option<&RegistryConfig> {
        self.registries.iter().find(|registry| registry.common.id == *id)
    }
}

/// The defaults as untyped values, without registries.
fn default_values() -> Map<String, Value> {
    let mut values = match serde_json::to_value(Config::default()) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    };
    values.remove("registries");
    values
}

fn read_registries(
    entries: Option<Value>,
    sources: &Sources,
    warnings: &mut Vec<String>,
    problems: &mut Problems,
) -> Vec<RegistryConfig> {
    let mut entries = match entries {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            problems.add(Problem::file("registries", &"must be a list, each with id and type"));
            Vec::new()
        }
    };
    layers::apply_registry_env(sources, &mut entries, warnings, problems);
    let mut read = Vec::new();
    let mut ids = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let id = layers::entry_id(entry);
        let at = validate_registries::path_of(&id.clone().unwrap_or_else(|| format!("#{}", i + 1)));
        let Value::Object(map) = entry else {
            problems.add(Problem::file(&at, &"must be a map with id, type and more"));
            continue;
        };
        if let Some(id) = id {
            if ids.contains(&id) {
                let rule = "must be unique, another entry has this id too";
                problems.add(Problem::file(&format!("{at}.id"), &rule));
                continue;
            }
            ids.push(id);
        }
        read.extend(registry::read_entry(&at, map, problems));
    }
    read
}

#[cfg(test)]
mod tests;
