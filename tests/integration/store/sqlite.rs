//! What only the embedded database promises: one process, a private file, no plaintext, errors told apart.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hyperfleet_credentials::store::{SqliteStore, Store, StoreError, Unavailable};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::backends::{Backend, sqlite, url};
use super::script::served;

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("data/test.db")
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

fn reason(error: &StoreError) -> Option<Unavailable> {
    let StoreError::Unavailable { reason, .. } = error else { return None };
    Some(*reason)
}

#[tokio::test]
async fn a_second_process_is_refused_and_a_reader_is_not() {
    let Backend { store, dir } = sqlite().await;
    let dir = dir.unwrap();
    let script = served(&store, "cls-a").await;
    // The lock belongs to the open file, so a second open in this process is like another process.
    let error = SqliteStore::open(&url(&dir), 1).await.unwrap_err();
    let path = file(&dir).display().to_string();
    assert_eq!(error, StoreError::Locked { path: path.clone() });
    assert_eq!(error.to_string(), format!("another process has the database open: {path}"));

    let reader = SqliteStore::open_read_only(&url(&dir), 1).await.unwrap();
    assert_eq!(reader.load(&script.cluster_id).await, Ok(script.loaded()));
    let claim = reader.claim_installation("x", script.now).await.unwrap_err();
    assert_eq!(reason(&claim), Some(Unavailable::ReadOnly), "{claim}");
    reader.close().await;

    store.close().await;
    let closed = store.load(&script.cluster_id).await.unwrap_err();
    assert_eq!(reason(&closed), Some(Unavailable::Closed), "{closed}");
    // Nobody writes now: a reader needs no lock, and does not keep the next writer out.
    let alone = SqliteStore::open_read_only(&url(&dir), 1).await.unwrap();
    assert_eq!(alone.load(&script.cluster_id).await, Ok(script.loaded()));
    let again = SqliteStore::open(&url(&dir), 1).await.unwrap();
    assert_eq!(again.load(&script.cluster_id).await, Ok(script.loaded()));
}

#[tokio::test]
async fn the_files_are_private() {
    let Backend { store, dir } = sqlite().await;
    let dir = dir.unwrap();
    served(&store, "cls-a").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let data = dir.path().join("data");
    assert_eq!(mode(&data), 0o700);
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn commits_are_on_the_disk_when_they_return() {
    let Backend { store, dir } = sqlite().await;
    let dir = dir.unwrap();
    let script = served(&store, "cls-a").await;
    // What a crash leaves: the files as they are now, copied while the store is open.
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("data")).unwrap();
    for name in ["test.db", "test.db-wal"] {
        let from = dir.path().join("data").join(name);
        std::fs::copy(from, copy.path().join("data").join(name)).unwrap();
    }
    let again = SqliteStore::open(&url(&copy), 1).await.unwrap();
    assert_eq!(again.load(&script.cluster_id).await, Ok(script.loaded()));
}

#[tokio::test]
async fn a_schema_of_another_time_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&url(&dir), 1).await.unwrap();
    let unmigrated = store.check_schema().await.unwrap_err();
    assert!(matches!(unmigrated, StoreError::NotMigrated { found: 0, .. }), "{unmigrated}");
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.check_schema().await, Ok(()));
    let known = store.schema_version().await.unwrap();
    let mut db = raw(&file(&dir)).await;
    let newer = "INSERT INTO _sqlx_migrations \
         (version, description, success, checksum, execution_time) VALUES (9999, 'x', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut db).await.unwrap();
    let too_new = StoreError::SchemaTooNew { found: 9999, known };
    assert_eq!(store.check_schema().await, Err(too_new.clone()));
    assert_eq!(store.migrate().await, Err(too_new));
}

#[tokio::test]
async fn a_row_that_this_program_never_wrote_is_named_and_not_guessed() {
    let Backend { store, dir } = sqlite().await;
    let dir = dir.unwrap();
    let script = served(&store, "cls-a").await;
    let mut db = raw(&file(&dir)).await;
    let forge = "UPDATE pull_secrets SET state = 'rotating'";
    sqlx::query(forge).execute(&mut db).await.unwrap();
    let error = store.load(&script.cluster_id).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    let forge = "UPDATE accounts SET username = NULL";
    sqlx::query(forge).execute(&mut db).await.unwrap();
    let error = store.served(&script.cluster_id).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn something_else_than_a_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(file(&dir), b"this is certainly not a database, but long enough").unwrap();
    let error = SqliteStore::open(&url(&dir), 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    let missing = format!("sqlite://{}", dir.path().join("missing.db").display());
    let error = SqliteStore::open_read_only(&missing, 1).await.unwrap_err();
    assert_eq!(reason(&error), Some(Unavailable::Io), "{error}");
    let strange = SqliteStore::open("postgres://somewhere/else", 1).await.unwrap_err();
    assert_eq!(strange, StoreError::Url);
}
