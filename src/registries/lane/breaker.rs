//! The circuit breaker of a lane as a plain value: reports go in with the time, permissions come out.
//!
//! No clock, no locks, no randomness of its own. What a call was about it never learns.

use std::time::Duration;

use tokio::time::Instant;

use crate::registries::{Trouble, TroubleKind};

/// When the breaker opens and how long it stays open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerSettings {
    /// It opens after so many troubles in a row.
    pub threshold: u32,
    /// The first pause.
    pub min_pause: Duration,
    /// The pause doubles with each failed probe up to this.
    pub max_pause: Duration,
    /// A longer `Retry-After` counts as this much: a nonsense value must not stop a registry for good.
    pub max_retry_after: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            threshold: 5,
            min_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(30),
            max_retry_after: Duration::from_hours(1),
        }
    }
}

/// What a breaker is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// No call goes through until the pause is over.
    Open,
    /// One call goes through to see whether the registry is well again.
    HalfOpen,
}

/// A permission; the report comes back with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    epoch: u64,
    probe: bool,
}

/// Why nothing goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The breaker is open until then, or a probe is under way.
    Open(Option<Instant>),
    /// The registry asked for quiet until then.
    Quiet(Instant),
}

#[derive(Debug)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    state: BreakerState,
    /// Raised with every change of state; a report of an older epoch says nothing about this one.
    epoch: u64,
    since: Instant,
    /// The end of the pause; set while open.
    until: Option<Instant>,
    /// Troubles in a row.
    troubles: u32,
    /// Failed probes in a row.
    failed_probes: u32,
    /// The registry's own `Retry-After`, in every state.
    quiet_until: Option<Instant>,
    last_error: Option<Trouble>,
}

impl Breaker {
    pub(super) fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self {
            settings,
            state: BreakerState::Closed,
            epoch: 0,
            since: now,
            until: None,
            troubles: 0,
            failed_probes: 0,
            quiet_until: None,
            last_error: None,
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.state
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn last_error(&self) -> Option<&Trouble> {
        self.last_error.as_ref()
    }

    /// Until when nothing goes through for certain.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.max(self.quiet_until).filter(|until| *until > now)
    }

    /// Whether a call would go through, without letting it.
    pub(super) fn refusal(&self, now: Instant) -> Option<Refusal> {
        match self.state {
            BreakerState::Closed => {
                self.quiet_until.filter(|until| *until > now).map(Refusal::Quiet)
            }
            BreakerState::Open => self.until(now).map(|until| Refusal::Open(Some(until))),
            BreakerState::HalfOpen => Some(Refusal::Open(None)),
        }
    }

    /// Lets one call through; with the pause over, exactly one as the probe.
    pub(super) fn enter(&mut self, now: Instant) -> Result<Pass, Refusal> {
        if let Some(refusal) = self.refusal(now) {
            return Err(refusal);
        }
        let probe = self.state == BreakerState::Open;
        if probe {
            self.change(BreakerState::HalfOpen, now);
            self.until = None;
        }
        Ok(Pass { epoch: self.epoch, probe })
    }

    /// The registry answered sensibly.
    pub(super) fn healthy(&mut self, pass: Pass, now: Instant) {
        if pass.epoch != self.epoch {
            return; // began before the trouble, proves nothing about the time after it
        }
        self.troubles = 0;
        if pass.probe {
            self.failed_probes = 0;
            self.change(BreakerState::Closed, now);
        }
    }

    /// The call ended without a word about the registry: the next one may probe at once.
    pub(super) fn neutral(&mut self, pass: Pass, now: Instant) {
        if pass.probe && pass.epoch == self.epoch {
            self.change(BreakerState::Open, now);
            self.until = None;
        }
    }

    /// The call ended in trouble; `jitter` from 0 to 1 shortens the pause by up to a quarter.
    pub(super) fn trouble(&mut self, pass: Pass, trouble: Trouble, jitter: f64, now: Instant) {
        if let Some(wait) = trouble.retry_after {
            let until = now + wait.min(self.settings.max_retry_after);
            self.quiet_until = self.quiet_until.max(Some(until));
        }
        let at_once = opens_at_once(trouble.kind);
        self.last_error = Some(trouble);
        if pass.epoch != self.epoch {
            return; // the breaker has moved on already
        }
        self.troubles = self.troubles.saturating_add(1);
        if pass.probe {
            self.failed_probes = self.failed_probes.saturating_add(1);
        } else if !at_once && self.troubles < self.settings.threshold {
            return;
        }
        self.change(BreakerState::Open, now);
        self.until = Some(now + self.pause().mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0)));
    }

    fn pause(&self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.failed_probes);
        self.settings.min_pause.saturating_mul(doubled).min(self.settings.max_pause)
    }

    fn change(&mut self, state: BreakerState, now: Instant) {
        // Open and half-open are one time of trouble: `since` tells when it began.
        if self.state == BreakerState::Closed || state == BreakerState::Closed {
            self.since = now;
        }
        self.state = state;
        self.epoch += 1;
    }
}

/// Trouble that every call would meet: there is no use in trying five times.
fn opens_at_once(kind: TroubleKind) -> bool {
    match kind {
        TroubleKind::OwnCredential | TroubleKind::Misconfigured => true,
        TroubleKind::Connect
        | TroubleKind::Timeout
        | TroubleKind::RateLimited
        | TroubleKind::ServerError
        | TroubleKind::Internal
        | TroubleKind::NotCurrent => false,
    }
}
