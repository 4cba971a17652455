//! Rows of the break-glass tables: their columns, what they mean, in which order they are bound.

use std::time::Duration;

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{OwnedBy, StoreError};
use super::decode::{count, maybe_word, small, word};
use crate::ids::{AuthorityId, CallToken, CredentialId, ReplicaId, RevocationId};
use crate::state::break_glass::{
    Announcement, Authority, BreakGlass, Call, Certificate, Credential, CredentialState,
    EndpointProgress, IssueStep, Revocation, StateName,
};
use crate::state::shared::{Quarantine, Trouble};
use crate::time::Timestamp;

/// The columns that every subject of a call has, last in each table.
macro_rules! work_columns {
    () => {
        "call, call_token, call_at, trouble_since, trouble_attempts, trouble_spent, \
         trouble_counting_since, trouble_blocked, trouble_last_error, trouble_refused, \
         next_attempt_at"
    };
}
pub(in crate::store) use work_columns;

macro_rules! work_changes {
    () => {
        "call = excluded.call, call_token = excluded.call_token, call_at = excluded.call_at, \
         trouble_since = excluded.trouble_since, trouble_attempts = excluded.trouble_attempts, \
         trouble_spent = excluded.trouble_spent, \
         trouble_counting_since = excluded.trouble_counting_since, \
         trouble_blocked = excluded.trouble_blocked, \
         trouble_last_error = excluded.trouble_last_error, \
         trouble_refused = excluded.trouble_refused, next_attempt_at = excluded.next_attempt_at"
    };
}
pub(in crate::store) use work_changes;

/// Binds [`work_columns`].
macro_rules! bind_work {
    ($query:expr, $of:expr) => {{
        let trouble = &$of.trouble;
        let call = $of.call;
        $query
            .bind(call.map(|running| <&'static str>::from(running.call)))
            .bind(call.map(|running| running.token.0))
            .bind(call.map(|running| running.at))
            .bind(trouble.since)
            .bind(i64::from(trouble.attempts))
            .bind(i64::try_from(trouble.spent.as_micros()).unwrap_or(i64::MAX))
            .bind(trouble.counting_since)
            .bind(trouble.blocked)
            .bind(trouble.last_error.as_deref())
            .bind(trouble.refused)
            .bind($of.next_attempt_at)
    }};
}
pub(in crate::store) use bind_work;

macro_rules! credential_columns {
    () => {
        concat!(
            "credential_id, username, signer, control, state, step, revocation_id, state_since, \
             message, requested_by, reason, decided_by, signing_request, expires_at, not_after, \
             signed_at, endpoints, created_at, accepted_at, issued_at, revoked_at, ",
            crate::store::rows::break_glass::work_columns!()
        )
    };
}
pub(in crate::store) use credential_columns;

macro_rules! revocation_columns {
    () => {
        concat!(
            "revocation_id, scope, state, state_since, signer, attempt, progress, cut_off, \
             bundle_version, endpoints, requested_by, reason, created_at, ended_at, ",
            crate::store::rows::break_glass::work_columns!()
        )
    };
}
pub(in crate::store) use revocation_columns;

macro_rules! authority_columns {
    () => {
        concat!(
            "authority_id, kind, made_at, not_after, ",
            crate::store::rows::break_glass::work_columns!()
        )
    };
}
pub(in crate::store) use authority_columns;

#[derive(FromRow)]
pub(in crate::store) struct HeadRow {
    pub version: i64,
    bundle_version: i64,
    confirmed_version: i64,
    quarantine_since: Option<Timestamp>,
    quarantine_retry_at: Option<Timestamp>,
    created_at: Timestamp,
    owner: Option<Uuid>,
    epoch: i64,
}

impl HeadRow {
    /// Who may make its calls.
    pub(in crate::store) fn ownership(&self) -> Result<OwnedBy, StoreError> {
        Ok(OwnedBy { owner: self.owner.map(ReplicaId), epoch: count(self.epoch)? })
    }

    /// The working set without what hangs on it.
    pub(in crate::store) fn record(
        &self,
        cluster_id: &crate::ids::ClusterId,
    ) -> Result<BreakGlass, StoreError> {
        let quarantine = match (self.quarantine_since, self.quarantine_retry_at) {
            (Some(since), Some(retry_at)) => Some(Quarantine { since, retry_at }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(StoreError::corrupt("half a quarantine"));
            }
        };
        Ok(BreakGlass {
            bundle_version: count(self.bundle_version)?,
            confirmed_version: count(self.confirmed_version)?,
            quarantine,
            ..BreakGlass::new(cluster_id.clone(), self.created_at)
        })
    }
}

#[derive(FromRow)]
struct WorkRow {
    call: Option<String>,
    call_token: Option<Uuid>,
    call_at: Option<Timestamp>,
    trouble_since: Option<Timestamp>,
    trouble_attempts: i64,
    trouble_spent: i64,
    trouble_counting_since: Option<Timestamp>,
    trouble_blocked: bool,
    trouble_last_error: Option<String>,
    trouble_refused: bool,
    next_attempt_at: Timestamp,
}

impl WorkRow {
    fn call(&self) -> Result<Option<Announcement>, StoreError> {
        let call: Option<Call> = maybe_word(self.call.as_deref(), "a call")?;
        match (call, self.call_token, self.call_at) {
            (Some(call), Some(token), Some(at)) => {
                Ok(Some(Announcement { call, token: CallToken(token), at }))
            }
            (None, None, None) => Ok(None),
            _ => Err(StoreError::corrupt("half an announcement")),
        }
    }

    fn trouble(self) -> Result<Trouble, StoreError> {
        Ok(Trouble {
            since: self.trouble_since,
            attempts: small(self.trouble_attempts)?,
            spent: Duration::from_micros(count(self.trouble_spent)?),
            counting_since: self.trouble_counting_since,
            blocked: self.trouble_blocked,
            last_error: self.trouble_last_error,
            refused: self.trouble_refused,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct CredentialRow {
    credential_id: Uuid,
    username: String,
    signer: String,
    control: bool,
    state: String,
    step: Option<String>,
    revocation_id: Option<Uuid>,
    state_since: Timestamp,
    message: String,
    requested_by: String,
    reason: Option<String>,
    decided_by: Option<String>,
    signing_request: Option<String>,
    expires_at: Timestamp,
    not_after: Option<Timestamp>,
    signed_at: Option<Timestamp>,
    endpoints: Json<Vec<EndpointProgress>>,
    created_at: Option<Timestamp>,
    accepted_at: Option<Timestamp>,
    issued_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    #[sqlx(flatten)]
    work: WorkRow,
}

/// The columns that only some states have.
pub(in crate::store) fn step(state: CredentialState) -> Option<&'static str> {
    match state {
        CredentialState::Issuing { step } => Some(step.into()),
        CredentialState::Requested
        | CredentialState::Accepted
        | CredentialState::Active
        | CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => None,
    }
}

fn state(
    name: StateName,
    step: Option<IssueStep>,
    revocation: Option<Uuid>,
) -> Result<CredentialState, StoreError> {
    let step = || step.ok_or_else(|| StoreError::corrupt("issuing without a step"));
    let revocation = || {
        let id = revocation.map(RevocationId);
        id.ok_or_else(|| StoreError::corrupt("revoked by no revocation"))
    };
    Ok(match name {
        StateName::Requested => CredentialState::Requested,
        StateName::Accepted => CredentialState::Accepted,
        StateName::Issuing => CredentialState::Issuing { step: step()? },
        StateName::Active => CredentialState::Active,
        StateName::AwaitingRevocation => {
            CredentialState::AwaitingRevocation { revocation: revocation()? }
        }
        StateName::Revoking => CredentialState::Revoking { revocation: revocation()? },
        StateName::Revoked => CredentialState::Revoked { revocation: revocation()? },
        StateName::Denied => CredentialState::Denied,
        StateName::Failed => CredentialState::Failed,
        StateName::Expired => CredentialState::Expired,
    })
}

impl TryFrom<CredentialRow> for Credential {
    type Error = StoreError;
    fn try_from(row: CredentialRow) -> Result<Self, StoreError> {
        let step = maybe_word(row.step.as_deref(), "a step")?;
        let certificate = match (row.not_after, row.signed_at) {
            (Some(not_after), Some(signed_at)) => Some(Certificate { not_after, signed_at }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(StoreError::corrupt("half a certificate"));
            }
        };
        Ok(Self {
            id: CredentialId(row.credential_id),
            username: row.username,
            signer: word(&row.signer, "a signer")?,
            control: row.control,
            state: state(word(&row.state, "a credential's state")?, step, row.revocation_id)?,
            state_since: row.state_since,
            message: row.message,
            requested_by: row.requested_by,
            reason: row.reason,
            decided_by: row.decided_by,
            signing_request: row.signing_request,
            expires_at: row.expires_at,
            certificate,
            endpoints: row.endpoints.0,
            call: row.work.call()?,
            next_attempt_at: row.work.next_attempt_at,
            trouble: row.work.trouble()?,
            created_at: row.created_at,
            accepted_at: row.accepted_at,
            issued_at: row.issued_at,
            revoked_at: row.revoked_at,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct RevocationRow {
    revocation_id: Uuid,
    scope: String,
    state: String,
    state_since: Timestamp,
    signer: String,
    attempt: i64,
    progress: Option<String>,
    cut_off: Option<Timestamp>,
    bundle_version: i64,
    endpoints: Json<Vec<EndpointProgress>>,
    requested_by: String,
    reason: Option<String>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
    #[sqlx(flatten)]
    work: WorkRow,
}

impl TryFrom<RevocationRow> for Revocation {
    type Error = StoreError;
    fn try_from(row: RevocationRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: RevocationId(row.revocation_id),
            scope: word(&row.scope, "a scope")?,
            state: word(&row.state, "a revocation's state")?,
            state_since: row.state_since,
            signer: word(&row.signer, "a signer")?,
            attempt: small(row.attempt)?,
            progress: row.progress,
            cut_off: row.cut_off,
            bundle_version: count(row.bundle_version)?,
            endpoints: row.endpoints.0,
            call: row.work.call()?,
            next_attempt_at: row.work.next_attempt_at,
            trouble: row.work.trouble()?,
            requested_by: row.requested_by,
            reason: row.reason,
            created_at: row.created_at,
            ended_at: row.ended_at,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct AuthorityRow {
    authority_id: Uuid,
    kind: String,
    made_at: Option<Timestamp>,
    not_after: Option<Timestamp>,
    #[sqlx(flatten)]
    work: WorkRow,
}

impl TryFrom<AuthorityRow> for Authority {
    type Error = StoreError;
    fn try_from(row: AuthorityRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: AuthorityId(row.authority_id),
            kind: word(&row.kind, "an authority's kind")?,
            made_at: row.made_at,
            not_after: row.not_after,
            dropped: false,
            call: row.work.call()?,
            next_attempt_at: row.work.next_attempt_at,
            trouble: row.work.trouble()?,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct KeyRow {
    pub owner: Uuid,
    pub purpose: String,
    pub key_id: String,
    pub sealed: Vec<u8>,
}
