//! What a client is told when the machine says no.

use super::{ApiError, Conflict, Constraint, FieldError, Scheme};
use crate::ids::{ClusterId, RegistryId};
use crate::state::pull_secret::{Rejection, StateName};
use crate::time::Timestamp;

/// A rejection, and what has to be known besides to explain it.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// The cluster that the command was for.
    pub cluster_id: &'a ClusterId,
    /// The registries that a request may name.
    pub registries: &'a [RegistryId],
    /// The time of the refusal.
    pub now: Timestamp,
}

impl Refused<'_> {
    /// The error that goes with the machine's answer.
    #[must_use]
    pub fn because(&self, rejection: &Rejection) -> ApiError {
        let conflict = Conflict {
            detail: rejection.to_string(),
            cluster_id: Some(self.cluster_id.clone()),
            ..Conflict::default()
        };
        match rejection {
            Rejection::NoRecord | Rejection::State { state: StateName::Revoked } => {
                ApiError::no_pull_secret(self.cluster_id.clone())
            }
            Rejection::State { state } => Conflict { state: Some(*state), ..conflict }.into(),
            Rejection::RotationRunning { rotation_id, status, started_at } => Conflict {
                state: Some(StateName::Rotating),
                rotation_id: Some(*rotation_id),
                rotation_status: Some(*status),
                started_at: *started_at,
                ..conflict
            }
            .into(),
            Rejection::NotThatRotation | Rejection::Phase { .. } | Rejection::NotYet => {
                conflict.into()
            }
            Rejection::UnknownRegistry(name) => {
                ApiError::field(FieldError::not_one_of("registries", name, &self.names()))
            }
            Rejection::NoRegistry if self.registries.is_empty() => {
                ApiError::busy("no registry is enabled in the configuration")
            }
            Rejection::NoRegistry => {
                let rule = Constraint::MinLength { min_length: 1 };
                ApiError::field(FieldError::new("registries", rule, "must name at least one"))
            }
            Rejection::RegistryMissing(missing) => {
                Conflict { registries: missing.clone(), ..conflict }.into()
            }
            Rejection::NotServed { served } => {
                Conflict { served_generation: Some(*served), ..conflict }.into()
            }
            // The same words for an unknown, a revoked and a foreign credential.
            Rejection::NotInUse => ApiError::BadCredentials(Scheme::Basic),
            Rejection::TooManyConsumers { limit } => {
                let max_value = i64::try_from(*limit).unwrap_or(i64::MAX);
                let rule = Constraint::Max { max_value };
                ApiError::rule(FieldError::new("consumer", rule, rejection.to_string()))
            }
            Rejection::NotCurrent => ApiError::internal(rejection),
            Rejection::Quarantined { retry_at } => ApiError::Unavailable {
                detail: rejection.to_string(),
                retry_after: retry_at.since(self.now),
                cause: None,
            },
        }
    }

    fn names(&self) -> Vec<&str> {
        self.registries.iter().map(RegistryId::as_str).collect()
    }
}
