//! Makes metrics under the component's name and registers them.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::telemetry::COMPONENT;

/// Registers what it makes and remembers the names.
pub(super) struct Maker {
    pub(super) registry: Registry,
    pub(super) names: Vec<String>,
}

impl Maker {
    fn add<C: Collector + Clone + 'static>(
        &mut self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let made = made?;
        self.register(made.clone())?;
        Ok(made)
    }

    pub(super) fn register(&mut self, made: impl Collector + 'static) -> prometheus::Result<()> {
        self.names.extend(made.desc().into_iter().map(|desc| desc.fq_name.clone()));
        self.registry.register(Box::new(made))
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(opts(name, help)))
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(opts(name, help), labels))
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::with_opts(opts(name, help)))
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(opts(name, help), labels))
    }

    pub(super) fn time(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> prometheus::Result<Histogram> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts))
    }

    pub(super) fn times(
        &mut self,
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
