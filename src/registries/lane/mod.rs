//! What stands between the service and one registry: a limit of calls at once, a token bucket and
//! a circuit breaker.
//!
//! A permit is taken before a call is announced and given back with a [`Verdict`]. The limits are those of all
//! replicas together: each of them keeps to its share. A lane knows nothing of accounts or states, and never
//! calls the registry itself.

mod breaker;
mod bucket;
mod slots;
#[cfg(test)]
mod tests;
mod verdict;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use self::breaker::{Breaker, Pass, Refusal};
pub use self::breaker::{BreakerSettings, BreakerState};
use self::bucket::Bucket;
use self::slots::{Slot, Slots};
pub use self::verdict::Verdict;
use super::Trouble;
use super::rate::Rate;

/// Residue gets one of so many tokens.
const RESIDUE_SHARE: u32 = 10;

/// The limits of one registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSettings {
    /// How many calls may be under way at once; zero counts as one.
    pub max_concurrent: usize,
    /// How often a call may begin.
    pub rate: Rate,
    /// When to stop calling.
    pub breaker: BreakerSettings,
}

/// Why there is no permit at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not now: {reason}")]
pub struct NotNow {
    /// What is in the way.
    pub kind: NotNowKind,
    /// The same in words, with the last trouble of the registry where that is the cause.
    pub reason: String,
}

/// What is in the way of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNowKind {
    /// The breaker is open.
    Breaker {
        /// When a probe may go; none while one is under way (see [`Lane::subscribe`]).
        until: Option<Instant>,
    },
    /// The bucket is empty, or the registry said `Retry-After`.
    Rate {
        /// When to come back.
        until: Instant,
    },
    /// As many calls as allowed are under way.
    Full,
}

/// What the operator, readiness and the metrics see of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStatus {
    /// The breaker.
    pub breaker: BreakerState,
    /// Since when it is closed, or since when there is trouble (open and half-open are one time).
    pub since: Instant,
    /// Until when no call goes through for certain: the pause or the registry's `Retry-After`.
    pub until: Option<Instant>,
    /// The last trouble; kept after it has passed.
    pub last_error: Option<Trouble>,
    /// Permits that are out.
    pub in_flight: usize,
}

/// The lane of one registry. Clones are the same lane.
#[derive(Debug, Clone)]
pub struct Lane {
    shared: Arc<Shared>,
    residue: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    slots: Slots,
    max_concurrent: usize,
    rate: Rate,
    /// Counted apart from the slots: a waiter for the bucket holds a slot without a permit.
    in_flight: AtomicUsize,
    /// Who waits for a permit, here and not in the database.
    waiting: AtomicUsize,
    bucket: Bucket,
    breaker: Mutex<Breaker>,
    changed: watch::Sender<BreakerState>,
    /// The lane beside which this one runs: its tokens are taken too, and where it stops this one stops.
    main: Option<Arc<Shared>>,
}

impl Lane {
    /// A lane whose registry is taken to be well.
    #[must_use]
    pub fn new(settings: LaneSettings) -> Self {
        let (breaker, rate) = (settings.breaker.clone(), settings.rate.slowed(RESIDUE_SHARE));
        let shared = Arc::new(Shared::new(settings, None));
        let beside = LaneSettings { max_concurrent: 1, rate, breaker };
        let residue = Some(Arc::new(Shared::new(beside, Some(Arc::clone(&shared)))));
        Self { shared, residue }
    }

    /// The lane of what the registry would not let go: one call at a time, at most a tenth of the rate, with
    /// a breaker of its own, so that a thousand hopeless deletions keep nobody waiting.
    #[must_use]
    pub fn residue(&self) -> Self {
        let shared = self.residue.as_ref().map_or_else(|| Arc::clone(&self.shared), Arc::clone);
        Self { shared, residue: None }
    }

    /// How many wait in [`Lane::permit`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// A permit now, or why not. Never waits; a refusal costs no token of the bucket.
    ///
    /// # Errors
    /// [`NotNow`] with what is in the way.
    pub fn try_permit(&self) -> Result<Permit, NotNow> {
        self.refuse_when_closed_off()?;
        let slot = self.shared.slots.try_take().ok_or_else(|| self.full())?;
        self.shared.take(&mut false).map_err(|until| self.empty(until))?;
        self.enter(slot)
    }

    /// Waits for a slot and for the bucket. An open breaker or a `Retry-After` of the registry is
    /// told at once, also when it comes while waiting: the caller has better things to do, and the
    /// stored due time wakes it.
    ///
    /// # Errors
    /// [`NotNow`] of the kinds `Breaker` and `Rate`.
    pub async fn permit(&self) -> Result<Permit, NotNow> {
        let _waiting = Waiting::new(&self.shared.waiting);
        let mut changes = self.subscribe();
        let slot = loop {
            self.refuse_when_closed_off()?;
            tokio::select! {
                slot = self.shared.slots.take() => break slot.ok_or_else(|| self.full())?,
                // The sender lives as long as the lane; an error cannot come, and would only loop.
                _ = changes.changed() => {}
            }
        };
        let mut own = false;
        loop {
            self.refuse_when_closed_off()?;
            let Err(until) = self.shared.take(&mut own) else { return self.enter(slot) };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// So many replicas, this one included, keep to the limits together: from now on a part of them is this
    /// lane's. One call at once it has in any case.
    pub fn share(&self, replicas: NonZeroU32) {
        self.shared.share(replicas);
        if let Some(residue) = &self.residue {
            residue.bucket.share(residue.rate, replicas);
        }
    }

    /// The calls that may be under way at once, and how often one may begin, at all replicas together.
    #[must_use]
    pub fn limits(&self) -> (usize, Rate) {
        (self.shared.max_concurrent, self.shared.rate)
    }

    /// Trouble of a call whose permit is gone: it needs neither a slot nor a token, or a registry that hangs on
    /// every slot would never be found out.
    pub fn trouble(&self, trouble: Trouble) {
        let entered = self.shared.breaker().enter(Instant::now());
        if let Ok(pass) = entered {
            self.shared.settle(pass, Verdict::Trouble(trouble));
        }
    }

    /// The lane as it is now.
    #[must_use]
    pub fn status(&self) -> LaneStatus {
        let breaker = self.shared.breaker();
        LaneStatus {
            breaker: breaker.state(),
            since: breaker.since(),
            until: breaker.until(Instant::now()),
            last_error: breaker.last_error().cloned(),
            in_flight: self.shared.in_flight.load(Ordering::Relaxed),
        }
    }

    /// Tells each change of the breaker, so that whoever waits wakes when it closes. The end of
    /// a pause is no change: it becomes one when somebody takes the probe.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<BreakerState> {
        self.shared.changed.subscribe()
    }

    fn refuse_when_closed_off(&self) -> Result<(), NotNow> {
        for shared in self.shared.main.iter().chain([&self.shared]) {
            let breaker = shared.breaker();
            if let Some(refusal) = breaker.refusal(Instant::now()) {
                return Err(not_now(refusal, breaker.last_error()));
            }
        }
        Ok(())
    }

    fn enter(&self, slot: Slot) -> Result<Permit, NotNow> {
        let mut breaker = self.shared.breaker();
        let entered = breaker.enter(Instant::now());
        let pass = entered.map_err(|refusal| not_now(refusal, breaker.last_error()))?;
        self.shared.announce(&breaker);
        drop(breaker);
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Permit { shared: Arc::clone(&self.shared), pass: Some(pass), _slot: slot })
    }

    fn full(&self) -> NotNow {
        let reason = format!("{} calls are under way already", self.shared.slots.allowed());
        NotNow { kind: NotNowKind::Full, reason }
    }

    fn empty(&self, until: Instant) -> NotNow {
        NotNow {
            kind: NotNowKind::Rate { until },
            reason: "the configured rate is used up".to_owned(),
        }
    }
}

fn not_now(refusal: Refusal, last_error: Option<&Trouble>) -> NotNow {
    let (kind, what) = match refusal {
        Refusal::Open(until) => {
            (NotNowKind::Breaker { until }, "calls to the registry are suspended")
        }
        Refusal::Quiet(until) => {
            (NotNowKind::Rate { until }, "the registry asked to be called later")
        }
    };
    let reason =
        last_error.map_or_else(|| what.to_owned(), |error| format!("{what}: {}", error.message));
    NotNow { kind, reason }
}

impl Shared {
    fn new(settings: LaneSettings, main: Option<Arc<Self>>) -> Self {
        Self {
            slots: Slots::new(settings.max_concurrent),
            max_concurrent: settings.max_concurrent.max(1),
            rate: settings.rate,
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            bucket: Bucket::new(settings.rate),
            breaker: Mutex::new(Breaker::new(settings.breaker, Instant::now())),
            changed: watch::Sender::new(BreakerState::Closed),
            main,
        }
    }

    fn share(&self, replicas: NonZeroU32) {
        let parts = usize::try_from(replicas.get()).unwrap_or(usize::MAX);
        self.slots.allow(self.max_concurrent / parts);
        self.bucket.share(self.rate, replicas);
    }

    /// A token of this bucket, unless `own` says that it was taken before, and one of the main lane's.
    fn take(&self, own: &mut bool) -> Result<(), Instant> {
        if !*own {
            self.bucket.take()?;
            *own = true;
        }
        self.main.as_ref().map_or(Ok(()), |main| main.bucket.take())
    }

    /// No code panics under this lock; a poisoned one would be as good as any.
    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, breaker: &Breaker) {
        let state = breaker.state();
        self.changed.send_if_modified(|seen| std::mem::replace(seen, state) != state);
    }

    fn settle(&self, pass: Pass, verdict: Verdict) {
        let now = Instant::now();
        let mut breaker = self.breaker();
        match verdict {
            Verdict::Healthy => breaker.healthy(pass, now),
            Verdict::Neutral => breaker.neutral(pass, now),
            Verdict::Trouble(trouble) => breaker.trouble(pass, trouble, rand::random(), now),
        }
        self.announce(&breaker);
    }
}

/// Counts somebody who waits, for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to make one call. Dropped without a report it says nothing about the registry, and
/// frees the probe where it was one.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once lets no call through"]
pub struct Permit {
    shared: Arc<Shared>,
    pass: Option<Pass>,
    _slot: Slot,
}

impl Permit {
    /// Gives the permit back with what the call has shown.
    pub fn report(mut self, verdict: impl Into<Verdict>) {
        if let Some(pass) = self.pass.take() {
            self.shared.settle(pass, verdict.into());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.shared.settle(pass, Verdict::Neutral);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
