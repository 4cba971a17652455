//! What the tests of steps and calls work with: a store in memory, a replica that is sure to live.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::step::Tools;
use crate::actors::activity::Activity;
use crate::actors::deps::{Deps, Tuning};
use crate::actors::replica::Replica;
use crate::actors::restored::RestoredLatch;
use crate::crypto::{SharedKeyring, generate_key};
use crate::state::shared::Backoff;
use crate::state::{break_glass, pull_secret};
use crate::store::MemoryStore;
use crate::telemetry::Metrics;
use crate::time::Clock;

const SECOND: Duration = Duration::from_secs(1);
const RETRY: Backoff = Backoff {
    initial: Duration::from_secs(5),
    factor: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// A process over this store, with a key in this directory.
pub(super) fn tools(keys: &Path, store: &Arc<MemoryStore>, clock: Arc<dyn Clock>) -> Tools {
    if !keys.join("k1.key").exists() {
        generate_key(keys, "k1", true).unwrap();
    }
    let replica = Replica::new(3600 * SECOND, Duration::ZERO);
    replica.joined(Instant::now());
    let deps = Deps {
        store: store.clone(),
        keyring: Arc::new(SharedKeyring::load(keys, None).unwrap()),
        clock,
        policy: unused(),
        registries: BTreeMap::new(),
        metrics: Arc::new(Metrics::new().unwrap()),
        installation: "test".to_owned(),
        tuning: Tuning::default(),
        restored: RestoredLatch::default(),
        activity: Activity::default(),
        replica,
        failpoints: None,
    };
    let policy = break_glass::Policy {
        approval_required: false,
        issue_deadline: 600 * SECOND,
        probe_interval: 10 * SECOND,
        probe_successes: 2,
        call_timeout: 10 * SECOND,
        retry: RETRY,
        denied_after: 60 * SECOND,
        failed_after: 60 * SECOND,
        history_after: 60 * SECOND,
    };
    Tools { deps: Arc::new(deps), store: store.clone(), policy }
}

/// The rules of pull secrets, of which there are none here.
fn unused() -> pull_secret::Policy {
    pull_secret::Policy {
        interval: None,
        spread: 0.0,
        window: None,
        drift_interval: None,
        reissue: false,
        min_overlap: SECOND,
        grace_period: SECOND,
        on_deadline: pull_secret::OnDeadline::Hold,
        compromise_deadline: SECOND,
        quiet: SECOND,
        consumer_ttl: SECOND,
        proof: Vec::new(),
        retry: RETRY,
        give_up_after: SECOND,
        denied_after: SECOND,
        failed_after: SECOND,
        history_after: SECOND,
        registries: BTreeMap::new(),
    }
}
