//! The audit's streams: anchored, pruned behind a checkpoint, verified; and whatever is done to them is found.

use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::crypto::AuditKey;
use hyperfleet_credentials::store::verify::{AuditFault, Verdict, verify};
use hyperfleet_credentials::store::{
    AuditRow, AuditSeal, MemoryStore, PgStore, SqliteStore, Store,
};
use hyperfleet_credentials::time::Timestamp;
use sqlx::{ConnectOptions, Connection};

use super::backends::{conforms, migrated_database, url};
use super::script::{HOUR, MINUTE, start};

conforms!(
    a_stream_is_anchored_once_it_moved,
    the_first_rows_go_behind_a_checkpoint,
    a_young_row_keeps_what_came_after_it,
);

#[derive(Debug)]
struct Key(AuditKey);

impl AuditSeal for Key {
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        self.0.hash(&[message]).to_vec()
    }
}

fn key(byte: u8) -> Key {
    Key(AuditKey::from_bytes(&[byte; 32]).unwrap())
}

fn row(stream: &str, at: Timestamp) -> AuditRow {
    AuditRow {
        stream: stream.to_owned(),
        at,
        actor: "somebody".to_owned(),
        action: "pull_secret_read".to_owned(),
        cluster_id: Some("cls-1".parse().unwrap()),
        rotation_id: None,
        account: None,
        registry_id: None,
        generation: None,
        detail: serde_json::json!({"n": 1}),
        reason: Some("because".to_owned()),
        request_id: None,
    }
}

/// One row per minute in each of the streams.
async fn write(store: &Arc<dyn Store>, streams: &[&str], minutes: std::ops::Range<u32>) {
    for minute in minutes {
        let at = start().plus(MINUTE * minute);
        let rows: Vec<_> = streams.iter().map(|stream| row(stream, at)).collect();
        store.record_audit(&rows).await.unwrap();
    }
}

async fn sequences(store: &Arc<dyn Store>, stream: &str) -> Vec<u64> {
    let rows = store.walk_audit(stream, 0, 100).await.unwrap();
    rows.iter().map(|event| event.sequence).collect()
}

async fn a_stream_is_anchored_once_it_moved(store: Arc<dyn Store>) {
    write(&store, &["a", "b", "c"], 0..3).await;
    let anchor = |limit| store.checkpoint_audit(start().plus(HOUR), limit);
    let names = |made: Vec<hyperfleet_credentials::store::AuditCheckpoint>| {
        made.into_iter().map(|it| (it.stream, it.sequence)).collect::<Vec<_>>()
    };
    let of = |name: &str, sequence| (name.to_owned(), sequence);
    assert_eq!(names(anchor(2).await.unwrap()), [of("a", 3), of("b", 3)]);
    assert_eq!(names(anchor(2).await.unwrap()), [of("c", 3)]);
    assert_eq!(names(anchor(2).await.unwrap()), []);
    write(&store, &["b"], 3..4).await;
    assert_eq!(names(anchor(2).await.unwrap()), [of("b", 4)]);
    let known = store.audit_stream("b").await.unwrap();
    assert_eq!(known.anchor.map(|it| it.sequence), Some(4));
    assert_eq!((known.head, known.base), (Some((4, None)), None));
}

async fn the_first_rows_go_behind_a_checkpoint(store: Arc<dyn Store>) {
    write(&store, &["a", "b"], 0..10).await;
    store.checkpoint_audit(start(), 10).await.unwrap();
    let (before, now) = (start().plus(MINUTE * 4), start().plus(HOUR));
    assert_eq!(store.prune_audit(before, now, 6).await, Ok(6));
    assert_eq!(store.prune_audit(before, now, 6).await, Ok(2));
    assert_eq!(store.prune_audit(before, now, 6).await, Ok(0));
    for stream in ["a", "b"] {
        assert_eq!(sequences(&store, stream).await, (5..=10).collect::<Vec<_>>());
        let known = store.audit_stream(stream).await.unwrap();
        assert_eq!(known.base.map(|it| (it.sequence, it.at)), Some((4, now)));
        assert_eq!(known.anchor.map(|it| it.sequence), Some(10));
    }
    // Whatever went, the stream goes on where it was.
    assert_eq!(store.prune_audit(now, now, 100).await, Ok(12));
    write(&store, &["a"], 60..61).await;
    assert_eq!(sequences(&store, "a").await, [11]);
    assert_eq!(store.next_audit_stream("a").await, Ok(Some("b".to_owned())));
    assert_eq!(store.next_audit_stream("b").await, Ok(None));
}

async fn a_young_row_keeps_what_came_after_it(store: Arc<dyn Store>) {
    write(&store, &["a"], 0..2).await;
    // The clock was ahead for a moment.
    write(&store, &["a"], 50..51).await;
    write(&store, &["a"], 2..4).await;
    let (before, now) = (start().plus(MINUTE * 10), start().plus(HOUR));
    assert_eq!(store.prune_audit(before, now, 100).await, Ok(2));
    assert_eq!(store.prune_audit(before, now, 100).await, Ok(0));
    assert_eq!(sequences(&store, "a").await, [3, 4, 5]);
}

/// Two streams of six rows, pruned up to 2 and anchored at 5.
async fn history(store: &Arc<dyn Store>) {
    write(store, &["a", "b"], 0..5).await;
    store.checkpoint_audit(start().plus(HOUR), 10).await.unwrap();
    write(store, &["a", "b"], 5..6).await;
    store.prune_audit(start().plus(MINUTE * 2), start().plus(HOUR), 100).await.unwrap();
}

async fn is_intact(store: Arc<dyn Store>) {
    let intact = |verdict: Verdict, rows| {
        assert_eq!((verdict.streams, verdict.rows, verdict.faults), (2, rows, Vec::new()));
    };
    write(&store, &["a", "b"], 0..600).await;
    intact(verify(store.as_ref(), &key(1)).await.unwrap(), 1200);
    store.checkpoint_audit(start(), 10).await.unwrap();
    let old = start().plus(MINUTE * 100);
    store.prune_audit(old, old, 1000).await.unwrap();
    intact(verify(store.as_ref(), &key(1)).await.unwrap(), 1000);
    let old = start().plus(MINUTE * 1000);
    store.prune_audit(old, old, 10_000).await.unwrap();
    intact(verify(store.as_ref(), &key(1)).await.unwrap(), 0);
    write(&store, &["a"], 600..603).await;
    intact(verify(store.as_ref(), &key(1)).await.unwrap(), 3);
    assert!(!verify(store.as_ref(), &key(2)).await.unwrap().faults.is_empty(), "another key");
}

#[tokio::test]
async fn an_intact_audit_is_found_intact_in_memory() {
    is_intact(Arc::new(MemoryStore::new().with_audit_seal(Arc::new(key(1))))).await;
}

async fn sealed(dir: &tempfile::TempDir) -> Arc<dyn Store> {
    let store = SqliteStore::open(&url(dir), 2).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store.with_audit_seal(Arc::new(key(1))))
}

#[tokio::test]
async fn an_intact_audit_is_found_intact_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    is_intact(sealed(&dir).await).await;
}

#[tokio::test]
async fn an_intact_audit_is_found_intact_in_postgres() {
    let store = PgStore::open(&migrated_database().await, 2).await.unwrap();
    is_intact(Arc::new(store.with_audit_seal(Arc::new(key(1))))).await;
}

/// Stream, row, and a part of what is said of it.
type Found = (&'static str, u64, &'static str);

/// What somebody with the database, but without the key, does to it; and what is said of it.
async fn tampered(sql: &'static str) -> Vec<AuditFault> {
    let dir = tempfile::tempdir().unwrap();
    let store = sealed(&dir).await;
    history(&store).await;
    assert_eq!(verify(store.as_ref(), &key(1)).await.unwrap().faults, Vec::new());
    let path = dir.path().join("data/test.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut db = options.busy_timeout(Duration::from_secs(5)).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    verify(store.as_ref(), &key(1)).await.unwrap().faults
}

#[tokio::test]
async fn whatever_is_done_to_the_audit_is_found() {
    let cases: [(&'static str, &[Found]); 16] = [
        (
            "UPDATE audit_events SET actor = 'nobody' WHERE stream = 'a' AND sequence = 4",
            &[("a", 4, "it is not what was written")],
        ),
        (
            "UPDATE audit_events SET detail = '{\"n\": 2}' WHERE stream = 'b' AND sequence = 6",
            &[("b", 6, "it is not what was written")],
        ),
        (
            "UPDATE audit_events SET reason = NULL WHERE stream = 'a' AND sequence = 3",
            &[("a", 3, "it is not what was written")],
        ),
        (
            "UPDATE audit_events SET hash = NULL, previous_hash = NULL",
            &[("a", 3, "it is not sealed"), ("b", 3, "it is not sealed")],
        ),
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence = 4",
            &[("a", 5, "row 4 before it is missing")],
        ),
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence IN (4, 5)",
            &[("a", 6, "rows 4 to 5 before it are missing")],
        ),
        // A gap closed by counting anew.
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence = 5;
             UPDATE audit_events SET sequence = 5 WHERE stream = 'a' AND sequence = 6;
             UPDATE audit_streams SET sequence = 5 WHERE stream = 'a'",
            &[("a", 5, "it does not follow the row before it")],
        ),
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence >= 5",
            &[("a", 4, "rows 5 to 6 after it are missing")],
        ),
        // The tail cut, and the head set back as if nothing had been there.
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence >= 5;
             UPDATE audit_streams SET sequence = 4, hash = (SELECT hash FROM audit_events
                 WHERE stream = 'a' AND sequence = 4) WHERE stream = 'a'",
            &[("a", 4, "knows rows up to 5")],
        ),
        (
            "DELETE FROM audit_events WHERE stream = 'a' AND sequence <= 4",
            &[("a", 5, "rows 3 to 4 before it are missing")],
        ),
        // Made to look pruned.
        (
            "UPDATE audit_checkpoints SET sequence = 4, hash = (SELECT hash FROM audit_events
                 WHERE stream = 'a' AND sequence = 4) WHERE stream = 'a' AND pruned = 1;
             DELETE FROM audit_events WHERE stream = 'a' AND sequence <= 4",
            &[("a", 4, "was not written by this service")],
        ),
        (
            "UPDATE audit_events SET stream = 'c' WHERE stream = 'a';
             UPDATE audit_events SET stream = 'a' WHERE stream = 'b';
             UPDATE audit_events SET stream = 'b' WHERE stream = 'c'",
            &[
                ("a", 3, "it does not follow the row before it"),
                ("b", 3, "it does not follow the row before it"),
            ],
        ),
        // The same with everything that belongs to them.
        (
            "UPDATE audit_events SET stream = 'c' WHERE stream = 'a';
             UPDATE audit_streams SET stream = 'c' WHERE stream = 'a';
             DELETE FROM audit_checkpoints WHERE stream = 'a'",
            &[("c", 3, "rows 1 to 2 before it are missing")],
        ),
        ("DELETE FROM audit_streams WHERE stream = 'b'", &[("b", 6, "the stream has no head")]),
        (
            "DELETE FROM audit_events WHERE stream = 'b'",
            &[("b", 2, "rows 3 to 6 after it are missing")],
        ),
        (
            "UPDATE audit_events SET rotation_id = x'00' WHERE stream = 'a' AND sequence = 5",
            &[("a", 5, "it cannot be read")],
        ),
    ];
    for (sql, expected) in cases {
        let faults = tampered(sql).await;
        assert_eq!(faults.len(), expected.len(), "{sql}: {faults:?}");
        for (fault, (stream, sequence, reason)) in faults.iter().zip(expected) {
            let place = (fault.stream.as_str(), fault.sequence);
            assert_eq!(place, (*stream, Some(*sequence)), "{sql}: {fault:?}");
            assert!(fault.reason.contains(reason), "{sql}: {fault:?}");
        }
    }
}
