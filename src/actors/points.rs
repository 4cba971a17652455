//! Where this layer comes by the points of failure that a test may have armed.

use super::deps::Deps;
use crate::failpoints::{Injected, Point};
use crate::store::{StoreError, Unavailable};

impl Deps {
    /// Comes by a point.
    pub(super) async fn at(&self, point: Point, call: Option<&str>) -> Result<(), Injected> {
        match &self.failpoints {
            Some(failpoints) => failpoints.hit(point, call).await,
            None => Ok(()),
        }
    }

    /// Comes by the points on one side of a commit: one for what it announces, one for what it stores the
    /// outcome of.
    pub(super) async fn at_commit(
        &self,
        [commit, outcome]: [Point; 2],
        announced: impl Iterator<Item = &'static str>,
        answered: Option<&'static str>,
    ) -> Result<(), StoreError> {
        if self.failpoints.is_none() {
            return Ok(());
        }
        let mut calls: Vec<Option<&str>> = announced.map(Some).collect();
        if calls.is_empty() {
            calls.push(None);
        }
        for call in calls {
            self.at(commit, call).await.map_err(failed)?;
        }
        if answered.is_some() {
            self.at(outcome, answered).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(injected: Injected) -> StoreError {
    let detail = injected.to_string();
    StoreError::Unavailable { reason: Unavailable::Other, detail }
}
