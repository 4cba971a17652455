//! The metrics page of the real program: well-formed, documented, and without anything from outside in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::support::service::{Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// One series: its name, its labels and its value.
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text format strictly; what it does not understand is a fault of the page.
fn parse(page: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    assert!(page.ends_with('\n'), "the last line has no end");
    let (mut types, mut samples) = (BTreeMap::new(), Vec::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let sample = sample(line);
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                sample.name.strip_suffix(end).filter(|name| types.contains_key(*name))
            });
            let family = family.unwrap_or(&sample.name);
            assert!(types.contains_key(family), "no type before {line}");
            samples.push(sample);
        }
    }
    (types, samples)
}

fn sample(line: &str) -> Sample {
    let (name, rest) = line.split_once('{').expect(line);
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(legal), "{line}");
    let (inside, value) = rest.rsplit_once("} ").expect(line);
    let mut labels = BTreeMap::new();
    let mut left = inside;
    while !left.is_empty() {
        let (label, rest) = left.split_once("=\"").expect(line);
        let end = rest.find('"').expect(line);
        assert!(!rest[..end].contains('\\'), "{line}");
        assert!(labels.insert(label.to_owned(), rest[..end].to_owned()).is_none(), "{line}");
        left = rest[end + 1..].trim_start_matches(',');
    }
    Sample { name: name.to_owned(), labels, value: value.parse().expect(line) }
}

#[tokio::test]
async fn the_page_is_well_formed_documented_and_anonymous() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    let auth = service.post(PATH, json!({})).await.auth("localhost:5000");
    let started = service.post(&format!("{PATH}/rotations"), json!({})).await;
    let rotation = started.header("location").to_owned();
    let in_phase = |phase: &'static str| {
        move |answer: &crate::support::service::Answer| answer.body["progress"]["phase"] == phase
    };
    service.until(&rotation, in_phase("dual_credential_period")).await;
    let new = service.get(PATH).await.auth("localhost:5000");
    assert_ne!(new, auth);
    service.heartbeat("cls-1", &new, json!({})).await;
    service.until(&rotation, in_phase("completed")).await;
    service.get("/nowhere/cls-1").await;
    assert_eq!(service.delete(PATH).await.status, 204);

    let page = service.metrics_page().await;
    let (types, samples) = parse(&page);
    let documented = include_str!("../../docs/metrics.md");
    for name in types.keys() {
        assert!(documented.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
    }
    assert!(!page.contains("cls-1") && !page.contains("rot-"), "{page}");
    let mut values: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for sample in &samples {
        assert_eq!(sample.labels["component"], "credentials", "{}", sample.name);
        assert!(sample.labels.contains_key("version"), "{}", sample.name);
        for (label, value) in &sample.labels {
            values.entry((&sample.name, label)).or_default().insert(value);
        }
    }
    assert!(values.values().all(|values| values.len() < 100));

    let sum = |name: &str, wanted: &[(&str, &str)]| -> f64 {
        let name = format!("hyperfleet_credentials_{name}");
        let fits = |sample: &&Sample| {
            sample.name == name
                && wanted.iter().all(|(label, value)| sample.labels[*label] == *value)
        };
        samples.iter().filter(fits).map(|sample| sample.value).sum()
    };
    let create = [("registry", "local"), ("call", "create"), ("outcome", "created")];
    for (name, labels, value) in [
        ("up", &[][..], 1.0),
        ("build_info", &[], 1.0),
        ("issue_duration_seconds_count", &[], 1.0),
        ("rotation_promotion_duration_seconds_count", &[], 1.0),
        ("dual_credential_period_seconds_count", &[], 1.0),
        ("revoke_duration_seconds_count", &[("what", "old_generation")], 1.0),
        ("revoke_duration_seconds_count", &[("what", "pull_secret")], 1.0),
        ("rotations_total", &[("reason", "manual"), ("end", "completed")], 1.0),
        ("effects_total", &create, 2.0),
        ("effect_duration_seconds_count", &[("call", "create")], 2.0),
        ("commands_in_flight", &[], 0.0),
        ("actors", &[], 1.0),
        ("panics_total", &[], 0.0),
        ("http_requests_total", &[("path", "other"), ("status_code", "404")], 1.0),
        ("attention_items", &[("credential", "pull_secret"), ("kind", "overdue")], 0.0),
        ("attention_items", &[("credential", "break_glass"), ("kind", "stuck")], 0.0),
        ("registry_breaker_open", &[("registry", "local")], 0.0),
    ] {
        assert!((sum(name, labels) - value).abs() < 0.5, "{name} {labels:?}:\n{page}");
    }
    for op in ["commit", "load", "described", "due", "presented", "trouble_counts"] {
        assert!(sum("db_duration_seconds_count", &[("op", op)]) >= 1.0, "{op}");
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        assert!(types.contains_key(name), "{name}");
    }
}
