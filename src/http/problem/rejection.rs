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
            Rejection::NotThatRotation | Rejection::Phase { .. } => conflict.into(),
            Rejection::TimePassed { earliest } => {
                let rule = Constraint::Format { format: "date-time" };
                let message = format!("must be later than {earliest}");
                ApiError::field(FieldError::new("next_rotation_at", rule, message))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Generation, RotationId};
    use crate::state::pull_secret::RotationStatus;
    use actix_web::ResponseError;
    use uuid::Uuid;

    fn told(rejection: Rejection, registries: &[&str]) -> ApiError {
        let cluster_id = "cls-1".parse().unwrap();
        let registries: Vec<RegistryId> = registries.iter().map(|id| id.parse().unwrap()).collect();
        let now = Timestamp::from_micros(1_000_000);
        Refused { cluster_id: &cluster_id, registries: &registries, now }.because(&rejection)
    }

    #[test]
    fn each_rejection_has_its_status() {
        let running = Rejection::RotationRunning {
            rotation_id: RotationId(Uuid::nil()),
            status: RotationStatus::InProgress,
            started_at: None,
        };
        let later = Timestamp::from_micros(61_000_000);
        for (rejection, status) in [
            (Rejection::NoRecord, 404),
            (Rejection::State { state: StateName::Revoked }, 404),
            (Rejection::State { state: StateName::Revoking }, 409),
            (running, 409),
            (Rejection::NotThatRotation, 409),
            (Rejection::Phase { phase: "revoking_old" }, 409),
            (Rejection::UnknownRegistry("x".to_owned()), 400),
            (Rejection::NoRegistry, 400),
            (Rejection::RegistryMissing(vec!["quay".to_owned()]), 409),
            (Rejection::NotServed { served: Generation(3) }, 409),
            (Rejection::NotInUse, 401),
            (Rejection::TooManyConsumers { limit: 64 }, 422),
            (Rejection::NotCurrent, 500),
            (Rejection::Quarantined { retry_at: later }, 503),
            (Rejection::TimePassed { earliest: later }, 400),
        ] {
            let told = told(rejection.clone(), &["quay"]);
            assert_eq!(told.status_code(), status, "{rejection:?}: {told:?}");
        }
        assert_eq!(told(Rejection::NoRegistry, &[]).status_code(), 503);
    }

    #[test]
    fn a_rejection_brings_what_explains_it() {
        match told(Rejection::UnknownRegistry("qauy".to_owned()), &["quay", "rhit"]) {
            ApiError::Fields(errors) => {
                let expected = FieldError::not_one_of("registries", "qauy", &["quay", "rhit"]);
                assert_eq!(errors, [expected]);
            }
            other => panic!("{other:?}"),
        }
        match told(Rejection::NotServed { served: Generation(3) }, &[]) {
            ApiError::Conflict(conflict) => {
                assert_eq!(conflict.served_generation, Some(Generation(3)));
                assert_eq!(conflict.cluster_id.unwrap().as_str(), "cls-1");
            }
            other => panic!("{other:?}"),
        }
        let retry_at = Timestamp::from_micros(61_000_000);
        match told(Rejection::Quarantined { retry_at }, &[]) {
            ApiError::Unavailable { retry_after, .. } => assert_eq!(retry_after.as_secs(), 60),
            other => panic!("{other:?}"),
        }
    }
}
