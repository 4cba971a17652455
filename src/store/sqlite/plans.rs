//! SQLite's own word on which index serves which statement.

use super::super::rows::{self, break_glass_sql};
use super::*;

async fn plan(store: &SqliteStore, sql: &'static str) -> String {
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(explain).fetch_all(&store.reader).await.unwrap();
    rows.into_iter().map(|(_, _, _, detail)| detail + "\n").collect()
}

async fn empty() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", dir.path().join("plans.db").display());
    let store = SqliteStore::open(&url, 1).await.unwrap();
    store.migrate().await.unwrap();
    (dir, store)
}

#[tokio::test]
async fn every_statement_uses_the_index_that_it_names() {
    let (_dir, store) = empty().await;
    let cases = [
        (due::SELECT_DUE, "pull_secrets_due"),
        (due::COUNT_DUE, "pull_secrets_due"),
        (due::SELECT_ORPHANS, "pull_secrets_owned"),
        (replicas::RELEASE, "pull_secrets_owned"),
        (replicas::RELEASE, "accounts_open_calls"),
        (replicas::COUNT_OWNED, "pull_secrets_owned"),
        (due::SELECT_BREAK_GLASS_DUE, "break_glass_due"),
        (due::SELECT_BREAK_GLASS_ORPHANS, "break_glass_owned"),
        (due::COUNT_DUE, "break_glass_due"),
        (replicas::RELEASE_BREAK_GLASS, "break_glass_owned"),
        (replicas::RELEASE_BREAK_GLASS, "break_glass_credentials_open_calls"),
        (replicas::RELEASE_BREAK_GLASS, "break_glass_revocations_open_calls"),
        (replicas::COUNT_OWNED, "break_glass_owned"),
        (break_glass_sql::COUNT_STUCK, "break_glass_credentials_stuck"),
        (break_glass_sql::COUNT_STUCK, "break_glass_revocations_stuck"),
        (break_glass_sql::COUNT_STUCK, "break_glass_quarantined"),
        (account::SELECT_LIVE, "accounts_live"),
        (account::SELECT_BORN, "accounts_by_generation"),
        (campaigns::LIST, "PRIMARY KEY"),
        (campaigns::MEMBERS, "PRIMARY KEY"),
        (campaigns::MEMBERS_OF_STATUS, "campaign_clusters_by_status"),
        (campaigns::ANYTHING, "campaigns_driven"),
        (campaigns::CLAIM, "campaigns_driven"),
        (campaigns::FIND, "PRIMARY KEY"),
        (campaigns::RUNNING, "campaign_clusters_by_status"),
        (campaigns::NEXT, "campaign_clusters_by_status"),
        (campaigns::COUNT_BEGUN, "campaign_clusters_started"),
        (campaigns::COUNT_DELETING, "accounts_deleting"),
        (turns::AT_WORK, "COVERING INDEX rotations_phase"),
        (turns::AT_WORK, "accounts_deleting"),
        (turns::AHEAD, "rotation_turns_order"),
        (turns::SELECT_NEXT, "rotation_turns_order"),
        (turns::SEND_BACK, "rotation_turns_called"),
        (turns::COUNT_CALLED, "rotation_turns_called"),
        (rotation::SELECT_OPEN, "rotations_open"),
        (read::SELECT_SERVED, "accounts_live"),
        (read::SELECT_SERVED, "rotations_running"),
        (read::SELECT_PRESENTED, "accounts_by_username"),
        (rotations::CLUSTER_ROWS, "rotations_by_cluster"),
        (rotations::STATUS_ROWS, "rotations_by_status"),
        (rotations::FLEET_ROWS, "rotations_by_time"),
        (rotations::OVERDUE_ROWS, "rotations_deadline"),
        (fleet::ROWS, "SEARCH p USING PRIMARY KEY"),
        (fleet::STATE_ROWS, "pull_secrets_by_state"),
        (fleet::OVERDUE_ROWS, "rotations_deadline"),
        (fleet::STATES, "COVERING INDEX pull_secrets_by_state"),
        (fleet::PHASES, "rotations_phase"),
        (attention::RESTORED, "restores_open"),
        (attention::DRIFTED, "accounts_drifted"),
        (sweep::steps::SELECT_NAMED, "accounts_by_name"),
        (sweep::steps::SELECT_SERVING, "accounts_serving"),
        (sweep::steps::SELECT_COUNTERS, "PRIMARY KEY"),
        (sweep::steps::SELECT_SLUG, "PRIMARY KEY"),
        (sweep::steps::SELECT_UNKNOWN, "PRIMARY KEY"),
        (sweep::steps::SELECT_DELETIONS, "unknown_accounts_due"),
        (sweep::steps::DECIDE, "accounts_by_name"),
        (sweep::steps::ANNOUNCE, "accounts_by_name"),
        (attention::STUCK, "accounts_stuck"),
        (attention::IRREVOCABLE, "accounts_residue"),
        (attention::QUARANTINED, "pull_secrets_quarantined"),
        (attention::DENIED, "pull_secrets_refused"),
        (attention::FAILED, "pull_secrets_refused"),
        (attention::OVERDUE, "rotations_deadline"),
        (rows::attention::BREAK_GLASS_QUARANTINED, "break_glass_quarantined"),
        (rows::attention::CREDENTIAL_STUCK, "break_glass_credentials_stuck"),
        (rows::attention::CREDENTIAL_STUCK_COUNT, "break_glass_credentials_stuck"),
        (rows::attention::REVOCATION_STUCK, "break_glass_revocations_stuck"),
        (rows::attention::REVOCATION_STUCK_COUNT, "break_glass_revocations_stuck"),
        (rows::attention::CREDENTIAL_DENIED, "break_glass_credentials_by_state"),
        (rows::attention::CREDENTIAL_FAILED, "break_glass_credentials_by_state"),
        (attention::BURNT_COUNT, "COVERING INDEX accounts_burnt"),
        (audit::OF_CLUSTER, "audit_by_cluster"),
        (audit::OF_ACTOR, "audit_by_actor"),
        (audit::OF_ACTION, "audit_by_action"),
        (audit::ALL, "INTEGER PRIMARY KEY"),
        (ledger::SELECT_MOVED, "audit_streams_moved"),
        (ledger::SELECT_OLD, "audit_by_time"),
        (ledger::SELECT_YOUNG, "sqlite_autoindex_audit_events_1"),
        (ledger::DELETE_ROWS, "sqlite_autoindex_audit_events_1"),
        (ledger::NEXT_STREAM, "sqlite_autoindex_audit_events_1"),
        (ledger::WALK, "sqlite_autoindex_audit_events_1"),
        (upkeep::CENSUS, "COVERING INDEX account_secrets_by_key"),
        (upkeep::SELECT_OTHERWISE, "PRIMARY KEY"),
        (upkeep::PURGE_ROTATIONS, "rotations_ended"),
        (upkeep::PURGE_SECRETS, "account_secrets_gone"),
        (upkeep::PURGE_KEYS, "idempotency_keys_by_age"),
        (upkeep::PURGE_CAMPAIGNS, "campaigns_ended"),
    ];
    for (sql, index) in cases {
        let plan = plan(&store, sql).await;
        assert!(plan.contains(index), "{sql}\nwants {index}, but:\n{plan}");
    }
}

/// A page costs its rows, not the table: nothing is read whole, nothing is sorted.
#[tokio::test]
async fn pages_are_read_in_the_order_of_their_index() {
    let (_dir, store) = empty().await;
    let pages = [
        due::SELECT_DUE,
        due::SELECT_BREAK_GLASS_DUE,
        turns::SELECT_NEXT,
        campaigns::LIST,
        campaigns::MEMBERS,
        campaigns::MEMBERS_OF_STATUS,
        campaigns::NEXT,
        campaigns::FIND,
        campaigns::RUNNING,
        account::SELECT_LIVE,
        rotations::CLUSTER_ROWS,
        rotations::STATUS_ROWS,
        rotations::FLEET_ROWS,
        fleet::ROWS,
        fleet::STATE_ROWS,
        attention::RESTORED,
        attention::DRIFTED,
        sweep::steps::SELECT_SERVING,
        sweep::steps::SELECT_UNKNOWN,
        sweep::steps::SELECT_DELETIONS,
        attention::STUCK,
        attention::IRREVOCABLE,
        attention::QUARANTINED,
        attention::DENIED,
        attention::FAILED,
        attention::OVERDUE,
        audit::OF_CLUSTER,
        audit::OF_ACTOR,
        audit::OF_ACTION,
        audit::ALL,
        ledger::WALK,
    ];
    for sql in pages {
        let plan = plan(&store, sql).await;
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\nis sorted:\n{plan}");
        let whole = |line: &str| line.starts_with("SCAN") && !line.contains("json_each");
        assert!(!plan.lines().any(whole), "{sql}\nreads a table whole:\n{plan}");
    }
}
