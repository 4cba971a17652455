//! Makes the reference page `docs/configuration.md` from the table of keys and the defaults.
//!
//! A test compares the page with this; run it with `UPDATE_DOCS=1` to write the page anew.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::keys::{Form, KEYS, REGISTRY_KEYS, RegistryKey};
use super::read::lookup;
use super::registry::{RegistryType, defaults};

const INTRO: &str = include_str!("reference_intro.md");

/// The whole page.
#[must_use]
pub fn reference_page() -> String {
    let mut page = INTRO.to_owned();
    let values = Value::Object(super::default_values());
    let mut section = "";
    for key in KEYS {
        let top = key.path.split('.').next().unwrap_or_default();
        if top != section {
            section = top;
            // Writing into a string cannot fail, here and below.
            let _ = write!(page, "\n## `{top}`\n\n{HEAD}");
        }
        let names: Vec<&str> = key.path.split('.').collect();
        let default = shown(lookup(&values, &names));
        let flag = key.flag_name().map_or_else(|| "-".to_owned(), |flag| format!("`{flag}`"));
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | `{}` | {flag} | {}{} |",
            key.path,
            key.form.name(),
            key.env(),
            key.about,
            words(key.form)
        );
    }
    let _ = write!(page, "\n## `registries`\n\n{REGISTRIES_INTRO}\n{REGISTRY_HEAD}");
    for key in REGISTRY_KEYS {
        registry_row(&mut page, key);
    }
    page
}

const HEAD: &str = "| key | type | default | environment | flag | meaning and rule |\n\
                    |---|---|---|---|---|---|\n";
const REGISTRY_HEAD: &str = "| key | of types | type | default | environment | meaning and rule |\n\
                             |---|---|---|---|---|---|\n";
const REGISTRIES_INTRO: &str = "\
A list; each entry has an `id` and a `type`. In the environment an entry is addressed by its id in
upper case, everything but letters and digits written as `_` (`<ID>` below): an entry `quay` takes
`HYPERFLEET_REGISTRIES_QUAY_URL`. The environment changes entries of the file and makes no new ones.
";

const TYPES: [RegistryType; 5] = [
    RegistryType::Quay,
    RegistryType::Rhit,
    RegistryType::Harbor,
    RegistryType::Nexus,
    RegistryType::Htpasswd,
];

fn registry_row(page: &mut String, key: &RegistryKey) {
    let types: Vec<RegistryType> = TYPES.into_iter().filter(|kind| key.is_for(*kind)).collect();
    let names = if types.len() == TYPES.len() {
        "all".to_owned()
    } else {
        types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let of_type = |kind: RegistryType| {
        let values: Map<String, Value> = defaults(kind, "<host>");
        let path: Vec<&str> = key.name.split('.').collect();
        let value = lookup(&Value::Object(values), &path).cloned();
        if value.is_none() && key.required { "required".to_owned() } else { shown(value.as_ref()) }
    };
    let mut by_value: Vec<(String, Vec<String>)> = Vec::new();
    for kind in types {
        let value = of_type(kind);
        match by_value.iter_mut().find(|(known, _)| *known == value) {
            Some((_, kinds)) => kinds.push(kind.to_string()),
            None => by_value.push((value, vec![kind.to_string()])),
        }
    }
    let default = match by_value.as_slice() {
        [(value, _)] => value.clone(),
        several => several
            .iter()
            .map(|(value, kinds)| format!("{}: {value}", kinds.join(", ")))
            .collect::<Vec<_>>()
            .join("; "),
    };
    let env = if matches!(key.name, "id" | "type") {
        "-".to_owned()
    } else {
        let name = key.name.replace('.', "_").to_uppercase();
        format!("`HYPERFLEET_REGISTRIES_<ID>_{name}`")
    };
    let _ = writeln!(
        page,
        "| `{}` | {names} | {} | {default} | {env} | {}{} |",
        key.name,
        key.form.name(),
        key.about,
        words(key.form)
    );
}

fn words(form: Form) -> String {
    match form {
        Form::Word(words) | Form::Words(words) => format!(". One of `{}`", words.join("`, `"))
            .replace(". One of", if matches!(form, Form::Words(_)) { ". Of" } else { ". One of" }),
        Form::Text
        | Form::Path
        | Form::Url
        | Form::Host
        | Form::Port
        | Form::Count
        | Form::Number
        | Form::Fraction
        | Form::Bool
        | Form::Duration
        | Form::Rate
        | Form::Burst
        | Form::Texts => String::new(),
    }
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(Value::Array(items)) if items.is_empty() => "`[]`".to_owned(),
        Some(Value::Array(items)) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("`[{}]`", items.join(", "))
        }
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => {
            format!("`{other}`")
        }
    }
}
