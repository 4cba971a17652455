//! When is a switch of the served generation proved? `DESIGN` section 3, "When does the
//! dual-credential period end?"
//!
//! Knows evidence and time; decides nothing.

use std::time::Duration;

use super::model::{AccountPhase, Consumer, PullSecret, Served};
use super::policy::Policy;
use crate::time::Timestamp;

/// Whether every known consumer has moved to the served generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// Proved.
    Proved,
    /// Not proved; without new evidence the answer cannot change before this, if at all.
    Unproved {
        /// The earliest time at which it may be proved.
        again_at: Option<Timestamp>,
    },
}

/// Whether the generation that is no longer served may go now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Now,
    /// No; without new evidence the answer cannot change before this, if at all.
    NotYet {
        /// The earliest time to ask again.
        again_at: Option<Timestamp>,
    },
}

impl PullSecret {
    /// Is it proved that the cluster uses what is served?
    ///
    /// At least one proof after the switch, every consumer seen within `consumer_ttl` seen after it with
    /// the served generation as its latest word, and no retiring account seen in use for `quiet`. Silence is no proof.
    #[must_use]
    pub fn adoption(&self, policy: &Policy, now: Timestamp) -> Adoption {
        let Some(served) = self.served() else { return Adoption::Unproved { again_at: None } };
        let proved = self.consumers.iter().any(|consumer| is_proof(consumer, served, policy));
        if !proved {
            return Adoption::Unproved { again_at: None };
        }
        match self.blockers_until(policy, served).filter(|until| *until > now) {
            None => Adoption::Proved,
            until => Adoption::Unproved { again_at: until },
        }
    }

    /// Has enough time passed since the switch, and is adoption proved?
    #[must_use]
    pub fn retirement(&self, policy: &Policy, min_overlap: Duration, now: Timestamp) -> Verdict {
        let Some(served) = self.served() else { return Verdict::NotYet { again_at: None } };
        let overlap_ends = served.since.plus(min_overlap);
        match self.adoption(policy, now) {
            Adoption::Proved if overlap_ends <= now => Verdict::Now,
            Adoption::Proved => Verdict::NotYet { again_at: Some(overlap_ends) },
            Adoption::Unproved { again_at } => {
                Verdict::NotYet { again_at: again_at.map(|again| again.max(overlap_ends)) }
            }
        }
    }

    /// The consumers whose latest word keeps the served generation from being adopted, the latest last.
    #[must_use]
    pub fn holdouts(&self, policy: &Policy, now: Timestamp) -> Vec<&Consumer> {
        let Some(served) = self.served() else { return Vec::new() };
        let counts = |consumer: &&Consumer| {
            let until = consumer.observed_at.plus(policy.consumer_ttl);
            !has_moved(consumer, served) && until.plus(policy.sighting_interval()) > now
        };
        let mut holdouts: Vec<&Consumer> = self.consumers.iter().filter(counts).collect();
        holdouts.sort_by_key(|consumer| consumer.observed_at);
        holdouts
    }

    /// The time at which the last of those who hold adoption back is out of the way by itself.
    fn blockers_until(&self, policy: &Policy, served: Served) -> Option<Timestamp> {
        // Sightings of an unchanged consumer are stored only once per interval, so it may have been seen
        // for that much longer than the row says.
        let unseen = policy.sighting_interval();
        let straggler = |consumer: &&Consumer| !has_moved(consumer, served);
        let stragglers = self
            .consumers
            .iter()
            .filter(straggler)
            .map(|consumer| consumer.observed_at.plus(policy.consumer_ttl).plus(unseen));
        let margin = policy.quiet.saturating_add(unseen);
        let uses = self
            .accounts
            .iter()
            .filter(|account| account.phase == AccountPhase::Retiring)
            .filter_map(|account| account.last_used_at)
            .map(|used| used.plus(margin));
        stragglers.chain(uses).max()
    }
}

fn is_proof(consumer: &Consumer, served: Served, policy: &Policy) -> bool {
    has_moved(consumer, served) && policy.proof.contains(&consumer.source)
}

/// Only words after the last switch count: before a rollback, a consumer may have fetched the other
/// generation since it was last seen with this one.
fn has_moved(consumer: &Consumer, served: Served) -> bool {
    consumer.generation == served.generation && consumer.observed_at > served.since
}
