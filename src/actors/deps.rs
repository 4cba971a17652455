//! What every actor is given. Nothing global: tests make as many as they like side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::activity::Activity;
use super::replica::Replica;
use super::restored::RestoredLatch;
use crate::crypto::SharedKeyring;
use crate::failpoints::FailPoints;
use crate::ids::RegistryId;
use crate::registries::Registry;
use crate::registries::lane::Lane;
use crate::state::pull_secret::Policy;
use crate::store::{Store, StuckAfter};
use crate::telemetry::metrics::Metrics;
use crate::time::Clock;

/// Shared by all actors and by HTTP.
pub struct Deps {
    /// Rows and transactions.
    pub store: Arc<dyn Store>,
    /// Keys of sealed values.
    pub keyring: Arc<SharedKeyring>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The configured rules of the machine.
    pub policy: Policy,
    /// The configured registries.
    pub registries: BTreeMap<RegistryId, ConfiguredRegistry>,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// The installation's id, part of every marker.
    pub installation: String,
    /// Sizes and pauses of the actors.
    pub tuning: Tuning,
    /// Whether the database was restored.
    pub restored: RestoredLatch,
    /// What is under way.
    pub activity: Activity,
    /// This process among the replicas.
    pub replica: Replica,
    /// Where a test lets the process die; never armed in production.
    pub failpoints: Option<FailPoints>,
}

/// A registry and what stands in front of it.
pub struct ConfiguredRegistry {
    /// The registry.
    pub registry: Arc<dyn Registry>,
    /// Its limits and breaker.
    pub lane: Lane,
    /// The host in a pull secret.
    pub host: String,
    /// Hosts that repeat its entry.
    pub aliases: Vec<String>,
    /// The e-mail of its entries, where one is wanted.
    pub email: Option<String>,
    /// The longest that one call may take.
    pub timeout: Duration,
}

impl Deps {
    /// Whether the wall clock runs as the monotonic one does.
    #[must_use]
    pub fn time_is_trusted(&self) -> bool {
        self.replica.time_is_trusted(self.clock.now())
    }

    /// How old trouble is when it needs a look.
    #[must_use]
    pub fn stuck_after(&self) -> StuckAfter {
        StuckAfter {
            pull_secrets: self.policy.stuck_after(),
            break_glass: self.tuning.stuck_break_glass,
        }
    }
}

impl ConfiguredRegistry {
    /// The lane of a call.
    #[must_use]
    pub fn lane_for(&self, residue: bool) -> Lane {
        if residue { self.lane.residue() } else { self.lane.clone() }
    }
}

/// Sizes and pauses of the actors.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How many shards; each is a thread.
    pub shards: usize,
    /// Messages that may wait for one credential or one shard.
    pub mailbox: usize,
    /// A credential without work stops after this.
    pub idle_after: Duration,
    /// The scheduler looks so often.
    pub tick: Duration,
    /// The scheduler wakes at most so many per look.
    pub batch: u32,
    /// So many rotations may be at work in the whole fleet.
    pub max_rotations: u32,
    /// Whoever is not seen to live for so long is dead. What was woken is looked at again after this, should
    /// its actor have failed.
    pub lease: Duration,
    /// After a jump the wall clock has to keep in step for so long before it is believed.
    pub trust_after: Duration,
    /// A restart after a panic waits so long at first, then doubles.
    pub restart_pause: Duration,
    /// So many panics within `panic_window` put a credential in quarantine.
    pub panic_limit: usize,
    /// See `panic_limit`.
    pub panic_window: Duration,
    /// How long a quarantine lasts before one new try.
    pub quarantine: Duration,
    /// Revoked accounts and their secrets are remembered so long, to recognise late use.
    pub tombstones: Duration,
    /// Audit rows are kept so long.
    pub audit_after: Duration,
    /// A registry's accounts are compared with ours so often.
    pub sweep_interval: Duration,
    /// An unknown account of ours is left alone for so long.
    pub sweep_safety_age: Duration,
    /// Trouble with break-glass credentials that is older than this needs a look.
    pub stuck_break_glass: Duration,
    /// The audit's streams are anchored so often, and at every start and end of the process.
    pub anchor_every: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            shards: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16),
            mailbox: 1024,
            idle_after: Duration::from_secs(30),
            tick: Duration::from_secs(1),
            batch: 200,
            max_rotations: 64,
            lease: Duration::from_secs(30),
            trust_after: Duration::from_secs(3600),
            restart_pause: Duration::from_millis(100),
            panic_limit: 5,
            panic_window: Duration::from_secs(600),
            quarantine: Duration::from_secs(3600),
            tombstones: Duration::from_secs(30 * 24 * 3600),
            audit_after: Duration::from_secs(400 * 24 * 3600),
            anchor_every: Duration::from_secs(3600),
            stuck_break_glass: Duration::from_secs(20),
            sweep_interval: Duration::from_secs(6 * 3600),
            sweep_safety_age: Duration::from_secs(3600),
        }
    }
}
