//! What needs a person: per kind one indexed statement, the oldest first.

use sqlx::sqlite::{SqliteConnection, SqlitePool};
use strum::VariantArray;

use super::super::attention::{Source, latest, plan, subject_id};
use super::super::rows::attention::{self as shared, ItemRow};
use super::super::rows::decode::count;
use super::super::{
    AttentionFilter, AttentionItem, Cursor, Page, StoreError, StuckAfter, TroubleCounts,
};
use super::error::map;
use crate::time::Timestamp;

// ?1 is the latest `since` that counts; (?2, ?3) is the last row of the page before.
macro_rules! number {
    ($from:expr) => {
        concat!("SELECT count(*)", $from)
    };
}
macro_rules! of_accounts {
    ($from:expr, $since:literal) => {
        concat!(
            "SELECT a.cluster_id, a.registry_id, (SELECT r.rotation_id FROM rotations r \
             WHERE r.cluster_id = a.cluster_id AND r.running = 1) AS rotation_id, a.",
            $since,
            " AS since, a.trouble_attempts AS attempts, a.trouble_last_error AS last_error, \
             a.next_attempt_at AS next_attempt_at, a.account_id AS id",
            $from,
            " AND (a.",
            $since,
            ", a.account_id) > (?2, ?3) ORDER BY a.",
            $since,
            ", a.account_id LIMIT ?4"
        )
    };
}
macro_rules! of_records {
    ($from:expr, $since:literal) => {
        concat!(
            "SELECT p.cluster_id, p.refusal_registry_id AS registry_id, NULL AS rotation_id, p.",
            $since,
            " AS since, 0 AS attempts, p.refusal_message AS last_error, \
             p.quarantine_retry_at AS next_attempt_at, NULL AS id",
            $from,
            " AND (p.",
            $since,
            ", p.cluster_id) > (?2, ?3) ORDER BY p.",
            $since,
            ", p.cluster_id LIMIT ?4"
        )
    };
}

macro_rules! restored {
    () => {
        " FROM restores r WHERE r.acknowledged_at IS NULL AND r.restored_at <= ?1"
    };
}
macro_rules! drifted {
    () => {
        " FROM accounts a WHERE a.drifted_since IS NOT NULL AND a.drifted_since <= ?1"
    };
}
macro_rules! stuck {
    () => {
        " FROM accounts a INDEXED BY accounts_stuck WHERE a.trouble_since IS NOT NULL \
         AND a.phase NOT IN ('gone', 'residue') AND a.trouble_since <= ?1"
    };
}
macro_rules! irrevocable {
    () => {
        " FROM accounts a INDEXED BY accounts_residue WHERE a.phase = 'residue' \
         AND a.trouble_since <= ?1"
    };
}
macro_rules! quarantined {
    () => {
        " FROM pull_secrets p WHERE p.quarantine_since IS NOT NULL AND p.quarantine_since <= ?1"
    };
}
macro_rules! denied {
    () => {
        " FROM pull_secrets p WHERE p.state = 'denied' AND p.refusal_registry_id IS NOT NULL \
         AND p.state_since <= ?1"
    };
}
macro_rules! failed {
    () => {
        " FROM pull_secrets p WHERE p.state = 'failed' AND p.refusal_registry_id IS NOT NULL \
         AND p.state_since <= ?1"
    };
}
macro_rules! overdue {
    () => {
        " FROM rotations r INDEXED BY rotations_deadline \
         WHERE r.phase IN ('dual_credential_period', 'rolling_back') AND r.deadline <= ?1"
    };
}

/// Index: `restores_open`; there is at most one row.
pub(super) const RESTORED: &str = concat!(
    "SELECT NULL AS cluster_id, NULL AS registry_id, NULL AS rotation_id, \
     r.restored_at AS since, 0 AS attempts, r.reason AS last_error, \
     NULL AS next_attempt_at, NULL AS id",
    restored!(),
    " AND (r.restored_at, '') > (?2, ?3) ORDER BY r.restored_at LIMIT ?4"
);
const RESTORED_COUNT: &str = number!(restored!());
/// Index: `accounts_drifted`.
pub(super) const DRIFTED: &str = of_accounts!(drifted!(), "drifted_since");
const DRIFTED_COUNT: &str = number!(drifted!());
/// Index: `accounts_stuck`.
pub(super) const STUCK: &str = of_accounts!(stuck!(), "trouble_since");
const STUCK_COUNT: &str = number!(stuck!());
/// Index: `accounts_residue`.
pub(super) const IRREVOCABLE: &str = of_accounts!(irrevocable!(), "trouble_since");
const IRREVOCABLE_COUNT: &str = number!(irrevocable!());
/// Index: `pull_secrets_quarantined`.
pub(super) const QUARANTINED: &str = of_records!(quarantined!(), "quarantine_since");
const QUARANTINED_COUNT: &str = number!(quarantined!());
/// Index: `pull_secrets_refused`.
pub(super) const DENIED: &str = of_records!(denied!(), "state_since");
const DENIED_COUNT: &str = number!(denied!());
/// Index: `pull_secrets_refused`.
pub(super) const FAILED: &str = of_records!(failed!(), "state_since");
const FAILED_COUNT: &str = number!(failed!());
/// Index: `rotations_deadline`.
pub(super) const OVERDUE: &str = concat!(
    "SELECT r.cluster_id, NULL AS registry_id, r.rotation_id, r.deadline AS since, \
     0 AS attempts, NULL AS last_error, NULL AS next_attempt_at, r.rotation_id AS id",
    overdue!(),
    " AND (r.deadline, r.rotation_id) > (?2, ?3) ORDER BY r.deadline, r.rotation_id LIMIT ?4"
);
const OVERDUE_COUNT: &str = number!(overdue!());

/// The statements of a source: its rows, and how many there are.
const fn statements(source: Source) -> (&'static str, &'static str) {
    match source {
        Source::Restored => (RESTORED, RESTORED_COUNT),
        Source::Drifted => (DRIFTED, DRIFTED_COUNT),
        Source::Quarantined => (QUARANTINED, QUARANTINED_COUNT),
        Source::BreakGlassQuarantined => {
            (shared::BREAK_GLASS_QUARANTINED, shared::BREAK_GLASS_QUARANTINED_COUNT)
        }
        Source::Overdue => (OVERDUE, OVERDUE_COUNT),
        Source::Stuck => (STUCK, STUCK_COUNT),
        Source::CredentialStuck => (shared::CREDENTIAL_STUCK, shared::CREDENTIAL_STUCK_COUNT),
        Source::RevocationStuck => (shared::REVOCATION_STUCK, shared::REVOCATION_STUCK_COUNT),
        Source::Irrevocable => (IRREVOCABLE, IRREVOCABLE_COUNT),
        Source::Denied => (DENIED, DENIED_COUNT),
        Source::CredentialDenied => (shared::CREDENTIAL_DENIED, shared::CREDENTIAL_DENIED_COUNT),
        Source::Failed => (FAILED, FAILED_COUNT),
        Source::CredentialFailed => (shared::CREDENTIAL_FAILED, shared::CREDENTIAL_FAILED_COUNT),
    }
}

pub(super) async fn list(
    reader: &SqlitePool,
    filter: &AttentionFilter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page<AttentionItem>, StoreError> {
    let parts = plan(filter, cursor)?;
    let wanted = i64::from(limit) + 1;
    let mut tx = reader.begin().await.map_err(map)?;
    let mut items: Vec<AttentionItem> = Vec::new();
    for (source, since, subject) in parts {
        let left = wanted - i64::try_from(items.len()).unwrap_or(wanted);
        if left <= 0 {
            break;
        }
        let (rows, _) = statements(source);
        let query = sqlx::query_as(rows).bind(latest(source, filter)).bind(since);
        let query = if source.subject().is_uuid() {
            // Nothing sorts before the empty value.
            let id = subject_id(&subject)?.map(|id| id.into_bytes().to_vec());
            query.bind(id.unwrap_or_default())
        } else {
            query.bind(subject)
        };
        let rows: Vec<ItemRow> = query.bind(left).fetch_all(&mut *tx).await.map_err(map)?;
        for row in rows {
            items.push(row.item(source)?);
        }
    }
    let mut total = 0;
    for (source, _, _) in plan(filter, None)? {
        total += count_of(&mut tx, source, filter).await?;
    }
    tx.commit().await.map_err(map)?;
    Ok(Page::cut(items, limit, Some(total), AttentionItem::key))
}

async fn count_of(
    db: &mut SqliteConnection,
    source: Source,
    filter: &AttentionFilter,
) -> Result<u64, StoreError> {
    let query = sqlx::query_as(statements(source).1).bind(latest(source, filter));
    let (number,): (i64,) = query.fetch_one(db).await.map_err(map)?;
    count(number)
}

/// Index: `accounts_burnt`, nothing else.
pub(super) const BURNT_COUNT: &str = "SELECT count(*) FROM accounts WHERE phase = 'burnt'";

pub(super) async fn counts(
    reader: &SqlitePool,
    now: Timestamp,
    stuck_after: StuckAfter,
) -> Result<TroubleCounts, StoreError> {
    let filter = AttentionFilter { kind: None, now, stuck_after };
    let mut tx = reader.begin().await.map_err(map)?;
    let mut counts = TroubleCounts::default();
    for source in Source::VARIANTS {
        let number = count_of(&mut tx, *source, &filter).await?;
        counts.add(*source, number);
    }
    let (burnt,): (i64,) = sqlx::query_as(BURNT_COUNT).fetch_one(&mut *tx).await.map_err(map)?;
    counts.burnt = count(burnt)?;
    tx.commit().await.map_err(map)?;
    Ok(counts)
}
