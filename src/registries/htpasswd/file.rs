//! The file of one registry: reading it, and changing it under a lock that other processes respect.
//!
//! Every piece of file work runs off the async threads and ends with the call's deadline. Knows
//! calls and fences, but no secrets and no meaning of the lines.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout_at};
use zeroize::Zeroizing;

use super::lines::Document;
use super::replace::{ReplaceError, replace};
use crate::registries::{CallContext, Trouble, TroubleKind};

/// The pauses between two looks at a lock that another process holds.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// Why a change did not go through.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// Definitely not applied.
    NotApplied(Trouble),
    /// It may have been applied.
    Lost(Trouble),
}

pub(super) struct HtpasswdFile {
    path: PathBuf,
    /// Callers of this process queue up here in order; only the first looks at the lock file.
    turn: Arc<Mutex<()>>,
    /// The file was there once. Should it vanish, a new one must not be made: its accounts are not gone, it is
    /// a volume that is not mounted.
    seen: Arc<AtomicBool>,
}

/// The file, locked and read. Dropping it gives the lock back.
pub(super) struct Locked {
    path: PathBuf,
    old: Option<Metadata>,
    document: Document,
    held: (File, OwnedMutexGuard<()>),
}

impl HtpasswdFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, turn: Arc::default(), seen: Arc::default() }
    }

    /// Reads without the lock: a replaced file is always whole. A missing one is trouble, because
    /// a volume that is not mounted must not look like a registry whose accounts are all gone.
    pub(super) async fn read(&self, call: &CallContext) -> Result<Document, Trouble> {
        let path = self.path.clone();
        off_thread(call, move || read_file(&resolve(&path)?)).await??.1.ok_or_else(missing)
    }

    /// Takes the lock and reads. A missing file counts as an empty one, unless it was there before.
    pub(super) async fn lock(&self, call: &CallContext) -> Result<Locked, Trouble> {
        let turn = Arc::clone(&self.turn).lock_owned();
        let turn = timeout_at(call.tokio_deadline(), turn).await.map_err(|_| Trouble::timeout())?;
        let mut pause = FIRST_PAUSE;
        let (path, lock) = loop {
            let path = self.path.clone();
            let attempt = move || resolve(&path).and_then(|path| Ok((try_lock(&path)?, path)));
            if let (Some(lock), path) = off_thread(call, attempt).await?? {
                break (path, lock);
            }
            call.in_time()?;
            // Uneven pauses, so that two processes do not keep missing each other's gaps.
            sleep(pause.mul_f64(rand::random_range(0.5..1.0)).min(call.remaining())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        let seen = Arc::clone(&self.seen);
        off_thread(call, move || {
            let (old, document) = read_file(&path)?;
            if old.is_some() {
                seen.store(true, Ordering::Release);
            } else if seen.load(Ordering::Acquire) {
                return Err(missing());
            }
            let document = document.unwrap_or_default();
            Ok(Locked { path, old, document, held: (lock, turn) })
        })
        .await?
    }
}

impl Locked {
    /// The content; an empty one where there is no file yet.
    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    /// Trouble when there is no file, as in [`HtpasswdFile::read`].
    pub(super) fn present(&self) -> Result<(), Trouble> {
        self.old.as_ref().map(|_| ()).ok_or_else(missing)
    }

    /// Replaces the content. The fence is asked here, under the lock, and the deadline once more
    /// when only the rename is left.
    pub(super) async fn replace(
        self,
        call: &CallContext,
        bytes: Zeroizing<Vec<u8>>,
    ) -> Result<(), ChangeError> {
        call.may_act().await.map_err(ChangeError::NotApplied)?;
        let Self { path, old, held, .. } = self;
        let deadline = call.tokio_deadline();
        let go_on = {
            let (path, old) = (path.clone(), old.clone());
            move || {
                if Instant::now() >= deadline {
                    Err(Trouble::timeout())
                } else if is_same(std::fs::metadata(&path).ok().as_ref(), old.as_ref()) {
                    Ok(())
                } else {
                    // An editor that knows no lock; its change must not be lost with ours.
                    let words = "somebody else changed the htpasswd file at the same moment";
                    Err(Trouble::new(TroubleKind::ServerError, words))
                }
            }
        };
        let work = move || {
            let result = replace(&path, old.as_ref(), &bytes, go_on);
            drop(held); // only now, also when nobody waits for the answer any more
            result
        };
        let result = off_thread(call, work).await.map_err(ChangeError::Lost)?;
        result.map_err(|error| match error {
            ReplaceError::Stopped(trouble) => ChangeError::NotApplied(trouble),
            ReplaceError::Before(error) => ChangeError::NotApplied(Trouble::new(
                TroubleKind::ServerError,
                format!("the htpasswd file cannot be written: {}", error.kind()),
            )),
            ReplaceError::Ownership(error) => ChangeError::NotApplied(Trouble::new(
                TroubleKind::Misconfigured,
                format!("owner or group of the htpasswd file cannot be kept: {}", error.kind()),
            )),
            ReplaceError::After(error) => ChangeError::Lost(Trouble::new(
                TroubleKind::ServerError,
                format!("the new htpasswd file may not be on disk: {}", error.kind()),
            )),
        })
    }
}

/// Runs blocking work and waits for it until the deadline.
pub(super) async fn off_thread<T: Send + 'static>(
    call: &CallContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    match timeout_at(call.tokio_deadline(), tokio::task::spawn_blocking(work)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => {
            Err(Trouble::new(TroubleKind::ServerError, "the work off the async threads broke off"))
        }
        Err(_) => Err(Trouble::timeout()),
    }
}

/// The file behind symbolic links, so that a rename replaces it and not a link, and so that all
/// writers lock the same neighbour.
fn resolve(path: &Path) -> Result<PathBuf, Trouble> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(misconfigured("the htpasswd path names no file"));
            };
            if path.is_symlink() {
                return Err(misconfigured("the htpasswd path is a symbolic link to nothing"));
            }
            let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            match here.canonicalize() {
                Ok(directory) => Ok(directory.join(name)),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(misconfigured("the directory of the htpasswd file does not exist"))
                }
                Err(error) => Err(unreadable(&error)),
            }
        }
        Err(error) => Err(unreadable(&error)),
    }
}

/// One look at the lock. It is never removed: whoever waits for a removed one waits beside the rest.
fn try_lock(path: &Path) -> Result<Option<File>, Trouble> {
    let lock = lock_path(path);
    let failed = |error: io::Error| {
        let words = format!("the lock of the htpasswd file cannot be taken: {}", error.kind());
        Trouble::new(TroubleKind::ServerError, words)
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // Somebody may have removed the name meanwhile; then this lock protects from nobody.
    let ours = file.metadata().map_err(failed)?;
    let named = std::fs::metadata(&lock);
    let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()));
    Ok(same.then_some(file))
}

pub(super) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn read_file(path: &Path) -> Result<(Option<Metadata>, Option<Document>), Trouble> {
    // Looked at before it is opened: opening a pipe would wait for its other end.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(misconfigured("the htpasswd path is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, None)),
        Err(error) => return Err(unreadable(&error)),
    }
    let mut file = File::open(path).map_err(|error| unreadable(&error))?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).map_err(|error| unreadable(&error))?;
    let document = Document::parse(bytes).map_err(|malformed| {
        misconfigured(&format!("line {} of the htpasswd file is malformed", malformed.line))
    })?;
    Ok((Some(metadata), Some(document)))
}

fn is_same(now: Option<&Metadata>, before: Option<&Metadata>) -> bool {
    let identity = |of: &Metadata| (of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec());
    now.map(identity) == before.map(identity)
}

/// Not `Misconfigured`, which would stop the registry at once: the next create makes the file.
fn missing() -> Trouble {
    Trouble::new(TroubleKind::ServerError, "the htpasswd file does not exist")
}

fn misconfigured(words: &str) -> Trouble {
    Trouble::new(TroubleKind::Misconfigured, words)
}

fn unreadable(error: &io::Error) -> Trouble {
    let words = format!("the htpasswd file cannot be read: {}", error.kind());
    Trouble::new(TroubleKind::ServerError, words)
}
