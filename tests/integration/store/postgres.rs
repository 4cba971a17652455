//! What only PostgreSQL promises: many writers at once, hints between them, an absence that passes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::ReplicaId;
use hyperfleet_credentials::store::{
    AuditFilter, AuditRow, Commit, Hint, Listening, PgStore, Store, StoreError, Unavailable,
};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tokio::task::JoinSet;

use super::backends::migrated_database;
use super::replicas::replica;
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
    let take = async |store: Arc<dyn Store>, me: ReplicaId| {
        store.join(me, &[], start()).await.unwrap();
        let mut taken = Vec::new();
        loop {
            let some = store.due(start(), 7, start().plus(MINUTE), me).await.unwrap();
            // What others hold at this moment is passed over; it is theirs.
            if some.is_empty() {
                return taken;
            }
            taken.extend(some.into_iter().map(|claimed| claimed.cluster_id));
        }
    };
    let mut takers = JoinSet::new();
    for number in 0..4 {
        // As many processes, each with connections of its own.
        takers.spawn(take(open(&url).await, replica(number)));
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
async fn a_server_that_dies_is_unavailable_and_comes_back_by_itself() {
    let mut server = Server::start();
    let url = server.database(None).await;
    let store = open(&url).await;
    store.migrate().await.unwrap();
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

#[tokio::test]
async fn a_hint_reaches_the_others_and_its_loss_is_told() {
    let mut server = Server::start();
    let url = server.database(None).await;
    let (here, there) = (open(&url).await, open(&url).await);
    let Listening::Hears(mut hints) = there.listen().await.unwrap() else {
        panic!("nothing stands between");
    };
    let hint = Hint::Wake { to: replica(7), cluster_id: "cls-a".parse().unwrap() };
    here.tell(&hint).await.unwrap();
    assert_eq!(hints.next().await, Ok(hint));
    server.crash();
    server.start_again();
    assert!(hints.next().await.is_err());
}

#[tokio::test]
async fn a_replica_can_say_that_it_lives_while_work_uses_up_all_connections() {
    let url = migrated_database().await;
    let store: Arc<dyn Store> = Arc::new(PgStore::open(&url, 1).await.unwrap());
    let script = served(&store, "cls-a").await;
    store.join(replica(1), &[], start()).await.unwrap();
    let mut shell = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1 FROM clusters FOR UPDATE").execute(&mut shell).await.unwrap();
    let waits = tokio::spawn({
        let (store, id, now) = (store.clone(), script.cluster_id.clone(), script.now);
        let (state, version) = (script.state(), script.version);
        async move {
            let (before, after) = (state.as_ref(), state.as_ref());
            store.commit(Commit::new(&id, version, before, after, now)).await
        }
    });
    let error = loop {
        // Until the commit has the one connection.
        match store.load(&script.cluster_id).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(reason(&error), Some(Unavailable::Busy), "{error}");
    assert!(store.beat(replica(1), &[], start()).await.unwrap().is_some());
    sqlx::raw_sql("ROLLBACK").execute(&mut shell).await.unwrap();
    assert_eq!(waits.await.unwrap(), Ok(script.version + 1));
    store.load(&script.cluster_id).await.unwrap();
}

/// A certificate of our own making, and one for `localhost` that it signed.
fn certificates() -> (String, String, String) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap().pem();
    (root, certificate, key.serialize_pem())
}

#[tokio::test]
async fn the_server_is_known_by_its_certificate() {
    let (root, certificate, key) = certificates();
    let server = Server::start_tls(&certificate, &key);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ours, other) = (write("root.pem", &root), write("other.pem", &certificates().0));
    let url = |host: &str, rest: &str| {
        format!("postgres://tester@{host}:{}/postgres?{rest}", server.port())
    };
    let full = |host, root: &str| url(host, &format!("sslmode=verify-full&sslrootcert={root}"));
    let store = PgStore::open(&full("localhost", &ours), 1).await.unwrap();
    store.check_server().await.unwrap();
    store.migrate().await.unwrap();
    // The connections beside the pool go the same way.
    store.join(replica(1), &[], start()).await.unwrap();
    assert!(matches!(store.listen().await, Ok(Listening::Hears(_))));
    for (bad, why) in [
        (full("localhost", &other), "somebody else's authority"),
        (full("127.0.0.1", &ours), "another name"),
        (url("localhost", "sslmode=disable"), "no TLS at all"),
    ] {
        let error = PgStore::open(&bad, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{why}: {error:?}");
    }
    drop(server);
}
