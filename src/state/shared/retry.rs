//! What went wrong since the last success, and how long to wait before the next try.

use std::time::Duration;

use super::Entropy;
use crate::time::Timestamp;

/// A longer `Retry-After` counts as this much.
const LONGEST_WISH: Duration = Duration::from_secs(24 * 60 * 60);

/// A call said nothing about what it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Plain words, made safe.
    pub message: String,
    /// The other side's own wish.
    pub retry_after: Option<Duration>,
    /// It is the other side's trouble (breaker open, our own credential refused), not that of what was
    /// asked for.
    pub blocked: bool,
}

/// What went wrong since the last success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The first failure of the row.
    pub since: Option<Timestamp>,
    /// Failures of its own; a blocked other side costs none.
    pub attempts: u32,
    /// What has been used up of `retry.give_up_after`.
    pub spent: Duration,
    /// Since when that clock runs; it stands still while the other side is blocked.
    pub counting_since: Option<Timestamp>,
    /// Whether the last failure was the other side's.
    pub blocked: bool,
    /// The last failure, made safe.
    pub last_error: Option<String>,
    /// Refused for good.
    pub refused: bool,
}

impl Trouble {
    /// After one more failure, and when to try again. A blocked other side costs no attempt and stops the
    /// clock of `give_up_after`.
    #[must_use]
    pub fn after(
        &self,
        failure: &Failure,
        now: Timestamp,
        retry: &Backoff,
        entropy: &mut Entropy,
    ) -> (Self, Timestamp) {
        // A wish is heard, but no answer may put anybody off for good.
        let wish = failure.retry_after.map(|wish| wish.min(LONGEST_WISH));
        if failure.blocked {
            let pause = wish.unwrap_or_else(|| retry.delay(1, entropy));
            return (self.put_off(&failure.message, now), now.plus(pause));
        }
        let mut trouble = self.clone();
        trouble.count(&failure.message, now, retry);
        let backoff = retry.delay(trouble.attempts, entropy);
        (trouble, now.plus(backoff.max(wish.unwrap_or(Duration::ZERO))))
    }

    /// The other side is blocked or busy: no attempt is lost, and no time.
    #[must_use]
    pub fn put_off(&self, reason: &str, now: Timestamp) -> Self {
        Self {
            since: self.since.or(Some(now)),
            counting_since: None,
            blocked: true,
            last_error: Some(reason.to_owned()),
            ..self.clone()
        }
    }

    /// One more failure of its own: an attempt, and time off `give_up_after`.
    pub fn count(&mut self, message: &str, now: Timestamp, retry: &Backoff) {
        self.since = self.since.or(Some(now));
        self.attempts = self.attempts.saturating_add(1);
        if let Some(since) = self.counting_since {
            // Tries are at most about `retry.max` apart; more than twice that is a clock that jumped.
            let waited = now.since(since).min(retry.max.saturating_mul(2));
            self.spent = self.spent.saturating_add(waited);
        }
        self.counting_since = Some(now);
        self.blocked = false;
        self.last_error = Some(message.to_owned());
    }
}

/// Exponential backoff with jitter.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named and explained in the configuration")]
pub struct Backoff {
    pub initial: Duration,
    pub factor: f64,
    pub max: Duration,
    pub jitter: f64,
}

impl Backoff {
    /// The pause after the given number of failures (from 1).
    #[must_use]
    pub fn delay(&self, failures: u32, entropy: &mut Entropy) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1).min(64)).unwrap_or(64);
        let grown = self.initial.as_secs_f64() * self.factor.powi(exponent);
        let capped = grown.min(self.max.as_secs_f64());
        let shift = 1.0 + self.jitter * (2.0 * entropy.fraction() - 1.0);
        Duration::try_from_secs_f64(capped * shift).unwrap_or(self.max)
    }
}
