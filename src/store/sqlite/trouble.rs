//! Trouble with the file, made with SQLite's own means: told apart, and nothing is half-written.

use super::super::Unavailable;
use super::*;

fn reason(error: StoreError) -> Option<Unavailable> {
    let StoreError::Unavailable { reason, .. } = error else { return None };
    Some(reason)
}

fn row(size: usize) -> AuditRow {
    AuditRow {
        stream: "test".to_owned(),
        at: Timestamp::EPOCH,
        actor: "somebody".to_owned(),
        action: "something".to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: None,
        generation: None,
        detail: serde_json::json!("x".repeat(size)),
        reason: None,
        request_id: None,
    }
}

async fn store(dir: &tempfile::TempDir) -> SqliteStore {
    let url = format!("sqlite://{}", dir.path().join("trouble.db").display());
    let store = SqliteStore::open(&url, 1).await.unwrap();
    store.migrate().await.unwrap();
    store
}

#[tokio::test]
async fn a_full_disk_leaves_the_last_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    store.record_audit(&[row(1)]).await.unwrap();
    // The one writing connection may not make the file longer.
    let (pages,): (i64,) =
        sqlx::query_as("PRAGMA page_count").fetch_one(&store.writer).await.unwrap();
    let cap = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    sqlx::query(cap).execute(&store.writer).await.unwrap();
    let error = store.record_audit(&[row(2), row(1_000_000)]).await.unwrap_err();
    assert_eq!(reason(error), Some(Unavailable::DiskFull));
    // The small row that came first is gone with the big one. The cap went with its connection: there is
    // room again, and the writer is not stuck in a transaction that SQLite ended by itself.
    store.record_audit(&[row(3)]).await.unwrap();
    let page = store.list_audit(&AuditFilter::default(), None, 9).await.unwrap();
    let sequences: Vec<_> = page.items.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [2, 1]);
}

#[tokio::test]
async fn a_file_that_somebody_holds_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    sqlx::query("PRAGMA busy_timeout = 10").execute(&store.writer).await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("trouble.db"));
    let shell = sqlx::sqlite::SqlitePool::connect_with(options).await.unwrap();
    let held = shell.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.record_audit(&[row(1)]).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(reason(error), Some(Unavailable::Busy));
    assert_eq!(reason(store.ping().await.unwrap_err()), Some(Unavailable::Busy));
    store.state_counts().await.unwrap();
    held.rollback().await.unwrap();
    store.record_audit(&[row(1)]).await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_dropped_halfway_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    for micros in (0..4000).step_by(100) {
        let rows = [row(1), row(2)];
        let patience = std::time::Duration::from_micros(micros);
        if let Ok(done) = tokio::time::timeout(patience, store.record_audit(&rows)).await {
            done.unwrap();
        }
    }
    store.record_audit(&[row(3)]).await.unwrap();
    let page = store.list_audit(&AuditFilter::default(), None, 500).await.unwrap();
    let mut sequences: Vec<_> = page.items.iter().map(|event| event.sequence).collect();
    sequences.reverse();
    let expected: Vec<_> = (1..).take(sequences.len()).collect();
    assert_eq!(sequences, expected);
    assert_eq!(sequences.len() % 2, 1, "both rows or none");
}
