//! Values into types, so that one run finds every fault and not only the first.
//!
//! Serde stops at the first error. Here the faulty value is noted, replaced by the default, and the
//! whole is read again until it fits; the result is used only when nothing was noted.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::error::{Problem, Problems};
use super::keys::{self, KEYS, REGISTRY_KEYS};

/// More faults than anybody reads.
const MOST_FAULTS: usize = 100;

/// Reads `values`; `at` is empty for the whole configuration or the path of a registry's entry.
pub(super) fn read_collecting<T: DeserializeOwned>(
    at: &str,
    values: Map<String, Value>,
    fallback: &Map<String, Value>,
    problems: &mut Problems,
) -> Option<T> {
    let mut values = Value::Object(values);
    let mut last = None;
    for _ in 0..MOST_FAULTS {
        let error = match serde_path_to_error::deserialize(values.clone()) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let path = keys_of(error.path());
        note(at, &path, &values, &error.inner().to_string(), problems);
        if path.is_empty() || last.as_ref() == Some(&path) {
            return None;
        }
        replace(&mut values, &path, fallback);
        last = Some(path);
    }
    None
}

/// The path without list positions: a list is right or wrong as a whole.
fn keys_of(path: &serde_path_to_error::Path) -> Vec<String> {
    let mut names = Vec::new();
    for segment in path {
        match segment {
            Segment::Map { key } => names.push(key.clone()),
            Segment::Enum { variant } => names.push(variant.clone()),
            Segment::Seq { .. } | Segment::Unknown => break,
        }
    }
    names
}

fn note(at: &str, path: &[String], values: &Value, message: &str, problems: &mut Problems) {
    let value = lookup(values, path);
    let dotted = path.join(".");
    if at.is_empty() {
        let rule = keys::find(&dotted)
            .map(|key| key.form.rule())
            .or_else(|| section_rule(&dotted))
            .unwrap_or_else(|| message.to_owned());
        problems.add(Problem::at(&dotted, value, rule));
        return;
    }
    if let Some(key) = REGISTRY_KEYS.iter().find(|key| key.name == dotted) {
        let rule = if key.name == "id" { message.to_owned() } else { key.form.rule() };
        problems.add(Problem::registry(at, key, value, rule));
    } else {
        problems.add(Problem::file(&format!("{at}.{dotted}"), &message));
    }
}

/// What a section must be, when something else stands in its place.
fn section_rule(path: &str) -> Option<String> {
    let prefix = format!("{path}.");
    let inside: Vec<&str> = KEYS.iter().filter_map(|key| key.path.strip_prefix(&prefix)).collect();
    (!inside.is_empty()).then(|| format!("must be a section with keys like {}", inside[0]))
}

/// The value at a path.
pub(super) fn lookup<'a>(values: &'a Value, path: &[impl AsRef<str>]) -> Option<&'a Value> {
    path.iter().try_fold(values, |value, name| value.get(name.as_ref()))
}

fn replace(values: &mut Value, path: &[String], fallback: &Map<String, Value>) {
    let Some((first, rest)) = path.split_first() else { return };
    let default = fallback
        .get(first)
        .and_then(|value| lookup(value, rest))
        .cloned()
        // A required key has no default; any text will do, for the result is thrown away.
        .unwrap_or_else(|| Value::String("missing".to_owned()));
    let mut place = values;
    for name in path {
        let Some(next) = place.get_mut(name) else { return };
        place = next;
    }
    *place = default;
}

/// Notes and takes out what no key is called.
pub(super) fn remove_unknown(values: &mut Value, problems: &mut Problems) {
    let Value::Object(map) = values else { return };
    remove_unknown_in(map, "", problems);
}

fn remove_unknown_in(map: &mut Map<String, Value>, prefix: &str, problems: &mut Problems) {
    let names: Vec<String> = map.keys().cloned().collect();
    for name in names {
        let path = format!("{prefix}{name}");
        let section = format!("{path}.");
        if KEYS.iter().any(|key| key.path == path) {
            continue;
        }
        if KEYS.iter().any(|key| key.path.starts_with(&section)) {
            if let Some(Value::Object(inside)) = map.get_mut(&name) {
                remove_unknown_in(inside, &section, problems);
            }
            continue;
        }
        let mut known: Vec<&str> = KEYS
            .iter()
            .filter_map(|key| key.path.strip_prefix(prefix))
            .map(|rest| rest.split_once('.').map_or(rest, |(first, _)| first))
            .collect();
        known.dedup();
        if prefix.is_empty() {
            known.push("registries");
        }
        problems.add(Problem::unknown(&path, &name, &known));
        map.remove(&name);
    }
}
