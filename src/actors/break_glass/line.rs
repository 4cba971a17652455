//! One at a time: whoever wants something of a cluster stands in its line. Knows nothing of what they want.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::ids::ClusterId;

/// The lines of all clusters in which somebody stands, or stood a moment ago.
pub struct Lines {
    lines: Mutex<HashMap<ClusterId, Arc<Line>>>,
    most: usize,
}

/// One cluster's.
pub struct Line {
    turn: tokio::sync::Mutex<()>,
    standing: AtomicUsize,
    changed: watch::Sender<u64>,
    panics: Mutex<VecDeque<Instant>>,
}

/// Whoever holds it has its turn, or waits for it.
pub struct Place<'a> {
    line: &'a Line,
}

impl Lines {
    /// Lines in which at most so many may stand.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { lines: Mutex::default(), most }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<ClusterId, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cluster's.
    #[must_use]
    pub fn of(&self, cluster_id: &ClusterId) -> Arc<Line> {
        let new = || {
            Arc::new(Line {
                turn: tokio::sync::Mutex::default(),
                standing: AtomicUsize::new(0),
                changed: watch::Sender::new(0),
                panics: Mutex::default(),
            })
        };
        self.lines().entry(cluster_id.clone()).or_insert_with(new).clone()
    }

    /// A place at its end; none when too many stand there.
    #[must_use]
    pub fn join<'a>(&self, line: &'a Line) -> Option<Place<'a>> {
        if line.standing.fetch_add(1, Ordering::AcqRel) >= self.most {
            line.standing.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Place { line })
    }

    /// Forgets where nobody stands.
    pub fn tidy(&self, panics_count_for: Duration) {
        self.lines().retain(|_, line| {
            let recent = |at: &Instant| at.elapsed() < panics_count_for;
            Arc::strong_count(line) > 1 || line.panics().back().is_some_and(recent)
        });
    }
}

impl Place<'_> {
    /// Waits for its turn.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.line.turn.lock().await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.standing.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Line {
    /// Something was stored.
    pub fn tell(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Hears of what is stored from now on.
    #[must_use]
    pub fn hear(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn panics(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's code panicked; true when that was once too often.
    #[must_use]
    pub fn panicked(&self, limit: usize, window: Duration) -> bool {
        let mut panics = self.panics();
        panics.push_back(Instant::now());
        while panics.front().is_some_and(|at| at.elapsed() > window) {
            panics.pop_front();
        }
        if panics.len() < limit {
            return false;
        }
        panics.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_after_the_other_and_not_too_many() {
        let lines = Lines::new(2);
        let line = lines.of(&"cls-1".parse().unwrap());
        let (first, second) = (lines.join(&line).unwrap(), lines.join(&line).unwrap());
        assert!(lines.join(&line).is_none());
        let turn = first.turn().await;
        assert!(line.turn.try_lock().is_err());
        drop(turn);
        drop(second.turn().await);
        drop(first);
        assert!(lines.join(&line).is_some());
        // Another cluster's line is another one.
        let other = lines.of(&"cls-2".parse().unwrap());
        assert!(!Arc::ptr_eq(&line, &other));
    }

    #[test]
    fn a_line_in_which_nobody_stands_is_forgotten() {
        let lines = Lines::new(2);
        let (id, minute) = ("cls-1".parse().unwrap(), Duration::from_secs(60));
        let line = lines.of(&id);
        lines.tidy(minute);
        assert!(Arc::ptr_eq(&line, &lines.of(&id)), "somebody holds it");
        assert!(!line.panicked(3, minute));
        drop(line);
        lines.tidy(minute);
        assert_eq!(lines.lines().len(), 1, "its panics still count");
        lines.tidy(Duration::ZERO);
        assert_eq!(lines.lines().len(), 0);
    }

    #[test]
    fn the_last_panic_within_the_window_is_once_too_often() {
        let lines = Lines::new(2);
        let line = lines.of(&"cls-1".parse().unwrap());
        let minute = Duration::from_secs(60);
        assert_eq!([(); 4].map(|()| line.panicked(3, minute)), [false, false, true, false]);
        assert!(!line.panicked(2, Duration::ZERO), "what is older does not count");
    }
}
