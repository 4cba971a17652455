//! Opening the file: its address, its lock, its two pools.
//!
//! SQLite is one process here. The operating system's lock on `<file>.lock` says so to a second one before it
//! touches the database; it goes with the process, however that ends.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::super::{StoreError, Unavailable};
use super::error::map;
use super::place::Place;

/// How long a connection waits for another process' lock (a backup, a shell), and a task for the writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Opened {
    pub writer: SqlitePool,
    pub reader: SqlitePool,
    pub lock: Option<File>,
    /// The database and its lock file, where this process writes.
    pub places: Vec<Place>,
}

/// `sqlite://relative/path.db` or `sqlite:///absolute/path.db`. Nothing is decoded: what stands there is the path.
pub(super) fn path_of(url: &str) -> Result<PathBuf, StoreError> {
    let path = url.strip_prefix("sqlite://").ok_or(StoreError::Url)?;
    let bad = path.is_empty() || path.ends_with('/') || path.contains(['?', '#', '\0']);
    if bad || path.starts_with(':') { Err(StoreError::Url) } else { Ok(PathBuf::from(path)) }
}

pub(super) async fn open(path: &Path, readers: u32) -> Result<Opened, StoreError> {
    make_parent(path).map_err(|error| io(&error))?;
    let (lock, lock_place) = lock(path)?;
    // The file itself, before SQLite makes it readable for everybody. Its -wal and -shm take its mode over.
    let file = private().append(true).open(path).map_err(|error| io(&error))?;
    let place = Place::of(path, &file).map_err(|error| io(&error))?;
    drop(file);
    let options = options(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true);
    let writer = pool(1).connect_with(options).await.map_err(map)?;
    let reader = pool(readers).connect_with(self::options(path).read_only(true)).await;
    let places = vec![place, lock_place];
    Ok(Opened { writer, reader: reader.map_err(map)?, lock: Some(lock), places })
}

/// Beside a process that writes, or without one. Writes are refused by SQLite itself.
pub(super) async fn open_read_only(path: &Path, readers: u32) -> Result<Opened, StoreError> {
    let options = options(path).read_only(true);
    let reader = pool(readers).connect_with(options).await.map_err(map)?;
    Ok(Opened { writer: reader.clone(), reader, lock: None, places: Vec::new() })
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
}

/// Connections are files: they neither age nor fail while idle, so none is closed or tested.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections.max(1))
        .min_connections(1)
        .acquire_timeout(BUSY_TIMEOUT * 2)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

fn make_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)
        }
        Some(_) | None => Ok(()),
    }
}

fn lock(path: &Path) -> Result<(File, Place), StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = private().append(true).open(&name).map_err(|error| io(&error))?;
    let place = Place::of(Path::new(&name), &file).map_err(|error| io(&error))?;
    match file.try_lock() {
        Ok(()) => Ok((file, place)),
        Err(TryLockError::WouldBlock) => {
            Err(StoreError::Locked { path: path.display().to_string() })
        }
        Err(TryLockError::Error(error)) => Err(io(&error)),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

fn io(error: &std::io::Error) -> StoreError {
    let reason = match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
            Unavailable::ReadOnly
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Unavailable::DiskFull
        }
        _ => Unavailable::Io,
    };
    StoreError::Unavailable { reason, detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_file() {
        assert_eq!(path_of("sqlite://data/a.db"), Ok(PathBuf::from("data/a.db")));
        assert_eq!(path_of("sqlite:///var/a.db"), Ok(PathBuf::from("/var/a.db")));
        let bad = ["", "a.db", "sqlite:a.db", "sqlite://", "sqlite:///", "sqlite://:memory:"];
        for bad in bad.into_iter().chain(["postgres://h/d", "sqlite://a.db?mode=rwc"]) {
            assert_eq!(path_of(bad), Err(StoreError::Url), "{bad}");
        }
    }
}
