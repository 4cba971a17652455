//! Replaces a file as a whole, so that a reader sees the old one or the new one and nothing else.
//!
//! Blocking code, called off the async threads. Knows nothing of users or of calls: the last
//! question before the rename is the caller's.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where replacing failed; which side of the rename decides what is true.
#[derive(Debug)]
pub(super) enum ReplaceError<E> {
    /// The caller did not want to go on.
    Stopped(E),
    /// Nothing has changed.
    Before(io::Error),
    /// The file's access rights could not be kept: the registry might lose its access.
    Ownership(io::Error),
    /// It may have changed.
    After(io::Error),
}

/// Writes `bytes` in place of `path`. `go_on` is asked once everything is ready and only the
/// rename is left. The caller holds the lock, so the name of the temporary file may be a fixed one:
/// what a killed process left behind is overwritten.
pub(super) fn replace<E>(
    path: &Path,
    old: Option<&Metadata>,
    bytes: &[u8],
    go_on: impl FnOnce() -> Result<(), E>,
) -> Result<(), ReplaceError<E>> {
    let temporary = temporary_path(path);
    let result = prepare(&temporary, old, bytes)
        .and_then(|()| go_on().map_err(ReplaceError::Stopped))
        .and_then(|()| rename(&temporary, path));
    if result.is_err() {
        // Nothing depends on it: the next writer removes it, too.
        let _ = std::fs::remove_file(&temporary);
    }
    result?;
    sync_directory(path).map_err(ReplaceError::After)
}

/// Beside the file (a rename does not cross file systems), hidden, and no name that people use.
pub(super) fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.hyperfleet-new"))
}

fn prepare<E>(
    temporary: &Path,
    old: Option<&Metadata>,
    bytes: &[u8],
) -> Result<(), ReplaceError<E>> {
    let before = ReplaceError::Before;
    match std::fs::remove_file(temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(before(error)),
    }
    // `create_new` follows no symbolic link that somebody may have put there.
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
    let mut file = options.open(temporary).map_err(before)?;
    file.write_all(bytes).map_err(before)?;
    if let Some(old) = old {
        keep_access(&file, temporary, old)?;
        move_time_on(&file, old).map_err(before)?;
    }
    file.sync_all().map_err(before)
}

/// Mode and group as before, the owner where we are allowed to.
fn keep_access<E>(file: &File, path: &Path, old: &Metadata) -> Result<(), ReplaceError<E>> {
    let new = file.metadata().map_err(ReplaceError::Before)?;
    let readable_by_all = old.mode() & 0o004 != 0;
    if new.gid() != old.gid()
        && let Err(error) = chown(path, None, Some(old.gid()))
        && old.mode() & 0o040 != 0
        && !readable_by_all
    {
        return Err(ReplaceError::Ownership(error));
    }
    if new.uid() != old.uid()
        && let Err(error) = chown(path, Some(old.uid()), None)
        && old.mode() & 0o044 == 0
    {
        return Err(ReplaceError::Ownership(error));
    }
    // After the owner: changing that one may clear bits of the mode.
    file.set_permissions(old.permissions()).map_err(ReplaceError::Before)
}

/// The registry reads the file again only when its time is another one, so the time moves on with
/// every change, even when the clock has gone back or the file system counts in whole seconds.
fn move_time_on(file: &File, old: &Metadata) -> io::Result<()> {
    let old = old.modified()?;
    for step in [Duration::from_millis(1), Duration::from_secs(1), Duration::from_secs(2)] {
        if modified(file)? > old {
            return Ok(());
        }
        file.set_modified(old + step)?;
    }
    if modified(file)? > old {
        Ok(())
    } else {
        Err(io::Error::other("the file's time stands still"))
    }
}

fn modified(file: &File) -> io::Result<SystemTime> {
    file.metadata()?.modified()
}

fn rename<E>(temporary: &Path, path: &Path) -> Result<(), ReplaceError<E>> {
    std::fs::rename(temporary, path).map_err(|error| match error.kind() {
        // The system refused to begin. Anything else may have happened half way.
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::CrossesDevices
        | ErrorKind::ResourceBusy => ReplaceError::Before(error),
        _ => ReplaceError::After(error),
    })
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(directory.unwrap_or(Path::new(".")))?.sync_all() {
        // Some network file systems have no such operation; there is nothing to wait for.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    type Never = std::convert::Infallible;

    fn write(path: &Path, bytes: &[u8]) {
        let old = std::fs::metadata(path).ok();
        replace::<Never>(path, old.as_ref(), bytes, || Ok(())).unwrap();
    }

    #[test]
    fn keeps_mode_and_owner_and_moves_the_time_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("htpasswd");
        write(&path, b"one");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        // Only root may give a file away; for anybody else owner and group are simply their own.
        let _ = chown(&path, Some(12345), Some(12345));
        let before = std::fs::metadata(&path).unwrap();
        // A time in the future, as after the clock was set back.
        let ahead = before.modified().unwrap() + Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_modified(ahead).unwrap();
        write(&path, b"two");
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o777, 0o644);
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert!(after.modified().unwrap() > ahead);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn overwrites_what_a_killed_process_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("htpasswd");
        std::fs::write(temporary_path(&path), b"half a fi").unwrap();
        write(&path, b"whole");
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert!(!temporary_path(&path).exists());
    }

    #[test]
    fn nothing_is_left_when_it_is_stopped_or_fails() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("htpasswd");
        write(&path, b"one");
        let stopped = replace(&path, None, b"two", || Err("stop"));
        assert!(matches!(stopped, Err(ReplaceError::Stopped("stop"))), "{stopped:?}");
        assert!(!temporary_path(&path).exists());

        // A directory in the way of the temporary file: it can be neither removed nor written.
        std::fs::create_dir(temporary_path(&path)).unwrap();
        let failed = replace::<Never>(&path, None, b"two", || Ok(()));
        assert!(matches!(failed, Err(ReplaceError::Before(_))), "{failed:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn a_refused_rename_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("htpasswd");
        std::fs::create_dir(&path).unwrap();
        let failed = replace::<Never>(&path, None, b"two", || Ok(()));
        assert!(matches!(failed, Err(ReplaceError::Before(_))), "{failed:?}");
        assert!(!temporary_path(&path).exists());
    }
}
