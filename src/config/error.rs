//! What is wrong with a configuration, so that whoever reads it can put it right at once.
//!
//! Every problem says path, value, rule, and how the value can be set.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use super::keys::{self, Form, RegistryKey, env_name};
use super::secret_url::{REDACTED, redacted};

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named file is not there or cannot be read.
    #[error(
        "{path}: the configuration file cannot be read: {source}; correct --config or \
         HYPERFLEET_CONFIG, or make the file"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not YAML.
    #[error("{path}: is not valid YAML: {message}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where and why, without the text itself.
        message: String,
    },
    /// Values break rules.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// Everything that is wrong, in the order in which it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, problem: Problem) {
        // A value that does not even have the right form is found wanting once, not twice.
        if !self.0.iter().any(|known| known.path == problem.path) {
            self.0.push(problem);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Only what concerns these sections.
    pub(super) fn of_sections(mut self, sections: &[&str]) -> Self {
        self.0.retain(|problem| {
            sections.contains(&problem.path.split('.').next().unwrap_or_default())
        });
        self
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "the configuration has {} problem{plural}", self.0.len())?;
        for problem in &self.0 {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

/// One value that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The full path, like `registries[quay].timeout`.
    pub path: String,
    /// The value, when there is one; secrets are replaced.
    pub value: Option<String>,
    /// The rule that it breaks.
    pub rule: String,
    /// How to set it.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}: {value} {}", self.path, self.rule)?,
            None => write!(f, "{}: {}", self.path, self.rule)?,
        }
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl Problem {
    /// For a key outside `registries`.
    pub(super) fn at(path: &str, value: Option<&Value>, rule: impl Into<String>) -> Self {
        let key = keys::find(path);
        let flag = key.and_then(keys::Key::flag_name).map(|flag| format!("{flag}, "));
        let hint = format!(
            "set it with {}{} or `{path}` in the file",
            flag.unwrap_or_default(),
            env_name(path)
        );
        let secret = key.is_some_and(|key| key.secret);
        let value = value.map(|value| shown(value, secret));
        Self { path: path.to_owned(), value, rule: rule.into(), hint }
    }

    /// For a key of one registry; `at` is `registries[<id>]`.
    pub(super) fn registry(
        at: &str,
        key: &RegistryKey,
        value: Option<&Value>,
        rule: impl Into<String>,
    ) -> Self {
        let url = matches!(key.form, Form::Url);
        Self {
            path: format!("{at}.{}", key.name),
            value: value.map(|value| shown(value, url)),
            rule: rule.into(),
            hint: registry_hint(at, key.name),
        }
    }

    /// For a key that does not exist.
    pub(super) fn unknown(path: &str, name: &str, known: &[&str]) -> Self {
        let near = nearest(name, known);
        let hint = near.map_or_else(
            || format!("remove it; known here: {}", known.join(", ")),
            |near| format!("did you mean `{near}`? otherwise remove it"),
        );
        Self { path: path.to_owned(), value: None, rule: "is not a known key".to_owned(), hint }
    }

    /// For a file that a key names.
    pub(super) fn file(path: &str, message: &impl ToString) -> Self {
        let (path, hint) = (path.to_owned(), String::new());
        Self { path, value: None, rule: message.to_string(), hint }
    }
}

fn registry_hint(at: &str, name: &str) -> String {
    let id = at.strip_prefix("registries[").and_then(|rest| rest.strip_suffix(']'));
    match id {
        // An entry without an id cannot be addressed by the environment.
        Some(id) if !id.starts_with('#') && name != "id" && name != "type" => format!(
            "set it with {} or `{name}` of this entry in the file",
            env_name(&format!("registries.{id}.{name}"))
        ),
        Some(_) | None => format!("set `{name}` of this entry in the file"),
    }
}

fn shown(value: &Value, secret: bool) -> String {
    match value {
        Value::String(text) if secret => format!("{:?}", redacted(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) if !secret => {
            let text = value.to_string();
            // Long enough for any honest value.
            if text.chars().count() > 120 {
                format!("{}...", text.chars().take(120).collect::<String>())
            } else {
                text
            }
        }
        Value::Array(items) if !secret => format!("a list of {}", items.len()),
        Value::Object(_) if !secret => "a section".to_owned(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => REDACTED.to_owned(),
    }
}

/// The known name that is at most two edits away.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, candidate)| candidate)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(ca != *cb)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
