//! The configured rules as the machine sees them. Only values; no files, no environment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::model::{EvidenceSource, RotationReason};
use crate::ids::RegistryId;
pub use crate::state::shared::Backoff;
use crate::time::Timestamp;
use crate::window::Window;

/// Every rule that decides something. Names are those of the configuration.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named and explained in the configuration")]
pub struct Policy {
    pub interval: Option<Duration>,
    pub spread: f64,
    pub window: Option<Window>,
    pub drift_interval: Option<Duration>,
    /// Whether dead accounts are made anew (`on_drift: reissue`) or only reported.
    pub reissue: bool,
    pub min_overlap: Duration,
    pub grace_period: Duration,
    pub on_deadline: OnDeadline,
    pub compromise_deadline: Duration,
    pub quiet: Duration,
    pub consumer_ttl: Duration,
    pub proof: Vec<EvidenceSource>,
    pub retry: Backoff,
    pub give_up_after: Duration,
    pub denied_after: Duration,
    pub failed_after: Duration,
    pub history_after: Duration,
    pub registries: BTreeMap<RegistryId, RegistryPolicy>,
}

/// What happens when `grace_period` has passed without proof.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum OnDeadline {
    /// Keep both and raise `overdue`.
    Hold,
    /// Revoke the old generation.
    Revoke,
    /// Serve the old generation again.
    Rollback,
}

/// What the machine has to know of one registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPolicy {
    /// Whether new accounts are made there.
    pub enabled: bool,
    /// In front of every account name.
    pub prefix: String,
    /// The longest a call takes.
    pub timeout: Duration,
    /// How long a lost create may still be applied.
    pub settle_time: Duration,
    /// The service chooses the secret, so a lost create can be adopted.
    pub own_secret: bool,
}

impl Policy {
    /// Trouble that is older than two intervals between tries needs a look.
    #[must_use]
    pub fn stuck_after(&self) -> Duration {
        self.retry.initial.saturating_mul(2)
    }

    /// The rules of one registry. One that is no longer configured gets the defaults, so that its accounts
    /// are not forgotten.
    #[must_use]
    pub fn registry(&self, id: &RegistryId) -> RegistryPolicy {
        self.registries.get(id).cloned().unwrap_or(RegistryPolicy {
            enabled: false,
            prefix: "hyp".to_owned(),
            timeout: Duration::from_secs(10),
            settle_time: Duration::from_secs(600),
            own_secret: false,
        })
    }

    /// The registries that a first creation without a list takes.
    #[must_use]
    pub fn enabled_registries(&self) -> Vec<RegistryId> {
        let enabled =
            |(id, registry): (&RegistryId, &RegistryPolicy)| registry.enabled.then(|| id.clone());
        self.registries.iter().filter_map(enabled).collect()
    }

    /// A running call of this registry is given up at this age: the sender may begin until `timeout` after
    /// the announcement and takes at most `timeout`.
    #[must_use]
    pub fn call_lost_after(&self, id: &RegistryId) -> Duration {
        self.registry(id).timeout.saturating_mul(2)
    }

    /// The shortest dual-credential period for this reason.
    #[must_use]
    pub const fn min_overlap_for(&self, reason: RotationReason) -> Duration {
        match reason {
            RotationReason::Compromise => Duration::ZERO,
            RotationReason::Manual
            | RotationReason::Scheduled
            | RotationReason::Registries
            | RotationReason::Drift => self.min_overlap,
        }
    }

    /// How long after the switch the deadline comes, and what it does.
    #[must_use]
    pub const fn deadline_for(&self, reason: RotationReason) -> (Duration, OnDeadline) {
        match reason {
            RotationReason::Compromise => (self.compromise_deadline, OnDeadline::Revoke),
            RotationReason::Manual
            | RotationReason::Scheduled
            | RotationReason::Registries
            | RotationReason::Drift => (self.grace_period, self.on_deadline),
        }
    }

    /// Sightings of the same consumer with the same generation are stored again only after this:
    /// 5 minutes, or half of `quiet` where that is less.
    #[must_use]
    pub fn sighting_interval(&self) -> Duration {
        Duration::from_secs(300).min(self.quiet / 2)
    }

    /// When the schedule wants the next rotation of a generation served since `since`: spread by a hash
    /// over the last part of the interval, never later than the interval.
    #[must_use]
    pub fn next_rotation(&self, cluster_hash: u64, since: Timestamp) -> Option<Timestamp> {
        Some(since.plus(self.spread_out(self.interval?, cluster_hash)))
    }

    /// When what is served since, or was verified at, `since` is verified again: spread like the rotations,
    /// so that a fleet that was verified at once is not verified at once again.
    #[must_use]
    pub fn next_check(&self, cluster_hash: u64, since: Timestamp) -> Option<Timestamp> {
        Some(since.plus(self.spread_out(self.drift_interval?, cluster_hash)))
    }

    fn spread_out(&self, interval: Duration, cluster_hash: u64) -> Duration {
        let fraction = (cluster_hash >> 11) as f64 / (1_u64 << 53) as f64;
        let early = interval.mul_f64((self.spread * fraction).clamp(0.0, 1.0));
        interval.saturating_sub(early)
    }
}
