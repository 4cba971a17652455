//! `Observe`: somebody was seen with a credential. What that proves is in `adoption`.

use super::super::model::{Account, AccountPhase, Consumer, EvidenceSource, PullSecret};
use super::super::{Context, Event, Evidence, EvidenceSubject, Rejection};
use crate::ids::{AccountId, Generation};

/// So many consumers are told apart per cluster and source: whoever presents a credential under many names
/// must not keep adapters or the registry's own record from being heard.
pub(super) const MAX_CONSUMERS: usize = 64;

pub(super) fn observe(
    record: &PullSecret,
    evidence: &Evidence,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let Some(served) = record.served() else {
        return Err(Rejection::State { state: record.state.name() });
    };
    let (generation, account_id) = subject(record, evidence)?;
    // A clock that runs ahead must not make a proof for later switches.
    let observed_at = evidence.observed_at.min(context.now);
    let known = record
        .consumers
        .iter()
        .find(|known| known.source == evidence.source && known.name == evidence.consumer);
    // Heartbeats come one after the other, whatever the clocks of the replicas that took them say: one
    // with the old credential must never be dropped as out of date.
    let observed_at = match (evidence.source, known) {
        (EvidenceSource::Heartbeat, Some(known)) => observed_at.max(known.observed_at),
        (
            EvidenceSource::Heartbeat | EvidenceSource::Registry | EvidenceSource::Adapter,
            Some(_) | None,
        ) => observed_at,
    };
    let forgotten = match known {
        Some(known) if observed_at < known.observed_at => return Ok(Vec::new()),
        Some(known) => {
            let age = observed_at.since(known.observed_at);
            let proves = known.observed_at <= served.since && observed_at > served.since;
            let fresh = known.generation == generation && age < context.policy.sighting_interval();
            if fresh && !proves {
                return Ok(Vec::new());
            }
            None
        }
        None => make_room(record, evidence.source, context)?,
    };
    let consumer = Consumer {
        source: evidence.source,
        name: evidence.consumer.clone(),
        generation,
        observed_at,
    };
    Ok(vec![Event::ConsumerSeen { consumer, account_id, forgotten }])
}

/// The generation that was seen. Only accounts that were handed out and still may be used count.
fn subject(
    record: &PullSecret,
    evidence: &Evidence,
) -> Result<(Generation, Option<AccountId>), Rejection> {
    match evidence.subject {
        EvidenceSubject::Account(id) => {
            let account = record.account(id).ok_or(Rejection::NotInUse)?;
            match account.phase {
                AccountPhase::Serving => Ok((record.seen_with(account, evidence), Some(id))),
                AccountPhase::Retiring => Ok((account.presented_as(), Some(id))),
                AccountPhase::Planned
                | AccountPhase::Creating
                | AccountPhase::Created
                | AccountPhase::Verified
                | AccountPhase::Deleting
                | AccountPhase::Gone
                | AccountPhase::Burnt
                | AccountPhase::Residue => Err(Rejection::NotInUse),
            }
        }
        EvidenceSubject::Generation(generation) => {
            if generation == Generation::NONE || generation > record.last_generation {
                return Err(Rejection::NotServed { served: record.generation() });
            }
            Ok((generation, None))
        }
    }
}

impl PullSecret {
    /// The generation that somebody certainly has who was seen with a served account.
    ///
    /// An account that a partial rotation kept belongs to both generations. Whoever presents it has the new
    /// one only if that is known already; else it may be the other one, which it then keeps alive.
    fn seen_with(&self, account: &Account, evidence: &Evidence) -> Generation {
        let Some(served) = self.served() else { return Generation::NONE };
        let Some(other) = self.rotation().and_then(|rotation| rotation.other_of(account)) else {
            return served.generation;
        };
        let moved = self.consumers.iter().any(|known| {
            known.source == evidence.source
                && known.name == evidence.consumer
                && known.generation == served.generation
                && known.observed_at > served.since
        });
        if moved { served.generation } else { other }
    }
}

fn make_room(
    record: &PullSecret,
    source: EvidenceSource,
    context: &Context<'_>,
) -> Result<Option<(EvidenceSource, String)>, Rejection> {
    let same = || record.consumers.iter().filter(|consumer| consumer.source == source);
    if same().count() < MAX_CONSUMERS {
        return Ok(None);
    }
    let policy = context.policy;
    let expired = context.now.minus(policy.consumer_ttl).minus(policy.sighting_interval());
    let oldest = same().min_by_key(|consumer| consumer.observed_at);
    match oldest.filter(|consumer| consumer.observed_at <= expired) {
        Some(consumer) => Ok(Some((consumer.source, consumer.name.clone()))),
        None => Err(Rejection::TooManyConsumers { limit: MAX_CONSUMERS }),
    }
}
