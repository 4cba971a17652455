//! PostgreSQL's own word on which index serves which statement.
//!
//! Reading whole tables is made so dear that it is planned only where nothing else will do: what is asked here is
//! whether an index *can* serve the statement, whatever is in the tables.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::super::rows::{self, break_glass_sql};
use super::*;

async fn empty() -> (PgStore, PgConnection) {
    let url = server::shared().database(None).await;
    let store = PgStore::open(&url, 1).await.unwrap();
    store.migrate().await.unwrap();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let planner = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
         SET plan_cache_mode = force_generic_plan";
    sqlx::raw_sql(planner).execute(&mut db).await.unwrap();
    (store, db)
}

/// The plan that holds for any values.
async fn plan(db: &mut PgConnection, sql: &str) -> String {
    let places = (1..40).take_while(|place| sql.contains(&format!("${place}"))).count();
    let nulls = vec!["NULL"; places].join(", ");
    let values = if places == 0 { String::new() } else { format!("({nulls})") };
    let prepare = AssertSqlSafe(format!("DEALLOCATE ALL; PREPARE it AS {sql}"));
    sqlx::raw_sql(prepare).execute(&mut *db).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN (COSTS OFF) EXECUTE it {values}"));
    let rows: Vec<(String,)> =
        sqlx::query_as(explain).persistent(false).fetch_all(db).await.unwrap();
    rows.into_iter().map(|(line,)| line + "\n").collect()
}

#[tokio::test]
async fn every_statement_uses_the_index_that_it_names() {
    let (store, mut db) = empty().await;
    let cases = [
        (due::TAKE, "pull_secrets_due"),
        (due::TAKE, "pull_secrets_pkey"),
        (due::COUNT_DUE, "pull_secrets_due"),
        (due::TAKE, "clusters_pkey"),
        (due::TAKE_ORPHANS, "pull_secrets_owned"),
        (replicas::RELEASE, "pull_secrets_owned"),
        (replicas::RELEASE, "accounts_open_calls"),
        (replicas::COUNT_OWNED, "pull_secrets_owned"),
        (due::TAKE_BREAK_GLASS, "break_glass_due"),
        (due::TAKE_BREAK_GLASS_ORPHANS, "break_glass_owned"),
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
        (campaigns::LIST, "campaigns_pkey"),
        (campaigns::MEMBERS, "campaign_clusters_pkey"),
        (campaigns::MEMBERS_OF_STATUS, "campaign_clusters_by_status"),
        (campaigns::ANYTHING, "campaigns_driven"),
        (campaigns::CLAIM, "campaigns_driven"),
        (campaigns::FIND, "pull_secrets_pkey"),
        (campaigns::RUNNING, "campaign_clusters_by_status"),
        (campaigns::NEXT, "campaign_clusters_by_status"),
        (campaigns::COUNT_BEGUN, "campaign_clusters_started"),
        (campaigns::COUNT_DELETING, "accounts_deleting"),
        (rotation::SELECT_OPEN, "rotations_open"),
        (record::SELECT_HEAD, "pull_secrets_pkey"),
        (record::SELECT_HEAD, "clusters_pkey"),
        (record::SELECT_CONSUMERS, "consumers_cluster_id_source_name_key"),
        (read::SELECT_SERVED, "accounts_live"),
        (read::SELECT_SERVED, "rotations_running"),
        (read::SELECT_PRESENTED, "accounts_by_username"),
        (rotations::CLUSTER_ROWS, "rotations_by_cluster"),
        (rotations::STATUS_ROWS, "rotations_by_status"),
        (rotations::FLEET_ROWS, "rotations_by_time"),
        (rotations::OVERDUE_ROWS, "rotations_deadline"),
        (fleet::ROWS, "pull_secrets_pkey"),
        (fleet::STATE_ROWS, "pull_secrets_by_state"),
        (fleet::OVERDUE_ROWS, "rotations_deadline"),
        (fleet::STATES, "Index Only Scan using pull_secrets_by_state"),
        (fleet::PHASES, "rotations_phase"),
        (attention::RESTORED, "restores_open"),
        (attention::DRIFTED, "accounts_drifted"),
        (sweep::steps::SELECT_NAMED, "accounts_by_name"),
        (sweep::steps::SELECT_SERVING, "accounts_serving"),
        (sweep::steps::SELECT_COUNTERS, "clusters_pkey"),
        (sweep::steps::SELECT_SLUG, "clusters_pkey"),
        (sweep::steps::SELECT_UNKNOWN, "unknown_accounts_pkey"),
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
        (attention::BURNT_COUNT, "Index Only Scan using accounts_burnt"),
        (audit::OF_CLUSTER, "audit_by_cluster"),
        (audit::OF_ACTOR, "audit_by_actor"),
        (audit::OF_ACTION, "audit_by_action"),
        (audit::ALL, "audit_events_pkey"),
        (ledger::SELECT_MOVED, "audit_streams_moved"),
        (ledger::SELECT_OLD, "audit_by_time"),
        (ledger::SELECT_YOUNG, "audit_events_stream_sequence_key"),
        (ledger::DELETE_ROWS, "audit_events_stream_sequence_key"),
        (ledger::NEXT_STREAM, "audit_streams_pkey"),
        (ledger::NEXT_STREAM, "audit_events_stream_sequence_key"),
        (ledger::WALK, "audit_events_stream_sequence_key"),
        (upkeep::CENSUS, "Index Only Scan using account_secrets_by_key"),
        (upkeep::SELECT_OTHERWISE, "account_secrets_pkey"),
        (upkeep::PURGE_ROTATIONS, "rotations_ended"),
        (upkeep::PURGE_SECRETS, "account_secrets_gone"),
        (upkeep::PURGE_KEYS, "idempotency_keys_by_age"),
        (upkeep::PURGE_CAMPAIGNS, "campaigns_ended"),
    ];
    for (sql, index) in cases {
        let plan = plan(&mut db, sql).await;
        assert!(plan.contains(index), "{sql}\nwants {index}, but:\n{plan}");
    }
    store.close().await;
}

/// A page costs its rows, not the table: nothing is read whole, nothing is sorted.
#[tokio::test]
async fn pages_are_read_in_the_order_of_their_index() {
    let (store, mut db) = empty().await;
    sqlx::raw_sql("SET enable_sort = off").execute(&mut db).await.unwrap();
    let pages = [
        campaigns::LIST,
        campaigns::MEMBERS,
        campaigns::MEMBERS_OF_STATUS,
        campaigns::FIND,
        campaigns::NEXT,
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
        ledger::SELECT_MOVED,
        ledger::WALK,
    ];
    for sql in pages {
        let plan = plan(&mut db, sql).await;
        assert!(!plan.contains("Sort"), "{sql}\nis sorted:\n{plan}");
        assert!(!plan.contains("Seq Scan"), "{sql}\nreads a table whole:\n{plan}");
    }
    store.close().await;
}
