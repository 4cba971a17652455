//! The layers: defaults, `--dev`, the file, the environment, flags; the later one wins.
//!
//! Works on untyped values, because a layer says only what it wants changed. Reads the file, but
//! neither the process's environment nor its arguments: those are handed in.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::{ConfigError, Problem, Problems};
use super::keys::{self, Form, KEYS, REGISTRY_KEYS, env_name};

/// Names the file when `--config` does not.
const FILE_VARIABLE: &str = "HYPERFLEET_CONFIG";
/// No setting: arms failure points, for tests only.
pub const FAILPOINTS_VARIABLE: &str = "HYPERFLEET_FAILPOINTS";
/// Names a file that moves the wall clock; for tests alone.
pub const CLOCK_VARIABLE: &str = "HYPERFLEET_CLOCK_FILE";
const PREFIX: &str = "HYPERFLEET_";

/// Where the values come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `--config`.
    pub config_file: Option<PathBuf>,
    /// Values of flags, by the path of their key.
    pub flags: Vec<(String, String)>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Files that are used when they exist and none is named.
    pub search: Vec<PathBuf>,
    /// The data directory of `--dev`.
    pub dev: Option<PathBuf>,
}

impl Sources {
    /// The environment of this process and the usual places of the file.
    #[must_use]
    pub fn of_process() -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
            .collect();
        let search = ["/etc/hyperfleet/config.yaml", "./configs/config.yaml"];
        Self { env, search: search.map(PathBuf::from).to_vec(), ..Self::default() }
    }
}

/// Puts `over` on top of `base`: sections are merged, everything else is replaced.
pub(super) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                merge(base.entry(name).or_insert(Value::Null), value);
            }
        }
        // `server:` with nothing below it says nothing, it does not take the section away.
        (Value::Object(_), Value::Null) => {}
        (base, over) => *base = over,
    }
}

/// The file's values, and which file it was.
pub(super) fn read_file(sources: &Sources) -> Result<(Value, Option<PathBuf>), ConfigError> {
    let from_env = sources.env.get(FILE_VARIABLE).filter(|path| !path.is_empty());
    let named = sources.config_file.clone().or_else(|| from_env.map(PathBuf::from));
    if let Some(path) = named {
        return match fs::read_to_string(&path) {
            Ok(text) => Ok((parse_yaml(&path, &text)?, Some(path))),
            Err(source) => Err(ConfigError::Read { path, source }),
        };
    }
    for path in &sources.search {
        match fs::read_to_string(path) {
            Ok(text) => return Ok((parse_yaml(path, &text)?, Some(path.clone()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ConfigError::Read { path: path.clone(), source }),
        }
    }
    Ok((Value::Object(Map::new()), None))
}

fn parse_yaml(path: &Path, text: &str) -> Result<Value, ConfigError> {
    // No snippets: the line with the fault may hold a password. Strict booleans: `off` is a word.
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let bad = |message: String| ConfigError::Yaml { path: path.to_owned(), message };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| bad(error.to_string()))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(bad("must be a map of sections".to_owned()))
        }
    }
}

/// The environment's values outside `registries`; what is left over is told in `warnings`.
pub(super) fn read_env(sources: &Sources, warnings: &mut Vec<String>) -> Value {
    let mut values = Value::Object(Map::new());
    for (name, text) in &sources.env {
        let special = [FILE_VARIABLE, FAILPOINTS_VARIABLE, CLOCK_VARIABLE].contains(&name.as_str());
        if special || name.starts_with("HYPERFLEET_REGISTRIES_") {
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.env() == *name) else {
            if name.starts_with(PREFIX) {
                warnings.push(format!("{name} is not a known variable and has no effect"));
            }
            continue;
        };
        if matches!(key.form, Form::Port) && text.contains("://") {
            // A Service called `hyperfleet-server` makes Kubernetes inject exactly this.
            warnings.push(format!(
                "{name} looks like a variable that Kubernetes injects for a Service and has no \
                 effect"
            ));
            continue;
        }
        set(&mut values, key.path, from_text(key.form, text));
    }
    values
}

/// The flags' values.
pub(super) fn read_flags(sources: &Sources) -> Value {
    let mut values = Value::Object(Map::new());
    for (path, text) in &sources.flags {
        let form = keys::find(path).map_or(Form::Text, |key| key.form);
        set(&mut values, path, from_text(form, text));
    }
    values
}

/// Puts the environment's values for registries into their entries.
pub(super) fn apply_registry_env(
    sources: &Sources,
    entries: &mut [Value],
    warnings: &mut Vec<String>,
    problems: &mut Problems,
) {
    let ids: Vec<Option<String>> = entries.iter().map(entry_id).collect();
    for (i, id) in ids.iter().enumerate() {
        let Some(id) = id else { continue };
        let same = |other: &&String| env_name(other) == env_name(id);
        if let Some(other) = ids.iter().take(i).flatten().find(same)
            && other != id
        {
            let rule = format!(
                "has the same environment variables as registries[{other}]; make the ids differ in \
                 letters or digits"
            );
            problems.add(Problem::file(&format!("registries[{id}].id"), &rule));
        }
    }
    for (name, text) in &sources.env {
        if !name.starts_with("HYPERFLEET_REGISTRIES_") {
            continue;
        }
        let target = ids.iter().enumerate().find_map(|(i, id)| {
            let id = id.as_deref()?;
            let of_id = |key: &&keys::RegistryKey| {
                env_name(&format!("registries.{id}.{}", key.name)) == *name
            };
            let settable = |key: &&keys::RegistryKey| key.name != "id" && key.name != "type";
            REGISTRY_KEYS.iter().filter(settable).find(of_id).map(|key| (i, key))
        });
        match target {
            Some((i, key)) => set(&mut entries[i], key.name, from_text(key.form, text)),
            None => warnings
                .push(format!("{name} names no key of a configured registry and has no effect")),
        }
    }
}

/// The id of an entry of `registries`, when it has one.
pub(super) fn entry_id(entry: &Value) -> Option<String> {
    entry.get("id").and_then(Value::as_str).map(ToOwned::to_owned)
}

fn set(values: &mut Value, path: &str, value: Value) {
    let nested = path
        .rsplit('.')
        .fold(value, |inner, name| Value::Object(Map::from_iter([(name.to_owned(), inner)])));
    merge(values, nested);
}

/// Text into the value that the file would hold. What does not fit stays text, and is refused
/// with the rule of its key later.
fn from_text(form: Form, text: &str) -> Value {
    let text = text.trim();
    let as_text = || Value::String(text.to_owned());
    match form {
        Form::Texts | Form::Words(_) => text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(|item| Value::String(item.to_owned()))
            .collect(),
        Form::Port | Form::Count | Form::Burst => {
            text.parse::<u64>().map_or_else(|_| as_text(), Value::from)
        }
        Form::Number | Form::Fraction => text
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| text.parse::<f64>().map(Value::from))
            .unwrap_or_else(|_| as_text()),
        Form::Bool => text.parse::<bool>().map_or_else(|_| as_text(), Value::from),
        Form::Text
        | Form::Path
        | Form::Url
        | Form::Host
        | Form::Duration
        | Form::Rate
        | Form::Word(_) => {
            // An empty variable takes an optional value away, as `null` in the file does.
            if text.is_empty() { Value::Null } else { as_text() }
        }
    }
}
