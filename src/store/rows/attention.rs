//! A row that needs a person, whatever table it is from.

use sqlx::FromRow;
use uuid::Uuid;

use super::super::attention::{Source, SubjectKind};
use super::super::{AttentionItem, StoreError};
use super::decode::{maybe_word, small};
use crate::ids::{CredentialId, RevocationId, RotationId};
use crate::time::Timestamp;

#[derive(FromRow)]
pub(in crate::store) struct ItemRow {
    cluster_id: Option<String>,
    registry_id: Option<String>,
    rotation_id: Option<Uuid>,
    since: Timestamp,
    attempts: i64,
    last_error: Option<String>,
    next_attempt_at: Option<Timestamp>,
    id: Option<Uuid>,
}

impl ItemRow {
    pub(in crate::store) fn item(self, source: Source) -> Result<AttentionItem, StoreError> {
        let about = |kind: SubjectKind| self.id.filter(|_| source.subject() == kind);
        let (credential, revocation) =
            (about(SubjectKind::Credential), about(SubjectKind::Revocation));
        let subject = self.id.map(|id| id.to_string());
        let subject = subject.or_else(|| self.cluster_id.clone()).unwrap_or_default();
        Ok(AttentionItem {
            kind: source.kind(),
            cluster_id: maybe_word(self.cluster_id.as_deref(), "a cluster id")?,
            registry_id: maybe_word(self.registry_id.as_deref(), "a registry id")?,
            rotation_id: self.rotation_id.map(RotationId),
            credential_id: credential.map(CredentialId),
            revocation_id: revocation.map(RevocationId),
            since: self.since,
            attempts: small(self.attempts)?,
            last_error: self.last_error,
            next_attempt_at: self.next_attempt_at,
            subject,
            source,
        })
    }
}

/// Both databases understand these. `$1` is the latest `since` that counts; `($2, $3)` is the last row of the page
/// before.
macro_rules! break_glass {
    ($table:literal, $where:literal, $columns:literal, $since:literal, $id:literal) => {
        concat!(
            "SELECT b.cluster_id, CAST(NULL AS text) AS registry_id, CAST(NULL AS uuid) AS rotation_id, b.",
            $since,
            " AS since, ",
            $columns,
            " FROM ",
            $table,
            " b WHERE ",
            $where,
            " AND b.",
            $since,
            " <= $1 AND (b.",
            $since,
            ", b.",
            $id,
            ") > ($2, $3) ORDER BY b.",
            $since,
            ", b.",
            $id,
            " LIMIT $4"
        )
    };
}
macro_rules! counted {
    ($table:literal, $where:literal, $since:literal) => {
        concat!("SELECT count(*) FROM ", $table, " b WHERE ", $where, " AND b.", $since, " <= $1")
    };
}

/// Index: `break_glass_quarantined`.
pub(in crate::store) const BREAK_GLASS_QUARANTINED: &str = break_glass!(
    "break_glass",
    "b.quarantine_since IS NOT NULL",
    "CAST(0 AS bigint) AS attempts, CAST(NULL AS text) AS last_error, \
     b.quarantine_retry_at AS next_attempt_at, CAST(NULL AS uuid) AS id",
    "quarantine_since",
    "cluster_id"
);
/// The same.
pub(in crate::store) const BREAK_GLASS_QUARANTINED_COUNT: &str =
    counted!("break_glass", "b.quarantine_since IS NOT NULL", "quarantine_since");

/// Index: `break_glass_credentials_stuck`.
pub(in crate::store) const CREDENTIAL_STUCK: &str = break_glass!(
    "break_glass_credentials",
    "b.trouble_since IS NOT NULL AND b.state NOT IN ('revoked', 'denied', 'failed', 'expired')",
    "b.trouble_attempts AS attempts, b.trouble_last_error AS last_error, \
     b.next_attempt_at AS next_attempt_at, b.credential_id AS id",
    "trouble_since",
    "credential_id"
);
/// The same.
pub(in crate::store) const CREDENTIAL_STUCK_COUNT: &str = counted!(
    "break_glass_credentials",
    "b.trouble_since IS NOT NULL AND b.state NOT IN ('revoked', 'denied', 'failed', 'expired')",
    "trouble_since"
);

/// Index: `break_glass_revocations_stuck`.
pub(in crate::store) const REVOCATION_STUCK: &str = break_glass!(
    "break_glass_revocations",
    "b.trouble_since IS NOT NULL AND b.ended_at IS NULL",
    "b.trouble_attempts AS attempts, b.trouble_last_error AS last_error, \
     b.next_attempt_at AS next_attempt_at, b.revocation_id AS id",
    "trouble_since",
    "revocation_id"
);
/// The same.
pub(in crate::store) const REVOCATION_STUCK_COUNT: &str = counted!(
    "break_glass_revocations",
    "b.trouble_since IS NOT NULL AND b.ended_at IS NULL",
    "trouble_since"
);

/// Index: `break_glass_credentials_by_state`.
pub(in crate::store) const CREDENTIAL_DENIED: &str = break_glass!(
    "break_glass_credentials",
    "b.state = 'denied' AND NOT b.control",
    "b.trouble_attempts AS attempts, b.message AS last_error, \
     CAST(NULL AS timestamptz) AS next_attempt_at, b.credential_id AS id",
    "state_since",
    "credential_id"
);
/// The same.
pub(in crate::store) const CREDENTIAL_DENIED_COUNT: &str =
    counted!("break_glass_credentials", "b.state = 'denied' AND NOT b.control", "state_since");

/// Index: `break_glass_credentials_by_state`.
pub(in crate::store) const CREDENTIAL_FAILED: &str = break_glass!(
    "break_glass_credentials",
    "b.state = 'failed' AND NOT b.control",
    "b.trouble_attempts AS attempts, b.message AS last_error, \
     CAST(NULL AS timestamptz) AS next_attempt_at, b.credential_id AS id",
    "state_since",
    "credential_id"
);
/// The same.
pub(in crate::store) const CREDENTIAL_FAILED_COUNT: &str =
    counted!("break_glass_credentials", "b.state = 'failed' AND NOT b.control", "state_since");
