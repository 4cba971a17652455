//! States with data of their own, laid out flat as columns, and back. The same for every backend.

use crate::ids::{Generation, RegistryId};
use crate::state::pull_secret::{
    End, OnDeadline, RecordState, Refusal, RetireReason, Rotation, RotationError, RotationPhase,
    Served, StateName,
};
use crate::time::Timestamp;

use super::StoreError;

/// [`RecordState`] without its running rotation, which is a row of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateColumns {
    pub state: StateName,
    pub served: Option<Served>,
    pub issuing_generation: Option<Generation>,
    pub refusal: Option<Refusal>,
}

impl StateColumns {
    pub(super) fn of(state: &RecordState) -> Self {
        let mut columns =
            Self { state: state.name(), served: None, issuing_generation: None, refusal: None };
        match state {
            RecordState::Issuing { generation } => columns.issuing_generation = *generation,
            RecordState::Active { served } | RecordState::Rotating { served, .. } => {
                columns.served = Some(*served);
            }
            RecordState::Denied(refusal) | RecordState::Failed(refusal) => {
                columns.refusal = Some(refusal.clone());
            }
            RecordState::Revoking | RecordState::Revoked => {}
        }
        columns
    }

    pub(super) fn rebuild(self, running: Option<Rotation>) -> Result<RecordState, StoreError> {
        let served = || self.served.ok_or_else(|| StoreError::corrupt("no served generation"));
        let refusal = || self.refusal.clone().ok_or_else(|| StoreError::corrupt("no refusal"));
        if running.is_some() && self.state != StateName::Rotating {
            return Err(StoreError::corrupt("a running rotation of a record that is not rotating"));
        }
        Ok(match self.state {
            StateName::Issuing => RecordState::Issuing { generation: self.issuing_generation },
            StateName::Active => RecordState::Active { served: served()? },
            StateName::Rotating => {
                let rotation =
                    running.ok_or_else(|| StoreError::corrupt("rotating without a rotation"))?;
                RecordState::Rotating { served: served()?, rotation: Box::new(rotation) }
            }
            StateName::Revoking => RecordState::Revoking,
            StateName::Revoked => RecordState::Revoked,
            StateName::Denied => RecordState::Denied(refusal()?),
            StateName::Failed => RecordState::Failed(refusal()?),
        })
    }
}

/// [`RotationPhase`]; `phase` is its own word, which for an ended rotation is how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PhaseColumns {
    pub phase: String,
    pub deadline: Option<Timestamp>,
    pub on_deadline: Option<OnDeadline>,
    pub drifted: bool,
    pub rollback_at: Option<Timestamp>,
    pub decided_at: Option<Timestamp>,
    pub decided_why: Option<RetireReason>,
    pub ends_as: Option<String>,
    pub old_credentials_revoked: Option<bool>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub error_registry_id: Option<RegistryId>,
}

impl PhaseColumns {
    pub(super) fn of(phase: &RotationPhase) -> Self {
        let mut columns = Self { phase: phase.name().to_owned(), ..Self::default() };
        match phase {
            RotationPhase::Pending
            | RotationPhase::CreatingCredentials
            | RotationPhase::VerifyingCredentials => {}
            RotationPhase::DualCredentialPeriod { deadline, on_deadline, drifted, rollback_at } => {
                columns.deadline = Some(*deadline);
                columns.on_deadline = Some(*on_deadline);
                columns.drifted = *drifted;
                columns.rollback_at = *rollback_at;
            }
            RotationPhase::RevokingOld { decided_at, why, deadline, on_deadline } => {
                columns.decided_at = Some(*decided_at);
                columns.decided_why = Some(*why);
                columns.deadline = Some(*deadline);
                columns.on_deadline = Some(*on_deadline);
            }
            RotationPhase::RollingBack { deadline, drifted, decided } => {
                columns.deadline = Some(*deadline);
                columns.drifted = *drifted;
                columns.decided_at = decided.map(|(at, _)| at);
                columns.decided_why = decided.map(|(_, why)| why);
            }
            RotationPhase::RemovingNew { end } | RotationPhase::Ended(end) => columns.end(end),
        }
        columns
    }

    fn end(&mut self, end: &End) {
        self.ends_as = Some(RotationPhase::Ended(end.clone()).name().to_owned());
        if let End::Completed { old_credentials_revoked } = end {
            self.old_credentials_revoked = Some(*old_credentials_revoked);
        }
        if let Some(error) = end.error() {
            self.error_code = Some(error.code.clone());
            self.error_message = Some(error.message.clone());
            self.error_registry_id.clone_from(&error.registry_id);
        }
    }

    pub(super) fn rebuild(self) -> Result<RotationPhase, StoreError> {
        let deadline = || self.deadline.ok_or_else(|| StoreError::corrupt("no deadline"));
        let on_deadline = || self.on_deadline.ok_or_else(|| StoreError::corrupt("no on_deadline"));
        Ok(match self.phase.as_str() {
            "pending" => RotationPhase::Pending,
            "creating_credentials" => RotationPhase::CreatingCredentials,
            "verifying_credentials" => RotationPhase::VerifyingCredentials,
            "dual_credential_period" => RotationPhase::DualCredentialPeriod {
                deadline: deadline()?,
                on_deadline: on_deadline()?,
                drifted: self.drifted,
                rollback_at: self.rollback_at,
            },
            "revoking_old" => RotationPhase::RevokingOld {
                decided_at: self.decided_at.ok_or_else(|| StoreError::corrupt("no decision"))?,
                why: self.decided_why.ok_or_else(|| StoreError::corrupt("no decision"))?,
                deadline: deadline()?,
                on_deadline: on_deadline()?,
            },
            "rolling_back" => RotationPhase::RollingBack {
                deadline: deadline()?,
                drifted: self.drifted,
                decided: self.decided_at.zip(self.decided_why),
            },
            "removing_new" => RotationPhase::RemovingNew { end: self.rebuild_end()? },
            end if self.ends_as.as_deref() == Some(end) => {
                RotationPhase::Ended(self.rebuild_end()?)
            }
            _ => return Err(StoreError::corrupt("an unknown phase of a rotation")),
        })
    }

    fn rebuild_end(self) -> Result<End, StoreError> {
        let registry_id = self.error_registry_id;
        let error = match (self.error_code, self.error_message) {
            (Some(code), Some(message)) => Some(RotationError { code, message, registry_id }),
            _ => None,
        };
        match self.ends_as.as_deref() {
            Some("completed") => Ok(End::Completed {
                old_credentials_revoked: self.old_credentials_revoked.unwrap_or(false),
            }),
            Some("failed") => {
                error.map(End::Failed).ok_or_else(|| StoreError::corrupt("a failure without error"))
            }
            Some("cancelled") => Ok(End::Cancelled(error)),
            Some("rolled_back") => Ok(End::RolledBack),
            _ => Err(StoreError::corrupt("an unknown end of a rotation")),
        }
    }
}

/// Whether a deadline that has passed is a matter for a person in this phase.
pub(super) fn awaits_deadline(phase: &RotationPhase) -> bool {
    match phase {
        RotationPhase::DualCredentialPeriod { .. } | RotationPhase::RollingBack { .. } => true,
        RotationPhase::Pending
        | RotationPhase::CreatingCredentials
        | RotationPhase::VerifyingCredentials
        | RotationPhase::RevokingOld { .. }
        | RotationPhase::RemovingNew { .. }
        | RotationPhase::Ended(_) => false,
    }
}
