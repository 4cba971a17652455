//! What only PostgreSQL promises: many writers at once, one serving process, an absence that passes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::store::{
    AuditFilter, AuditRow, Commit, PgStore, Store, StoreError, Unavailable,
};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tokio::task::JoinSet;

use super::backends::migrated_database;
use super::script::{MINUTE, Script, served, start};
use crate::support::postgres::{Server, execute, shared};

fn reason(error: &StoreError) -> Option<Unavailable> {
    let StoreError::Unavailable { reason, .. } = error else { return None };
    Some(*reason)
}

async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PgStore::open(url, 4).await.unwrap())
}

#[tokio::test]
async fn many_takers_get_disjoint_work() {
    const WORK: usize = 60;
    let url = migrated_database().await;
    let store = open(&url).await;
    for number in 0..WORK {
        let mut script = Script::new(&format!("cls-{number}"), 1);
        let (_, after) = script.decide(&script.issue()).unwrap();
        let mut commit = Commit::new(&script.cluster_id, 0, None, after.as_ref(), script.now);
        commit.due_at = Some(start());
        store.commit(commit).await.unwrap();
    }
    let take = async |store: Arc<dyn Store>| {
        let mut taken = Vec::new();
        loop {
            let some = store.due(start(), 7, start().plus(MINUTE)).await.unwrap();
            // What others hold at this moment is passed over; it is theirs.
            if some.is_empty() {
                return taken;
            }
            taken.extend(some);
        }
    };
    let mut takers = JoinSet::new();
    for _ in 0..4 {
        // As many processes, each with connections of its own.
        takers.spawn(take(open(&url).await));
    }
    let taken: Vec<_> = takers.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), WORK, "each once");
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), WORK);
}

#[tokio::test]
async fn many_committers_lose_nothing() {
    const WRITERS: u32 = 6;
    const STEPS: u32 = 10;
    let url = migrated_database().await;
    let store = open(&url).await;
    let script = served(&store, "cls-a").await;
    let audit = store.list_audit(&AuditFilter::default(), None, 500).await.unwrap().items;
    let raise = async |store: Arc<dyn Store>, row: AuditRow| {
        let id = "cls-a".parse().unwrap();
        for _ in 0..STEPS {
            loop {
                let loaded = store.load(&id).await.unwrap();
                let before = loaded.record.unwrap();
                let mut after = before.clone();
                after.last_generation = after.last_generation.next();
                let (before, after) = (Some(&before), Some(&after));
                let mut commit = Commit::new(&id, loaded.version, before, after, start());
                commit.audit = vec![row.clone()];
                match store.commit(commit).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error, StoreError::Conflict),
                }
            }
        }
    };
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(raise(open(&url).await, audit[0].row.clone()));
    }
    writers.join_all().await;
    let loaded = store.load(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.version, script.version + u64::from(WRITERS * STEPS));
    let told = store.list_audit(&AuditFilter::default(), None, 500).await.unwrap().items;
    let sequences: Vec<_> = told.iter().map(|event| event.sequence).rev().collect();
    let expected: Vec<_> = (1..).take(sequences.len()).collect();
    assert_eq!(sequences, expected, "one stream, no gap, no fork");
    assert_eq!(told.len(), audit.len() + usize::try_from(WRITERS * STEPS).unwrap());
}

fn row(stream: &str) -> AuditRow {
    AuditRow {
        stream: stream.to_owned(),
        at: start(),
        actor: "somebody".to_owned(),
        action: "something".to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: None,
        generation: None,
        // What JSONB would spell in another way.
        detail: serde_json::json!({"z": 1.0e-7, "a": [1e21, "\u{0}"], "b": {}}),
        reason: None,
        request_id: None,
    }
}

#[tokio::test]
async fn streams_that_are_shared_are_chained_one_writer_after_the_other() {
    let url = migrated_database().await;
    let write = async |store: Arc<dyn Store>, rows: Vec<AuditRow>| {
        for _ in 0..20 {
            store.record_audit(&rows).await.unwrap();
        }
    };
    let mut writers = JoinSet::new();
    for number in 0..4 {
        // Half of them name the streams the other way round.
        let mut rows = vec![row("a"), row("b"), row("a")];
        rows.rotate_left(number % 2);
        writers.spawn(write(open(&url).await, rows));
    }
    writers.join_all().await;
    let store = open(&url).await;
    let told = store.list_audit(&AuditFilter::default(), None, 500).await.unwrap().items;
    for (stream, rows) in [("a", 160), ("b", 80)] {
        let of_stream = told.iter().rev().filter(|event| event.row.stream == stream);
        let sequences: Vec<_> = of_stream.map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=rows).collect::<Vec<_>>(), "{stream}");
    }
    assert_eq!(told[0].row.detail, row("a").detail);
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_is_gone() {
    let url = migrated_database().await;
    let (first, second) = (open(&url).await, open(&url).await);
    first.hold_alone().await.unwrap();
    let error = second.hold_alone().await.unwrap_err();
    assert!(matches!(error, StoreError::Served { seen: 0..5, lease: 30 }), "{error:?}");
    assert!(error.to_string().contains("another process serves from the database"), "{error}");
    // It may read, and it may migrate: only serving is for one.
    assert_eq!(second.check_schema().await, Ok(()));
    second.migrate().await.unwrap();
    first.close().await;
    second.hold_alone().await.unwrap();
}

#[tokio::test]
async fn the_row_of_a_dead_process_gets_stale() {
    let url = migrated_database().await;
    let (first, second) = (open(&url).await, open(&url).await);
    first.hold_alone().await.unwrap();
    drop(first);
    execute(&url, "UPDATE replicas SET seen_at = now() - interval '29 seconds'").await;
    assert!(matches!(second.hold_alone().await, Err(StoreError::Served { seen: 29, .. })));
    execute(&url, "UPDATE replicas SET seen_at = now() - interval '31 seconds'").await;
    second.hold_alone().await.unwrap();
    second.ping().await.unwrap();
}

#[tokio::test]
async fn two_that_begin_at_once_are_one() {
    let url = migrated_database().await;
    let mut starts = JoinSet::new();
    for _ in 0..6 {
        let store = open(&url).await;
        starts.spawn(async move { (store.hold_alone().await, store) });
    }
    let starts = starts.join_all().await;
    assert_eq!(starts.iter().filter(|(held, _)| held.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_server_that_dies_is_unavailable_and_comes_back_by_itself() {
    let mut server = Server::start();
    let url = server.database(None).await;
    let store = open(&url).await;
    store.migrate().await.unwrap();
    store.hold_alone().await.unwrap();
    let script = served(&store, "cls-a").await;

    server.crash();
    let error = store.load(&script.cluster_id).await.unwrap_err();
    assert!(error.is_transient() && reason(&error).is_some(), "{error:?}");
    let state = script.state();
    let (id, version) = (&script.cluster_id, script.version);
    let commit = Commit::new(id, version, state.as_ref(), state.as_ref(), script.now);
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert!(error.is_transient() && reason(&error).is_some(), "{error:?}");
    let error = PgStore::open(&url, 1).await.unwrap_err();
    assert!(error.is_transient() && reason(&error).is_some(), "{error:?}");

    server.start_again();
    assert_eq!(store.load(&script.cluster_id).await, Ok(script.loaded()));
    assert_eq!(store.commit(commit).await, Ok(version + 1));
    store.close().await;
    let closed = store.load(&script.cluster_id).await.unwrap_err();
    assert_eq!(reason(&closed), Some(Unavailable::Closed), "{closed}");
}

#[tokio::test]
async fn what_takes_too_long_ends_and_is_told_apart() {
    let url = migrated_database().await;
    let store = open(&url).await;
    let script = served(&store, "cls-a").await;
    let state = script.state();
    let (id, version) = (&script.cluster_id, script.version);
    let commit = Commit::new(id, version, state.as_ref(), state.as_ref(), script.now);
    // Somebody's shell holds the row.
    let mut shell = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1 FROM clusters FOR UPDATE").execute(&mut shell).await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(20), store.commit(commit.clone())).await;
    let error = error.unwrap().unwrap_err();
    assert!(error.is_transient() && reason(&error) == Some(Unavailable::Busy), "{error:?}");
    assert_eq!(store.load(id).await, Ok(script.loaded()), "reads wait for nobody");
    sqlx::raw_sql("ROLLBACK").execute(&mut shell).await.unwrap();
    assert_eq!(store.commit(commit).await, Ok(version + 1));
}

#[tokio::test]
async fn a_database_that_may_only_be_read_is_told_apart() {
    let url = migrated_database().await;
    let name = url.rsplit('/').next().unwrap();
    execute(&url, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    let store = open(&url).await;
    let claim = store.claim_installation("x", start()).await.unwrap_err();
    assert_eq!(reason(&claim), Some(Unavailable::ReadOnly), "{claim}");
    let ping = store.ping().await.unwrap_err();
    assert_eq!(reason(&ping), Some(Unavailable::ReadOnly), "readiness says so: {ping}");
    store.state_counts().await.unwrap();
}

#[tokio::test]
async fn a_schema_of_another_time_is_named() {
    let url = shared().database(None).await;
    let store = open(&url).await;
    let unmigrated = store.check_schema().await.unwrap_err();
    assert!(matches!(unmigrated, StoreError::NotMigrated { found: 0, .. }), "{unmigrated}");
    // Several at once, as with several pods of a job: one works, the others find it done.
    let mut jobs = JoinSet::new();
    for _ in 0..4 {
        let store = open(&url).await;
        jobs.spawn(async move { store.migrate().await });
    }
    assert!(jobs.join_all().await.iter().all(Result::is_ok));
    assert_eq!(store.check_schema().await, Ok(()));
    let known = store.schema_version().await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations \
         (version, description, success, checksum, execution_time) VALUES (9999, 'x', true, '', 0)";
    execute(&url, newer).await;
    let too_new = StoreError::SchemaTooNew { found: 9999, known };
    assert_eq!(store.check_schema().await, Err(too_new.clone()));
    assert_eq!(store.migrate().await, Err(too_new));
}

#[tokio::test]
async fn a_row_that_this_program_never_wrote_is_named_and_not_guessed() {
    let url = migrated_database().await;
    let store = open(&url).await;
    let script = served(&store, "cls-a").await;
    execute(&url, "UPDATE pull_secrets SET state = 'rotating'").await;
    let error = store.load(&script.cluster_id).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    execute(&url, "UPDATE accounts SET username = NULL").await;
    let error = store.served(&script.cluster_id).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}
