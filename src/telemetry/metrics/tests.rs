//! Names, labels, and the page that lists them.

use super::*;

#[test]
fn every_series_carries_component_and_version() {
    let metrics = Metrics::new().unwrap();
    metrics.http_request("GET", Some("/v1/clusters/{cluster_id}"), 200, Duration::from_millis(3));
    metrics.http_request("BREW", None, 405, Duration::ZERO);
    metrics.effect("quay", "create", "created", Duration::from_millis(40));
    metrics.issued(Duration::from_secs(2));
    metrics.promoted(Duration::from_secs(2));
    metrics.dual_period(Duration::from_secs(90_000));
    metrics.revoked("old_generation", Duration::from_secs(1));
    metrics.attention.with_label_values(&["pull_secret", "overdue"]).set(1);
    metrics.rotation_ended("manual", "completed");
    metrics.panic("effect");
    metrics.breaker("quay", true);
    metrics.db("claim", Duration::from_millis(1));
    metrics.rotations.with_label_values(&["pending"]).set(2);
    metrics.pull_secrets.with_label_values(&["active"]).set(5);
    let text = metrics.encode().unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let labels = format!("component=\"credentials\",version=\"{}\"", version());
        let sorted = line.contains("component=\"credentials\"")
            && line.contains(&format!("version=\"{}\"", version()));
        assert!(sorted, "{labels}: {line}");
        assert!(
            line.starts_with("hyperfleet_credentials_") || line.starts_with("process_"),
            "{line}"
        );
    }
    for name in [
        "actors",
        "attention_items",
        "burnt_accounts",
        "commands_in_flight",
        "dual_credential_period_seconds_count",
        "effect_duration_seconds_bucket",
        "issue_duration_seconds_sum",
        "revoke_duration_seconds_sum",
        "rotation_promotion_duration_seconds_sum",
        "build_info",
        "up",
        "http_requests_total",
        "http_request_duration_seconds_bucket",
        "effects_total",
        "rotations_total",
        "rotations",
        "panics_total",
        "actor_restarts_total",
        "due_items",
        "mailbox_full_total",
        "registry_breaker_open",
        "db_duration_seconds_sum",
        "pull_secrets",
    ] {
        let start = format!("\nhyperfleet_credentials_{name}{{");
        assert!(format!("\n{text}").contains(&start), "{name}: {text}");
    }
    assert!(text.contains("method=\"other\",path=\"other\",status_code=\"405\""), "{text}");
    assert!(text.contains("process_resident_memory_bytes{"), "{text}");
}

#[test]
fn two_registries_do_not_meet() {
    let (a, b) = (Metrics::new().unwrap(), Metrics::new().unwrap());
    a.actor_restarts.inc();
    assert_eq!((a.actor_restarts.get(), b.actor_restarts.get()), (1, 0));
}

/// What the page says of a metric goes stale unless it is looked at.
#[test]
fn the_page_names_every_metric() {
    let page = include_str!("../../../docs/metrics.md");
    for name in Metrics::new().unwrap().names() {
        assert!(page.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
    }
    let named = page.split('`').skip(1).step_by(2);
    let metrics = Metrics::new().unwrap();
    for name in named.filter(|name| name.starts_with("hyperfleet_credentials_")) {
        let known = metrics.names().iter().any(|known| name.starts_with(known.as_str()));
        assert!(known, "docs/metrics.md names {name}, which there is not");
    }
}
