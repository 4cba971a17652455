//! This process among the replicas: does it live, who else does, which calls are its own.
//!
//! Time is the monotonic clock of this process alone. Nobody compares clocks with anybody: a replica is alive for
//! as long as its counter changes, and dead when somebody has watched it stand still for a lease. Whoever cannot
//! raise its own counter stops first. Knows no database and starts nothing; `liveness` asks it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::clocks::Clocks;
use crate::ids::{CallToken, ClusterId, ReplicaId};
use crate::state::shared::Announcement;
use crate::store::{OwnedBy, ReplicaRow};

/// A replica that asked for news of a credential is told for so long.
const INTEREST: Duration = Duration::from_secs(90);
/// More credentials than this are not followed for others; they poll.
const MOST_INTEREST: usize = 10_000;

/// How sure this replica is that the others see it live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Sure: it may begin calls.
    Live,
    /// Not sure: it begins nothing. What it began before has ended by the time that anybody may take over.
    Silent,
    /// Others may have taken over: whatever it remembers may be old.
    Lost,
}

/// This process, as a replica.
#[derive(Debug)]
pub struct Replica {
    /// Its id, new at every start.
    pub id: ReplicaId,
    lease: Duration,
    state: Mutex<State>,
    flights: Flights,
    interest: Mutex<HashMap<ClusterId, Instant>>,
}

#[derive(Debug)]
struct State {
    /// When the latest raise that succeeded was begun.
    raised: Option<Instant>,
    left: bool,
    peers: BTreeMap<ReplicaId, Peer>,
    clocks: Clocks,
    /// What was told last of the trust in the wall clock.
    told_trust: bool,
}

#[derive(Debug)]
struct Peer {
    counter: u64,
    /// When its counter was last seen to change.
    changed: Instant,
    key_ids: BTreeSet<String>,
}

/// What a look at the others' rows showed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Not known before.
    pub came: Vec<ReplicaId>,
    /// Known before, and without a row now.
    pub went: Vec<ReplicaId>,
    /// Not seen to live for a lease, with the counter that stands still.
    pub dead: Vec<(ReplicaId, u64)>,
}

impl Replica {
    /// A replica that has not joined yet: it may begin nothing.
    #[must_use]
    pub fn new(lease: Duration, trust_after: Duration) -> Self {
        let state = State {
            raised: None,
            left: false,
            peers: BTreeMap::new(),
            clocks: Clocks::new(trust_after),
            told_trust: true,
        };
        Self {
            id: ReplicaId(uuid::Uuid::now_v7()),
            lease,
            state: Mutex::new(state),
            flights: Flights::default(),
            interest: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands at this moment.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing_at(Instant::now())
    }

    fn standing_at(&self, now: Instant) -> Standing {
        let state = self.state();
        let Some(raised) = state.raised.filter(|_| !state.left) else { return Standing::Lost };
        let silent_for = now.saturating_duration_since(raised);
        if silent_for < self.lease / 2 {
            Standing::Live
        } else if silent_for < self.lease {
            Standing::Silent
        } else {
            Standing::Lost
        }
    }

    /// Whether it may begin a call now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.standing() == Standing::Live
    }

    /// Whether it may run the effects of what is owned so, or become the owner first.
    #[must_use]
    pub fn may_work_on(&self, ownership: OwnedBy) -> bool {
        ownership.owner.is_none_or(|owner| owner == self.id) && self.is_live()
    }

    /// The other replica that owns it.
    #[must_use]
    pub fn other_owner(&self, ownership: OwnedBy) -> Option<ReplicaId> {
        ownership.owner.filter(|owner| *owner != self.id)
    }

    /// It joined, or joined again, with a write that was begun then.
    pub fn joined(&self, begun: Instant) {
        self.state().raised = Some(begun);
    }

    /// Others have removed its row.
    pub fn was_buried(&self) {
        self.state().raised = None;
    }

    /// It has given everything back and begins nothing any more.
    pub fn has_left(&self) {
        self.state().left = true;
    }

    /// Its counter was raised by a write that was begun then, and these are the rows of all.
    pub fn observe(&self, begun: Instant, rows: &[ReplicaRow]) -> Observed {
        let mut state = self.state();
        let looked = state.raised.replace(begun);
        // Who did not look cannot have seen anybody stand still.
        let was_away =
            looked.is_none_or(|at| begun.saturating_duration_since(at) >= self.lease / 2);
        let mut observed = Observed::default();
        let others = rows.iter().filter(|row| row.replica_id != self.id);
        let mut peers = BTreeMap::new();
        for row in others {
            let known = state.peers.remove(&row.replica_id);
            let stands = known.as_ref().filter(|peer| peer.counter == row.counter && !was_away);
            let changed = stands.map_or(begun, |peer| peer.changed);
            if known.is_none() {
                observed.came.push(row.replica_id);
            }
            if begun.saturating_duration_since(changed) >= self.lease {
                observed.dead.push((row.replica_id, row.counter));
            }
            let key_ids = row.key_ids.iter().cloned().collect();
            peers.insert(row.replica_id, Peer { counter: row.counter, changed, key_ids });
        }
        observed.went = std::mem::replace(&mut state.peers, peers).into_keys().collect();
        observed
    }

    /// How many replicas live, this one included.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.state().peers.len() + 1
    }

    /// The keys that every other living replica holds; nothing where there is no other.
    #[must_use]
    pub fn common_keys(&self) -> Option<BTreeSet<String>> {
        let state = self.state();
        let mut all = state.peers.values().map(|peer| peer.key_ids.clone());
        let first = all.next()?;
        Some(all.fold(first, |common, keys| common.intersection(&keys).cloned().collect()))
    }

    /// Looks at both clocks; answers when the trust in the wall clock is another one than was answered before.
    pub fn look_at_clocks(&self, wall: crate::time::Timestamp, now: Instant) -> Option<bool> {
        let mut state = self.state();
        state.clocks.look(wall, now);
        let trusted = state.clocks.is_trusted();
        (std::mem::replace(&mut state.told_trust, trusted) != trusted).then_some(trusted)
    }

    /// Whether the wall clock, which says this now, runs as the monotonic one does. Looks itself: whoever decides
    /// by a time must not be the first to see that it jumped.
    #[must_use]
    pub fn time_is_trusted(&self, wall: crate::time::Timestamp) -> bool {
        let mut state = self.state();
        state.clocks.look(wall, Instant::now());
        state.clocks.is_trusted()
    }

    /// Registers a call before it is announced.
    #[must_use]
    pub fn begin_flight(&self, token: CallToken) -> Flight {
        self.flights.lock().insert(token);
        Flight { token, flights: self.flights.clone() }
    }

    /// The announced calls that this process knows nothing of: nobody will answer them.
    #[must_use]
    pub fn open_calls_of_others<S, C>(
        &self,
        open: impl Iterator<Item = (S, Announcement<C>)>,
    ) -> Vec<(S, Announcement<C>)> {
        let flights = self.flights.lock();
        open.filter(|(_, call)| !flights.contains(&call.token)).collect()
    }

    /// Another replica waits for news of this credential.
    pub fn note_interest(&self, cluster_id: ClusterId) {
        let mut interest = self.interest.lock().unwrap_or_else(PoisonError::into_inner);
        if interest.len() >= MOST_INTEREST {
            interest.retain(|_, since| since.elapsed() < INTEREST);
        }
        if interest.len() < MOST_INTEREST {
            interest.insert(cluster_id, Instant::now());
        }
    }

    /// Whether another replica waits for news of it.
    #[must_use]
    pub fn is_of_interest(&self, cluster_id: &ClusterId) -> bool {
        let mut interest = self.interest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = interest.get(cluster_id) else { return false };
        if since.elapsed() < INTEREST {
            return true;
        }
        interest.remove(cluster_id);
        false
    }
}

/// The tokens of calls whose outcome this process will still tell.
#[derive(Debug, Clone, Default)]
struct Flights(Arc<Mutex<HashSet<CallToken>>>);

impl Flights {
    fn lock(&self) -> MutexGuard<'_, HashSet<CallToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One such call; dropping it says that nothing more will come of it from here.
#[derive(Debug)]
pub struct Flight {
    token: CallToken,
    flights: Flights,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn id(number: u128) -> ReplicaId {
        ReplicaId(uuid::Uuid::from_u128(number))
    }

    fn row(number: u128, counter: u64, keys: &[&str]) -> ReplicaRow {
        let key_ids = keys.iter().map(ToString::to_string).collect();
        ReplicaRow { replica_id: id(number), counter, key_ids }
    }

    fn replica() -> Replica {
        Replica::new(LEASE, LEASE)
    }

    #[test]
    fn whoever_cannot_raise_its_counter_falls_silent_and_then_is_lost() {
        let (replica, start) = (replica(), Instant::now());
        assert_eq!(replica.standing_at(start), Standing::Lost, "not joined yet");
        replica.joined(start);
        for (seconds, standing) in [
            (0, Standing::Live),
            (14, Standing::Live),
            (15, Standing::Silent),
            (29, Standing::Silent),
            (30, Standing::Lost),
        ] {
            assert_eq!(replica.standing_at(start + Duration::from_secs(seconds)), standing);
        }
        let later = start + 3 * LEASE;
        replica.observe(later, &[]);
        assert_eq!(replica.standing_at(later), Standing::Live, "it goes on by itself");
        replica.was_buried();
        assert_eq!(replica.standing_at(later), Standing::Lost);
    }

    #[test]
    fn a_counter_that_stands_still_for_a_lease_is_a_death() {
        let (replica, start) = (replica(), Instant::now());
        replica.joined(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(replica.observe(at(0), &[row(1, 5, &[]), row(2, 1, &[])]).came.len(), 2);
        for second in (5..30).step_by(5) {
            let seen = replica.observe(at(second), &[row(1, 5, &[]), row(2, second, &[])]);
            assert_eq!(seen, Observed::default(), "{second}");
        }
        let seen = replica.observe(at(30), &[row(1, 5, &[]), row(2, 40, &[])]);
        assert_eq!(seen.dead, [(id(1), 5)]);
        assert_eq!(replica.observe(at(31), &[row(2, 41, &[])]).went, [id(1)]);
    }

    #[test]
    fn who_was_away_itself_calls_nobody_dead() {
        let (replica, start) = (replica(), Instant::now());
        replica.joined(start);
        replica.observe(start, &[row(1, 5, &[])]);
        // The database was gone for everybody.
        let back = start + 2 * LEASE;
        assert_eq!(replica.observe(back, &[row(1, 5, &[])]), Observed::default());
        let soon = back + LEASE / 3;
        assert_eq!(replica.observe(soon, &[row(1, 5, &[])]), Observed::default());
    }

    #[test]
    fn a_key_is_common_when_all_others_hold_it() {
        let (replica, start) = (replica(), Instant::now());
        assert_eq!(replica.common_keys(), None);
        replica.observe(start, &[row(1, 1, &["a", "b"]), row(2, 1, &["b", "c"])]);
        assert_eq!(replica.common_keys(), Some(BTreeSet::from(["b".to_owned()])));
        assert_eq!(replica.live_count(), 3);
    }

    #[test]
    fn a_call_is_its_own_until_its_flight_ends() {
        let replica = replica();
        let flight = replica.begin_flight(CallToken(uuid::Uuid::from_u128(1)));
        assert_eq!(replica.flights.lock().len(), 1);
        drop(flight);
        assert!(replica.flights.lock().is_empty());
    }
}
