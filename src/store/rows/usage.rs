//! The row of an account whose use is read.

use super::super::{StoreError, UsageCandidate};
use super::decode::word;
use crate::ids::AccountId;
use crate::time::Timestamp;

#[derive(sqlx::FromRow)]
pub(in crate::store) struct CandidateRow {
    cluster_id: String,
    account_id: uuid::Uuid,
    name: String,
    phase: String,
    verified_at: Option<Timestamp>,
    unsure: bool,
    served_since: Timestamp,
}

impl CandidateRow {
    pub(in crate::store) fn candidate(self) -> Result<UsageCandidate, StoreError> {
        Ok(UsageCandidate {
            cluster_id: word(&self.cluster_id, "a cluster id")?,
            account_id: AccountId(self.account_id),
            name: word(&self.name, "an account name")?,
            phase: word(&self.phase, "a phase")?,
            verified_at: self.verified_at,
            unsure: self.unsure,
            served_since: self.served_since,
        })
    }
}

/// The columns and the condition that both databases share; `$1` is the registry, `$2` the last account of the
/// page before, `$3` the number of rows.
macro_rules! candidates {
    ($only:literal) => {
        concat!(
            "SELECT a.cluster_id, a.account_id, a.name, a.phase, a.verified_at, \
             (a.call IS NOT NULL OR a.trouble_since IS NOT NULL) AS unsure, p.served_since \
             FROM pull_secrets p JOIN accounts a ON a.cluster_id = p.cluster_id \
             WHERE a.registry_id = $1 AND a.phase IN ('serving', 'retiring') \
             AND p.served_since IS NOT NULL AND a.account_id > $2",
            $only,
            " ORDER BY a.account_id LIMIT $3"
        )
    };
}

/// Index: `pull_secrets_by_state`, then `accounts_live`.
pub(in crate::store) const ROTATING: &str = candidates!(" AND p.state = 'rotating'");
/// Index: the unique one of `accounts.account_id`, a daily walk.
pub(in crate::store) const ALL: &str = candidates!("");

/// Index: the primary key. A reading that is due, taken until `$4`; one whose due time lies beyond `$5` was put
/// off by a clock that has gone back since.
pub(in crate::store) const CLAIM: &str = "INSERT INTO usage_readings (registry_id, scope, due_at) VALUES ($1, $2, $4) \
     ON CONFLICT (registry_id, scope) DO UPDATE SET due_at = excluded.due_at \
     WHERE usage_readings.due_at <= $3 OR usage_readings.due_at > $5 RETURNING read_until";

/// Index: the primary key.
pub(in crate::store) const DONE: &str =
    "UPDATE usage_readings SET read_until = $3 WHERE registry_id = $1 AND scope = $2";
