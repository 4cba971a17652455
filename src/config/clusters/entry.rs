//! One entry of the clusters file: its form, its rules, and the place for the cluster's id.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::{ClusterEntry, ClustersProblem};
use crate::ids::ClusterId;

const PLACE: &str = "{cluster_id}";
/// Stands in for an id while a template is checked; as good as any.
const SAMPLE: &str = "sample";
/// Above this nobody lists single API servers.
const MOST_ENDPOINTS: usize = 32;

/// The text as a map of entries; the error says where and why. An empty file names no cluster.
pub(super) fn read_yaml(text: &str) -> Result<BTreeMap<String, Value>, String> {
    // No snippets: they are long. Strict booleans: a cluster may be called `no`.
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let values: Option<BTreeMap<String, Value>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(values.unwrap_or_default())
}

/// An entry as written: each value may hold `{cluster_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    server: String,
    ca_file: String,
    #[serde(default)]
    endpoints: Vec<String>,
    base_client_ca_file: Option<String>,
    #[serde(default)]
    bundle_only: bool,
    namespace: Option<String>,
}

impl Template {
    /// Reads and checks an entry; what is wrong is added to `problems`.
    pub(super) fn read(
        name: &str,
        value: Value,
        problems: &mut Vec<ClustersProblem>,
    ) -> Option<Self> {
        let template: Self = match serde_path_to_error::deserialize(value) {
            Ok(template) => template,
            Err(error) => {
                let key = error.path().to_string();
                let path = if key == "." { name.to_owned() } else { format!("{name}.{key}") };
                problems.push(ClustersProblem { path, rule: error.inner().to_string() });
                return None;
            }
        };
        let before = problems.len();
        template.check(name, problems);
        (problems.len() == before).then_some(template)
    }

    /// The entry of one cluster.
    pub(super) fn of(&self, id: &ClusterId) -> ClusterEntry {
        self.filled(id.as_str())
    }

    fn filled(&self, id: &str) -> ClusterEntry {
        let fill = |text: &String| text.replace(PLACE, id);
        ClusterEntry {
            server: fill(&self.server),
            ca_file: PathBuf::from(fill(&self.ca_file)),
            endpoints: self.endpoints.iter().map(fill).collect(),
            base_client_ca_file: self.base_client_ca_file.as_ref().map(fill).map(PathBuf::from),
            bundle_only: self.bundle_only,
            namespace: self.namespace.as_ref().map(fill),
        }
    }

    fn check(&self, name: &str, problems: &mut Vec<ClustersProblem>) {
        let mut must = |key: &str, rule: Result<(), String>| {
            if let Err(rule) = rule {
                problems.push(ClustersProblem { path: format!("{name}.{key}"), rule });
            }
        };
        let filled = self.filled(SAMPLE);
        must("server", https(&filled.server));
        must("ca_file", file(&self.ca_file));
        if let Some(path) = &self.base_client_ca_file {
            must("base_client_ca_file", file(path));
        }
        if let Some(namespace) = &filled.namespace {
            // A namespace is a DNS label, as a cluster's id is.
            let rule = namespace.parse::<ClusterId>().map(drop);
            must("namespace", rule.map_err(|error| error.to_string()));
        }
        if filled.endpoints.len() > MOST_ENDPOINTS {
            must("endpoints", Err(format!("must be at most {MOST_ENDPOINTS}")));
        }
        for (i, endpoint) in filled.endpoints.iter().enumerate() {
            let key = format!("endpoints[{i}]");
            must(&key, https(endpoint));
            if filled.endpoints.iter().take(i).any(|earlier| earlier == endpoint) {
                must(&key, Err("must not be listed twice".to_owned()));
            }
        }
    }
}

/// The address of an API server: `https`, and nothing but the way there.
fn https(text: &str) -> Result<(), String> {
    let rule = || "must be an https address".to_owned();
    let url = Url::parse(text).map_err(|_| rule())?;
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(rule());
    }
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if plain {
        placed(text)
    } else {
        Err("must not hold a user, a password, a query or a fragment".to_owned())
    }
}

fn file(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("must name a file".to_owned());
    }
    placed(&text.replace(PLACE, SAMPLE))
}

/// A misspelt placeholder would name the same thing for every cluster.
fn placed(filled: &str) -> Result<(), String> {
    if filled.contains(['{', '}']) {
        Err(format!("must hold no other placeholder than {PLACE}"))
    } else {
        Ok(())
    }
}
