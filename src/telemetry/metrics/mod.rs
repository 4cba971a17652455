//! The metrics of the process, in a registry of its own: no globals, so tests run side by side.
//!
//! Labels are bounded by construction: words of ours, route templates and configured registries.
//! Never a cluster, an account, a caller or a text from outside.

mod make;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};

use self::make::Maker;
use super::{COMPONENT, commit, version};

const HTTP_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const DB_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// A call to a registry: a file next door takes milliseconds, a busy service half a minute.
const CALL_BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Work that takes seconds when all is well and a day before it is given up.
const WORK_BUCKETS: &[f64] =
    &[0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// Waiting for a cluster: from an emergency's seconds over the usual day to two weeks.
const PERIOD_BUCKETS: &[f64] = &[
    10.0,
    60.0,
    600.0,
    3600.0,
    14_400.0,
    43_200.0,
    86_400.0,
    90_000.0,
    129_600.0,
    172_800.0,
    345_600.0,
    604_800.0,
    1_209_600.0,
];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const OTHER: &str = "other";

/// All metrics. Cloning is cheap and shares them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    http_requests: IntCounterVec,
    http_duration: HistogramVec,
    effects: IntCounterVec,
    effect_duration: HistogramVec,
    issue_duration: Histogram,
    promotion_duration: Histogram,
    dual_period: Histogram,
    revoke_duration: HistogramVec,
    rotations_ended: IntCounterVec,
    panics: IntCounterVec,
    db_duration: HistogramVec,
    breaker_open: IntGaugeVec,
    campaigns: IntCounterVec,
    campaign_clusters: IntCounterVec,
    sweeps: IntCounterVec,
    sweep_deletions: IntCounterVec,
    sweep_accounts: IntGaugeVec,
    sweep_finished: IntGaugeVec,
    /// 1 while a restored database waits for its acknowledgement.
    pub restored: IntGauge,
    /// 1 while the service works, 0 from the shutdown on.
    pub up: IntGauge,
    /// Running rotations by `phase`.
    pub rotations: IntGaugeVec,
    /// Records by `state`.
    pub pull_secrets: IntGaugeVec,
    break_glass_outcomes: IntCounterVec,
    break_glass_issue: Histogram,
    break_glass_revoke: HistogramVec,
    /// Break-glass credentials by state.
    pub break_glass_credentials: IntGaugeVec,
    /// Break-glass work that does not get on.
    pub break_glass_stuck: IntGauge,
    /// Actors that were made anew after a panic.
    pub actor_restarts: IntCounter,
    /// Items whose time has come and that nobody has claimed yet.
    pub due_items: IntGauge,
    /// Commands that were turned away because a mailbox was full.
    pub mailbox_full: IntCounter,
    /// Commands that were sent to an actor and are not answered yet.
    pub commands_in_flight: IntGauge,
    /// Actors in memory.
    pub actors: IntGauge,
    /// What needs a person, by `kind`.
    pub attention: IntGaugeVec,
    /// Accounts whose name is spoilt and that are not certainly gone yet.
    pub burnt_accounts: IntGauge,
    /// Replicas that live, this one included.
    pub replicas_live: IntGauge,
    /// Credentials that this replica took over from another one.
    pub takeovers: IntCounter,
    /// Credentials whose work this replica does.
    pub owned_credentials: IntGauge,
    /// 1 while this replica begins no call because it cannot say that it lives.
    pub fenced: IntGauge,
    /// 1 while the wall clock is not believed.
    pub clock_doubted: IntGauge,
    names: Arc<[String]>,
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
        let mut make = Maker { registry: registry.clone(), names: Vec::new() };
        make.register(ProcessCollector::for_self())?;
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
            effect_duration: make.times(
                "effect_duration_seconds",
                "Time of calls to registries.",
                &["registry", "call"],
                CALL_BUCKETS,
            )?,
            issue_duration: make.time(
                "issue_duration_seconds",
                "Time from the request for a pull secret until it is handed out.",
                WORK_BUCKETS,
            )?,
            promotion_duration: make.time(
                "rotation_promotion_duration_seconds",
                "Time from the request for a rotation until its verified new generation is served.",
                WORK_BUCKETS,
            )?,
            dual_period: make.time(
                "dual_credential_period_seconds",
                "Time in which two generations were valid, until the old one's deletion was decided.",
                PERIOD_BUCKETS,
            )?,
            revoke_duration: make.times(
                "revoke_duration_seconds",
                "Time from the decision to delete until every registry said that it is gone.",
                &["what"],
                WORK_BUCKETS,
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
            commands_in_flight: make.gauge(
                "commands_in_flight",
                "Commands that wait for their actor or are being carried out.",
            )?,
            actors: make.gauge("actors", "Clusters whose actor is in memory.")?,
            attention: make.gauges("attention_items", "What needs a person.", &["credential", "kind"])?,
            burnt_accounts: make.gauge(
                "burnt_accounts",
                "Accounts whose create was lost and that are not certainly gone yet.",
            )?,
            campaigns: make.counters(
                "campaigns_total",
                "What happened to campaigns of rotations.",
                &["event"],
            )?,
            campaign_clusters: make.counters(
                "campaign_clusters_total",
                "Clusters of campaigns that came to a result.",
                &["status"],
            )?,
            replicas_live: make.gauge("replicas_live", "Replicas that live, as this one sees it.")?,
            takeovers: make.counter(
                "takeovers_total",
                "Credentials that this replica took over from another one.",
            )?,
            owned_credentials: make
                .gauge("owned_credentials", "Credentials whose work this replica does.")?,
            fenced: make.gauge(
                "replica_fenced",
                "1 while this replica begins no call because it cannot say that it lives.",
            )?,
            clock_doubted: make.gauge(
                "clock_doubted",
                "1 while the wall clock is not believed because it jumped.",
            )?,
            breaker_open: make.gauges(
                "registry_breaker_open",
                "1 while a registry is not called because it keeps failing.",
                &["registry"],
            )?,
            sweeps: make.counters(
                "sweeps_total",
                "Comparisons of a registry's accounts with ours.",
                &["registry", "outcome"],
            )?,
            sweep_deletions: make.counters(
                "sweep_deletions_total",
                "Calls that delete accounts which no row wants.",
                &["registry", "outcome"],
            )?,
            sweep_accounts: make.gauges(
                "sweep_accounts",
                "Accounts that the last comparison found.",
                &["registry", "kind"],
            )?,
            sweep_finished: make.gauges(
                "sweep_finished_timestamp_seconds",
                "When the last comparison ended.",
                &["registry"],
            )?,
            restored: make.gauge(
                "restored",
                "1 while a restored database waits for its acknowledgement and nothing is deleted.",
            )?,
            db_duration: make.times(
                "db_duration_seconds",
                "Time of database operations.",
                &["op"],
                DB_BUCKETS,
            )?,
            pull_secrets: make.gauges("pull_secrets", "Pull secrets.", &["state"])?,
            break_glass_outcomes: make.counters(
                "break_glass_outcomes_total",
                "What became of break-glass credentials.",
                &["outcome"],
            )?,
            break_glass_issue: make.time(
                "break_glass_issue_duration_seconds",
                "Time from the accepted request for a break-glass credential until it is usable.",
                WORK_BUCKETS,
            )?,
            break_glass_revoke: make.times(
                "break_glass_revoke_duration_seconds",
                "Time from the request for a revocation until it was proved.",
                &["scope"],
                WORK_BUCKETS,
            )?,
            break_glass_stuck: make.gauge(
                "break_glass_stuck",
                "Break-glass credentials, revocations and authorities that do not get on.",
            )?,
            break_glass_credentials: make.gauges(
                "break_glass_credentials",
                "Break-glass credentials.",
                &["state"],
            )?,
            names: make.names.into(),
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
    pub fn effect(
        &self,
        registry: &str,
        call: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        self.effects.with_label_values(&[registry, call, outcome]).inc();
        self.effect_duration.with_label_values(&[registry, call]).observe(took.as_secs_f64());
    }

    /// A first generation is handed out, so long after it was asked for.
    pub fn issued(&self, after: Duration) {
        self.issue_duration.observe(after.as_secs_f64());
    }

    /// A rotation's new generation is served, so long after it was asked for.
    pub fn promoted(&self, after: Duration) {
        self.promotion_duration.observe(after.as_secs_f64());
    }

    /// Two generations were valid for so long.
    pub fn dual_period(&self, lasted: Duration) {
        self.dual_period.observe(lasted.as_secs_f64());
    }

    /// What was to be deleted is gone, so long after the decision.
    pub fn revoked(&self, what: &'static str, after: Duration) {
        self.revoke_duration.with_label_values(&[what]).observe(after.as_secs_f64());
    }

    /// Something became of a break-glass credential.
    pub fn break_glass_ended(&self, outcome: &'static str) {
        self.break_glass_outcomes.with_label_values(&[outcome]).inc();
    }

    /// A break-glass credential is usable, so long after its request was accepted.
    pub fn break_glass_issued(&self, after: Duration) {
        self.break_glass_issue.observe(after.as_secs_f64());
    }

    /// A revocation is proved, so long after it was asked for.
    pub fn break_glass_revoked(&self, scope: &'static str, after: Duration) {
        self.break_glass_revoke.with_label_values(&[scope]).observe(after.as_secs_f64());
    }

    /// One ended rotation.
    pub fn rotation_ended(&self, reason: &'static str, end: &'static str) {
        self.rotations_ended.with_label_values(&[reason, end]).inc();
    }

    /// A campaign was created, paused, resumed, aborted, stopped or completed.
    pub fn campaign(&self, event: &'static str) {
        self.campaigns.with_label_values(&[event]).inc();
    }

    /// A cluster of a campaign came to its result.
    pub fn campaign_cluster(&self, status: &'static str) {
        self.campaign_clusters.with_label_values(&[status]).inc();
    }

    /// What needs a person, by the kind of credential and the word of each kind of item.
    pub fn need_attention(&self, counts: &[(&str, &BTreeMap<String, u64>)]) {
        self.attention.reset();
        for (credential, kinds) in counts {
            for (kind, count) in *kinds {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                self.attention.with_label_values(&[*credential, kind]).set(count);
            }
        }
    }

    /// One caught panic.
    pub fn panic(&self, place: &'static str) {
        self.panics.with_label_values(&[place]).inc();
    }

    /// Whether a registry's breaker is open.
    pub fn breaker(&self, registry: &str, open: bool) {
        self.breaker_open.with_label_values(&[registry]).set(i64::from(open));
    }

    /// One comparison of a registry's accounts.
    pub fn swept(&self, registry: &str, outcome: &'static str) {
        self.sweeps.with_label_values(&[registry, outcome]).inc();
    }

    /// One call that deletes an account which no row wants.
    pub fn sweep_deletion(&self, registry: &str, outcome: &'static str) {
        self.sweep_deletions.with_label_values(&[registry, outcome]).inc();
    }

    /// What the last comparison found, and when it ended in seconds since 1970.
    pub fn sweep_found(&self, registry: &str, counts: [(&'static str, u64); 4], at: i64) {
        for (kind, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.sweep_accounts.with_label_values(&[registry, kind]).set(count);
        }
        self.sweep_finished.with_label_values(&[registry]).set(at);
    }

    /// One database operation.
    pub fn db(&self, op: &'static str, took: Duration) {
        self.db_duration.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    /// The names of all metrics, also of those that have no value yet.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
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
