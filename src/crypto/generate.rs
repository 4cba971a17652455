//! Makes keys. Never overwrites one: a lost key is a lost fleet.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::TryRng;
use rand::rngs::SysRng;
use zeroize::Zeroizing;

use super::KEY_BYTES;
use super::audit::AUDIT_KEY_FILE;
use super::keyring::{KeyringError, PRIMARY_FILE, is_key_id, list_key_files};

/// A key could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The id is not one.
    #[error(
        "{0:?} is not a key id: use at most 64 letters, digits, dots, dashes and underscores, not \
         beginning with a dot, and not `audit`"
    )]
    Id(String),
    /// There is such a file.
    #[error("{0}: exists already, and a key is never overwritten; choose another id")]
    Exists(PathBuf),
    /// The directory's content could not be read.
    #[error(transparent)]
    Directory(#[from] KeyringError),
    /// A file could not be written.
    #[error("{path}: cannot be written: {source}")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
}

/// What was made.
#[derive(Debug, PartialEq, Eq)]
pub struct Generated {
    /// The new key's file.
    pub key: PathBuf,
    /// Whether the file `primary` names it now.
    pub primary: bool,
    /// The audit key's file, when there was none before.
    pub audit_key: Option<PathBuf>,
}

/// Makes `<id>.key`, and `audit.key` where there is none; the first key becomes the primary.
///
/// The directory gets mode 0700 when it is made here, the files 0600.
///
/// # Errors
/// When the id is not one, the key exists, or the disk refuses.
pub fn generate_key(dir: &Path, id: &str, primary: bool) -> Result<Generated, GenerateError> {
    if !is_key_id(id) {
        return Err(GenerateError::Id(id.to_owned()));
    }
    private_dir(dir)?;
    let first = list_key_files(dir)?.is_empty();
    let key = dir.join(format!("{id}.key"));
    let primary = primary || first;
    let name_primary = || replace(&dir.join(PRIMARY_FILE), format!("{id}\n").as_bytes());

    let audit_key = generate_audit_key(dir)?;
    // Who is interrupted may simply begin again: while there is no key, nothing has been made. A further one
    // has to be there before it is named, because somebody may be reading.
    if first {
        name_primary()?;
    }
    write_new(&key, &random_key()?, 0o600)?;
    if primary && !first {
        name_primary()?;
    }
    Ok(Generated { key, primary, audit_key })
}

/// Makes `audit.key` where there is none, and says where.
///
/// # Errors
/// When the disk refuses.
pub fn generate_audit_key(dir: &Path) -> Result<Option<PathBuf>, GenerateError> {
    let path = dir.join(AUDIT_KEY_FILE);
    match write_new(&path, &random_key()?, 0o600) {
        Ok(()) => Ok(Some(path)),
        Err(GenerateError::Exists(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn private_dir(dir: &Path) -> Result<(), GenerateError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))
}

fn random_key() -> Result<Zeroizing<Vec<u8>>, GenerateError> {
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    SysRng.try_fill_bytes(&mut *bytes).map_err(|_| GenerateError::NoRandomness)?;
    let mut text = Zeroizing::new(STANDARD.encode(*bytes).into_bytes());
    text.push(b'\n');
    Ok(text)
}

/// Writes a file that must not exist yet, whole or not at all, and makes it durable.
///
/// The content is written under another name and linked to the right one: a crash leaves no half
/// of a key behind that nobody may overwrite, and two writers cannot both win.
///
/// # Errors
/// When the file exists or the disk refuses.
pub fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), GenerateError> {
    if path.symlink_metadata().is_ok() {
        return Err(GenerateError::Exists(path.to_owned()));
    }
    let temporary = write_temporary(path, content, mode)?;
    let linked = fs::hard_link(&temporary, path);
    // The temporary name has done its work either way; a leftover is harmless and hidden.
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(GenerateError::Exists(path.to_owned()))
        }
        Err(error) => Err(failed(path)(error)),
    }
}

/// Exchanges a file by renaming, so that a reader sees the old or the new content.
fn replace(path: &Path, content: &[u8]) -> Result<(), GenerateError> {
    let temporary = write_temporary(path, content, 0o600)?;
    fs::rename(&temporary, path).map_err(failed(path))?;
    sync_parent(path)
}

fn write_temporary(path: &Path, content: &[u8], mode: u32) -> Result<PathBuf, GenerateError> {
    let mut random = [0_u8; 8];
    SysRng.try_fill_bytes(&mut random).map_err(|_| GenerateError::NoRandomness)?;
    let name = format!(".{}.tmp", data_encoding::HEXLOWER.encode(&random));
    let temporary = parent(path).join(name);
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(temporary),
        Err(error) => {
            // What there is of it is of no use; the error that matters is the first one.
            let _ = fs::remove_file(&temporary);
            Err(failed(path)(error))
        }
    }
}

fn sync_parent(path: &Path) -> Result<(), GenerateError> {
    File::open(parent(path)).and_then(|dir| dir.sync_all()).map_err(failed(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> GenerateError {
    let path = path.to_owned();
    move |source| GenerateError::Write { path, source }
}
