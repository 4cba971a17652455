//! Named points at which a test lets the process die, panic, fail or wait.
//!
//! `point[:call]=action[@n]`, several of them separated by commas: `after_commit=kill@3`,
//! `before_call:create=error`, `after_call:revoke=delay(200ms)`. With `@n` only the n-th hit acts, without
//! it every hit. Production never arms any; then a point costs one look at an `Option`. Knows the names of
//! calls, nothing of what is done at a point.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strum::{AsRefStr, Display, EnumString, VariantArray};

use crate::state::{break_glass, pull_secret};

/// Where. Points around a commit are hit once for each call that the commit announces or whose outcome it
/// stores; a commit without any is hit once, without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, AsRefStr, Display, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Point {
    /// Decided, not stored. An error: the database does not answer.
    BeforeCommit,
    /// Stored, and what it announces is not begun. An error: the answer of the database is lost.
    AfterCommit,
    /// Announced, not sent. An error: no connection, so definitely not applied.
    BeforeCall,
    /// The registry has answered, nothing of it is stored. An error: the answer is lost.
    AfterCall,
    /// The outcome of a call is about to be stored. An error: the database does not answer.
    BeforeOutcomeCommit,
    /// The outcome is stored. An error: the answer of the database is lost.
    AfterOutcomeCommit,
    /// At start: the open calls of one cluster were closed, others may not be yet. No error.
    TakenOver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Panic,
    Error,
    Delay(Duration),
}

/// The `error` of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a failure point says so")]
pub struct Injected;

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}: must look like point[:call]=action[@n] with a point of {points}, a call of {calls} and an action \
     of kill, panic, error, delay(200ms)",
    points = Point::VARIANTS.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
    calls = calls().collect::<Vec<_>>().join(", "),
)]
pub struct ParseError(String);

/// The names of all calls, of every kind of credential.
fn calls() -> impl Iterator<Item = &'static str> {
    let pull_secret = pull_secret::Call::VARIANTS.iter().map(|call| call.into());
    pull_secret.chain(break_glass::Call::VARIANTS.iter().map(|call| call.into()))
}

#[derive(Debug)]
struct Rule {
    point: Point,
    call: Option<&'static str>,
    action: Action,
    /// Acts only at this hit, counted from 1.
    only: Option<u64>,
    hits: AtomicU64,
}

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (place, action) = text.split_once('=')?;
            let (point, call) = match place.split_once(':') {
                Some((point, call)) => (point, Some(calls().find(|known| *known == call)?)),
                None => (place, None),
            };
            let (action, only) = match action.split_once('@') {
                Some((action, n)) => (action, Some(n.parse().ok().filter(|n| *n > 0)?)),
                None => (action, None),
            };
            let action = match action {
                "kill" => Action::Kill,
                "panic" => Action::Panic,
                "error" => Action::Error,
                _ => {
                    let time = action.strip_prefix("delay(")?.strip_suffix(')')?;
                    Action::Delay(humantime::parse_duration(time).ok()?)
                }
            };
            Some(Self { point: point.parse().ok()?, call, action, only, hits: AtomicU64::new(0) })
        };
        parse().ok_or_else(|| ParseError(text.to_owned()))
    }
}

impl Rule {
    fn acts(&self, point: Point, call: Option<&str>) -> bool {
        if self.point != point || (self.call.is_some() && self.call != call) {
            return false;
        }
        let hit = self.hits.fetch_add(1, Ordering::Relaxed) + 1;
        self.only.is_none_or(|only| only == hit)
    }
}

/// The armed points of a process.
#[derive(Debug)]
pub struct FailPoints(Vec<Rule>);

impl FromStr for FailPoints {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty());
        rules.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl FailPoints {
    /// The process comes by this point.
    ///
    /// # Errors
    /// [`Injected`] where a rule says `error`; what that means is the caller's.
    ///
    /// # Panics
    /// Where a rule says `panic`.
    pub async fn hit(&self, point: Point, call: Option<&str>) -> Result<(), Injected> {
        for rule in self.0.iter().filter(|rule| rule.acts(point, call)) {
            tracing::warn!(%point, call, action = ?rule.action, "a failure point acts");
            match rule.action {
                // Nothing is unwound, nothing is flushed: as kill -9.
                Action::Kill => std::process::abort(),
                Action::Panic => panic!("a failure point says so: {point}"),
                Action::Error => return Err(Injected),
                Action::Delay(time) => tokio::time::sleep(time).await,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rule_acts_at_its_point_for_its_call_at_its_hit() {
        let points: FailPoints =
            "before_call:create=error@2, after_commit=error,after_call=delay(0s)".parse().unwrap();
        let create = Some("create");
        assert_eq!(points.hit(Point::BeforeCall, create).await, Ok(()));
        assert_eq!(points.hit(Point::BeforeCall, Some("revoke")).await, Ok(()));
        assert_eq!(points.hit(Point::BeforeCall, create).await, Err(Injected));
        assert_eq!(points.hit(Point::BeforeCall, create).await, Ok(()));
        assert_eq!(points.hit(Point::AfterCommit, None).await, Err(Injected));
        assert_eq!(points.hit(Point::AfterCommit, create).await, Err(Injected));
        assert_eq!(points.hit(Point::AfterCall, create).await, Ok(()));
    }

    #[tokio::test]
    #[should_panic(expected = "a failure point says so: before_commit")]
    async fn a_rule_can_panic() {
        let points: FailPoints = "before_commit=panic".parse().unwrap();
        let _ = points.hit(Point::BeforeCommit, None).await;
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for bad in [
            "nowhere=kill",
            "before_call",
            "before_call=jump",
            "before_call:jump=kill",
            "before_call=kill@0",
            "before_call=delay(soon)",
        ] {
            let error = bad.parse::<FailPoints>().unwrap_err();
            assert!(error.to_string().starts_with(bad), "{error}");
        }
    }
}
