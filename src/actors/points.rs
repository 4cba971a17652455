//! Where this layer comes by the points of failure that a test may have armed.

use super::deps::Deps;
use super::step::StepError;
use crate::failpoints::{Injected, Point};
use crate::state::pull_secret::{Call, Command};
use crate::store::{StoreError, Unavailable};

impl Deps {
    /// Comes by a point.
    pub(super) async fn at(&self, point: Point, call: Option<Call>) -> Result<(), Injected> {
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
        announced: impl Iterator<Item = Call>,
        command: &Command,
    ) -> Result<(), StepError> {
        if self.failpoints.is_none() {
            return Ok(());
        }
        let mut calls: Vec<Option<Call>> = announced.map(Some).collect();
        if calls.is_empty() {
            calls.push(None);
        }
        for call in calls {
            self.at(commit, call).await.map_err(failed)?;
        }
        if let Command::Answer { answer, .. } = command {
            self.at(outcome, Some(answer.call())).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(injected: Injected) -> StepError {
    let detail = injected.to_string();
    StepError::Store(StoreError::Unavailable { reason: Unavailable::Other, detail })
}
