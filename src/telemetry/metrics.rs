//! The metrics of the process, in a registry of its own: no globals, so tests run side by side.
//!
//! Labels are bounded by construction: words of ours, route templates and configured registries.
//! Never a cluster, an account, a caller or a text from outside.

use std::collections::HashMap;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use super::{COMPONENT, commit, version};

const HTTP_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const DB_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const OTHER: &str = "other";

/// All metrics. Cloning is cheap and shares them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    http_requests: IntCounterVec,
    http_duration: HistogramVec,
    effects: IntCounterVec,
    rotations_ended: IntCounterVec,
    panics: IntCounterVec,
    db_duration: HistogramVec,
    breaker_open: IntGaugeVec,
    /// 1 while the service works, 0 from the shutdown on.
    pub up: IntGauge,
    /// Running rotations by `phase`.
    pub rotations: IntGaugeVec,
    /// Records by `state`.
    pub pull_secrets: IntGaugeVec,
    /// Actors that were made anew after a panic.
    pub actor_restarts: IntCounter,
    /// Items whose time has come and that nobody has claimed yet.
    pub due_items: IntGauge,
    /// Commands that were turned away because a mailbox was full.
    pub mailbox_full: IntCounter,
}

/// Registers metrics and remembers the first failure.
struct Maker {
    registry: Registry,
}

impl Maker {
    fn add<C: Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let made = made?;
        self.registry.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(opts(name, help)))
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(opts(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::with_opts(opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(opts(name, help), labels))
    }

    fn times(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> prometheus::Result<HistogramVec> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, labels))
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("hyperfleet").subsystem(COMPONENT)
}

impl Metrics {
    /// Makes and registers all metrics.
    ///
    /// # Errors
    /// When a name is taken twice or not legal, which is a fault of this file.
    pub fn new() -> prometheus::Result<Self> {
        let labels = HashMap::from([
            ("component".to_owned(), COMPONENT.to_owned()),
            ("version".to_owned(), version().to_owned()),
        ]);
        let registry = Registry::new_custom(None, Some(labels))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let make = Maker { registry: registry.clone() };
        let build = make.gauges(
            "build_info",
            "What is running. rust_version stands where other components have go_version.",
            &["commit", "rust_version"],
        )?;
        build.with_label_values(&[commit(), env!("CARGO_PKG_RUST_VERSION")]).set(1);
        let up = make.gauge("up", "1 while the service works.")?;
        up.set(1);
        Ok(Self {
            up,
            http_requests: make.counters(
                "http_requests_total",
                "Answered requests.",
                &["method", "path", "status_code"],
            )?,
            http_duration: make.times(
                "http_request_duration_seconds",
                "Time from a request's head to the end of its answer.",
                &["method", "path"],
                HTTP_BUCKETS,
            )?,
            effects: make.counters(
                "effects_total",
                "Calls to registries, by what came of them.",
                &["registry", "call", "outcome"],
            )?,
            rotations_ended: make.counters(
                "rotations_total",
                "Ended rotations.",
                &["reason", "end"],
            )?,
            rotations: make.gauges("rotations", "Running rotations.", &["phase"])?,
            panics: make.counters("panics_total", "Caught panics.", &["where"])?,
            actor_restarts: make
                .counter("actor_restarts_total", "Actors that were made anew after a panic.")?,
            due_items: make.gauge("due_items", "Items whose time has come.")?,
            mailbox_full: make.counter(
                "mailbox_full_total",
                "Commands turned away because a mailbox was full.",
            )?,
            breaker_open: make.gauges(
                "registry_breaker_open",
                "1 while a registry is not called because it keeps failing.",
                &["registry"],
            )?,
            db_duration: make.times(
                "db_duration_seconds",
                "Time of database operations.",
                &["op"],
                DB_BUCKETS,
            )?,
            pull_secrets: make.gauges("pull_secrets", "Pull secrets.", &["state"])?,
            registry,
        })
    }

    /// One answered request. `route` is the template of the route that matched, none where no route
    /// did: a path from outside is never a label.
    pub fn http_request(&self, method: &str, route: Option<&str>, status: u16, took: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER);
        let route = route.unwrap_or(OTHER);
        self.http_requests.with_label_values(&[method, route, &status.to_string()]).inc();
        self.http_duration.with_label_values(&[method, route]).observe(took.as_secs_f64());
    }

    /// One call to a configured registry.
    pub fn effect(&self, registry: &str, call: &'static str, outcome: &'static str) {
        self.effects.with_label_values(&[registry, call, outcome]).inc();
    }

    /// One ended rotation.
    pub fn rotation_ended(&self, reason: &'static str, end: &'static str) {
        self.rotations_ended.with_label_values(&[reason, end]).inc();
    }

    /// One caught panic.
    pub fn panic(&self, place: &'static str) {
        self.panics.with_label_values(&[place]).inc();
    }

    /// Whether a registry's breaker is open.
    pub fn breaker(&self, registry: &str, open: bool) {
        self.breaker_open.with_label_values(&[registry]).set(i64::from(open));
    }

    /// One database operation.
    pub fn db(&self, op: &'static str, took: Duration) {
        self.db_duration.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    /// The registry, for parts that have metrics of their own.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Everything in Prometheus' text form.
    ///
    /// # Errors
    /// When two parts registered contradicting metrics.
    pub fn encode(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_carries_component_and_version() {
        let metrics = Metrics::new().unwrap();
        metrics.http_request(
            "GET",
            Some("/v1/clusters/{cluster_id}"),
            200,
            Duration::from_millis(3),
        );
        metrics.http_request("BREW", None, 405, Duration::ZERO);
        metrics.effect("quay", "create", "created");
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
}
