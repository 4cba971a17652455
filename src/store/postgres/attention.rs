//! What needs a person: per kind one indexed statement, the oldest first.

use sqlx::postgres::{PgConnection, PgPool};
use strum::VariantArray;

use super::super::attention::{Source, latest, plan, subject_id};
use super::super::rows::attention::{self as shared, ItemRow};
use super::super::rows::decode::count;
use super::super::{
    AttentionFilter, AttentionItem, Cursor, Page, StoreError, StuckAfter, TroubleCounts,
};
use super::error::map;
use super::transaction::{end, query_as, read};
use crate::time::Timestamp;

// $1 is the latest `since` that counts; ($2, $3) is the last row of the page before.
macro_rules! counted {
    ($from:expr) => {
        concat!("SELECT count(*)", $from)
    };
}
macro_rules! of_accounts {
    ($from:expr, $since:literal) => {
        concat!(
            "SELECT a.cluster_id, a.registry_id, (SELECT r.rotation_id FROM rotations r \
             WHERE r.cluster_id = a.cluster_id AND r.running) AS rotation_id, a.",
            $since,
            " AS since, a.trouble_attempts AS attempts, a.trouble_last_error AS last_error, \
             a.next_attempt_at AS next_attempt_at, a.account_id AS id",
            $from,
            " AND (a.",
            $since,
            ", a.account_id) > ($2, $3) ORDER BY a.",
            $since,
            ", a.account_id LIMIT $4"
        )
    };
}
macro_rules! of_records {
    ($from:expr, $since:literal) => {
        concat!(
            "SELECT p.cluster_id, p.refusal_registry_id AS registry_id, NULL::uuid AS rotation_id, p.",
            $since,
            " AS since, 0::bigint AS attempts, p.refusal_message AS last_error, \
             p.quarantine_retry_at AS next_attempt_at, NULL::uuid AS id",
            $from,
            " AND (p.",
            $since,
            ", p.cluster_id) > ($2, $3) ORDER BY p.",
            $since,
            ", p.cluster_id LIMIT $4"
        )
    };
}

macro_rules! restored {
    () => {
        " FROM restores r WHERE r.acknowledged_at IS NULL AND r.restored_at <= $1"
    };
}
macro_rules! drifted {
    () => {
        " FROM accounts a WHERE a.drifted_since IS NOT NULL AND a.drifted_since <= $1"
    };
}
macro_rules! stuck {
    () => {
        " FROM accounts a WHERE a.trouble_since IS NOT NULL \
         AND a.phase NOT IN ('gone', 'residue') AND a.trouble_since <= $1"
    };
}
macro_rules! irrevocable {
    () => {
        " FROM accounts a WHERE a.phase = 'residue' \
         AND a.trouble_since <= $1"
    };
}
macro_rules! quarantined {
    () => {
        " FROM pull_secrets p WHERE p.quarantine_since IS NOT NULL AND p.quarantine_since <= $1"
    };
}
macro_rules! denied {
    () => {
        " FROM pull_secrets p WHERE p.state = 'denied' AND p.refusal_registry_id IS NOT NULL \
         AND p.state_since <= $1"
    };
}
macro_rules! failed {
    () => {
        " FROM pull_secrets p WHERE p.state = 'failed' AND p.refusal_registry_id IS NOT NULL \
         AND p.state_since <= $1"
    };
}
macro_rules! overdue {
    () => {
        " FROM rotations r \
         WHERE r.phase IN ('dual_credential_period', 'rolling_back') AND r.deadline <= $1"
    };
}

/// Index: `restores_open`; there is at most one row.
pub(super) const RESTORED: &str = concat!(
    "SELECT NULL::text AS cluster_id, NULL::text AS registry_id, NULL::uuid AS rotation_id, \
     r.restored_at AS since, 0::bigint AS attempts, r.reason AS last_error, \
     NULL::timestamptz AS next_attempt_at, NULL::uuid AS id",
    restored!(),
    " AND (r.restored_at, '') > ($2, $3) ORDER BY r.restored_at LIMIT $4"
);
const RESTORED_COUNT: &str = counted!(restored!());
/// Index: `accounts_drifted`.
pub(super) const DRIFTED: &str = of_accounts!(drifted!(), "drifted_since");
const DRIFTED_COUNT: &str = counted!(drifted!());
/// Index: `accounts_stuck`.
pub(super) const STUCK: &str = of_accounts!(stuck!(), "trouble_since");
const STUCK_COUNT: &str = counted!(stuck!());
/// Index: `accounts_residue`.
pub(super) const IRREVOCABLE: &str = of_accounts!(irrevocable!(), "trouble_since");
const IRREVOCABLE_COUNT: &str = counted!(irrevocable!());
/// Index: `pull_secrets_quarantined`.
pub(super) const QUARANTINED: &str = of_records!(quarantined!(), "quarantine_since");
const QUARANTINED_COUNT: &str = counted!(quarantined!());
/// Index: `pull_secrets_refused`.
pub(super) const DENIED: &str = of_records!(denied!(), "state_since");
const DENIED_COUNT: &str = counted!(denied!());
/// Index: `pull_secrets_refused`.
pub(super) const FAILED: &str = of_records!(failed!(), "state_since");
const FAILED_COUNT: &str = counted!(failed!());
/// Index: `rotations_deadline`.
pub(super) const OVERDUE: &str = concat!(
    "SELECT r.cluster_id, NULL::text AS registry_id, r.rotation_id, r.deadline AS since, \
     0::bigint AS attempts, NULL::text AS last_error, NULL::timestamptz AS next_attempt_at, r.rotation_id AS id",
    overdue!(),
    " AND (r.deadline, r.rotation_id) > ($2, $3) ORDER BY r.deadline, r.rotation_id LIMIT $4"
);
const OVERDUE_COUNT: &str = counted!(overdue!());

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
    pool: &PgPool,
    filter: &AttentionFilter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page<AttentionItem>, StoreError> {
    let parts = plan(filter, cursor)?;
    let wanted = i64::from(limit) + 1;
    let mut tx = read(pool).await?;
    let mut items: Vec<AttentionItem> = Vec::new();
    for (source, since, subject) in parts {
        let left = wanted - i64::try_from(items.len()).unwrap_or(wanted);
        if left <= 0 {
            break;
        }
        items.extend(rows(&mut tx, filter, source, (since, subject), left).await?);
    }
    let mut total = 0;
    for (source, _, _) in plan(filter, None)? {
        total += number(&mut tx, filter, source).await?;
    }
    tx.commit().await.map_err(map)?;
    Ok(Page::cut(items, limit, Some(total), AttentionItem::key))
}

async fn rows(
    db: &mut PgConnection,
    filter: &AttentionFilter,
    source: Source,
    (since, subject): (i64, String),
    limit: i64,
) -> Result<Vec<AttentionItem>, StoreError> {
    let (sql, _) = statements(source);
    let query = query_as(sql).bind(latest(source, filter)).bind(Timestamp::from_micros(since));
    let query = if source.subject().is_uuid() {
        // Nothing sorts before the nil one.
        query.bind(subject_id(&subject)?.unwrap_or_default())
    } else {
        query.bind(subject)
    };
    let rows: Vec<ItemRow> = query.bind(limit).fetch_all(db).await.map_err(map)?;
    rows.into_iter().map(|row| row.item(source)).collect()
}

async fn number(
    db: &mut PgConnection,
    filter: &AttentionFilter,
    source: Source,
) -> Result<u64, StoreError> {
    let query = query_as(statements(source).1).bind(latest(source, filter));
    let (number,): (i64,) = query.fetch_one(db).await.map_err(map)?;
    count(number)
}

/// Index: `accounts_burnt`, nothing else once it was vacuumed.
pub(super) const BURNT_COUNT: &str = "SELECT count(*) FROM accounts WHERE phase = 'burnt'";

pub(super) async fn counts(
    pool: &PgPool,
    now: Timestamp,
    stuck_after: StuckAfter,
) -> Result<TroubleCounts, StoreError> {
    let filter = AttentionFilter { kind: None, now, stuck_after };
    let mut tx = read(pool).await?;
    let counts = counts_in(&mut tx, &filter).await;
    end(tx, counts).await
}

async fn counts_in(
    db: &mut PgConnection,
    filter: &AttentionFilter,
) -> Result<TroubleCounts, StoreError> {
    let mut counts = TroubleCounts::default();
    for source in Source::VARIANTS {
        let number = number(db, filter, *source).await?;
        counts.add(*source, number);
    }
    let (burnt,): (i64,) = query_as(BURNT_COUNT).fetch_one(db).await.map_err(map)?;
    counts.burnt = count(burnt)?;
    Ok(counts)
}
