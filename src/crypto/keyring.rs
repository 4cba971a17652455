//! The keys of a directory: one that seals, all of them open.
//!
//! A key is used for at most 2^32 values (NIST SP 800-38D, random 96-bit nonces): at a million
//! seals a day that is more than ten years, but it is why keys are numbered and exchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aes_gcm::{Aes256Gcm, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use super::aad::Aad;
use super::audit::AUDIT_KEY_FILE;
use super::file_mode::{FileModeError, check_secret_file};
use super::sealed::{OpenError, Parts, SealError, Sealed, seal};
use super::{KEY_BYTES, secret};

/// Names the primary when the configuration does not.
pub(super) const PRIMARY_FILE: &str = "primary";
const KEY_SUFFIX: &str = ".key";
const MAX_ID: usize = 64;

/// The keys cannot be used. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// No such directory, or it may not be read.
    #[error(
        "{path}: the keys directory cannot be read: {source}; make the first key with \
         `keys generate`, or set encryption.keys_dir"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds no key.
    #[error("{path}: the keys directory holds no <key id>.key file; make one with `keys generate`")]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file is missing or open to others.
    #[error(transparent)]
    File(#[from] FileModeError),
    /// A file could not be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file's name is not a key id.
    #[error(
        "{path}: the name is not a key id: at most 64 letters, digits, dots, dashes and \
         underscores before `.key`; rename or remove the file"
    )]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// A file's content is not base64.
    #[error("{path}: is not base64 of 32 bytes; make keys with `keys generate`")]
    Base64 {
        /// The file.
        path: PathBuf,
    },
    /// A key of the wrong length.
    #[error("{path}: holds {bytes} bytes, a key has exactly {KEY_BYTES}; restore the right file")]
    Length {
        /// The file.
        path: PathBuf,
        /// How many bytes it decodes to.
        bytes: usize,
    },
    /// Nobody says which key is the primary.
    #[error(
        "{path}: is missing, so no key is the primary; write a key id into it or set \
         encryption.primary"
    )]
    PrimaryUnnamed {
        /// The file `primary`.
        path: PathBuf,
    },
    /// The primary has no file.
    #[error(
        "{path}: is missing, but {named_by} names {id:?} as the primary key; restore the file or \
         name one of: {known}"
    )]
    PrimaryMissing {
        /// The file that would hold it.
        path: PathBuf,
        /// The key's id.
        id: String,
        /// Who names it.
        named_by: String,
        /// The ids that are there.
        known: String,
    },
    /// Two ids hold the same key.
    #[error("{path}: holds the same key as {other}; every key id needs a key of its own")]
    Duplicate {
        /// The later file.
        path: PathBuf,
        /// The id that holds the same bytes.
        other: String,
    },
}

/// Rows need keys that no file holds: the start is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{dir}: stored secrets need these keys, and no file holds them: {}; put <key id>.key back, \
     nothing was changed", .ids.join(", ")
)]
pub struct MissingKeys {
    /// The missing ids, sorted.
    pub ids: Vec<String>,
    /// The keys directory.
    pub dir: String,
}

/// A key's file as `keys status` lists it; the key itself is not looked at.
#[derive(Debug)]
pub struct KeyFile {
    /// The key's id.
    pub id: String,
    /// Its file.
    pub path: PathBuf,
}

#[derive(Clone)]
struct DataKey {
    // On the heap, once, so that neither moving nor sharing the ring leaves copies of the schedule behind.
    cipher: Arc<Aes256Gcm>,
}

/// Keys by id, one of them the primary. Immutable; see [`super::SharedKeyring`] for reloading.
pub struct Keyring {
    dir: PathBuf,
    primary: String,
    /// The primary, or an older key for as long as another replica lacks that; nothing where none is common.
    sealing: Option<String>,
    keys: BTreeMap<String, DataKey>,
}

impl Keyring {
    /// Reads every `<key id>.key` of a directory; `primary` is the configured one, if any.
    ///
    /// # Errors
    /// When anything about the directory, a file or the primary is not as it must be.
    pub fn load(dir: &Path, primary: Option<&str>) -> Result<Self, KeyringError> {
        let files = list_key_files(dir)?;
        if files.is_empty() {
            return Err(KeyringError::Empty { path: dir.to_owned() });
        }
        let mut keys = BTreeMap::new();
        let mut seen: Vec<(Zeroizing<Vec<u8>>, String)> = Vec::new();
        for KeyFile { id, path } in files {
            let bytes = read_key(&path)?;
            if let Some((_, other)) = seen.iter().find(|(b, _)| secret::equal_bytes(b, &bytes)) {
                return Err(KeyringError::Duplicate { path, other: other.clone() });
            }
            let cipher = Aes256Gcm::new_from_slice(&bytes)
                .map_err(|_| KeyringError::Length { path, bytes: bytes.len() })?;
            keys.insert(id.clone(), DataKey { cipher: Arc::new(cipher) });
            seen.push((bytes, id));
        }
        let (id, named_by) = match primary {
            Some(id) => (id.to_owned(), "encryption.primary".to_owned()),
            None => named_primary(dir)?,
        };
        if !keys.contains_key(&id) {
            let known = keys.keys().cloned().collect::<Vec<_>>().join(", ");
            let path = dir.join(format!("{id}{KEY_SUFFIX}"));
            return Err(KeyringError::PrimaryMissing { path, id, named_by, known });
        }
        Ok(Self { dir: dir.to_owned(), sealing: Some(id.clone()), primary: id, keys })
    }

    /// The id of the key that is meant to seal.
    #[must_use]
    pub fn primary(&self) -> &str {
        &self.primary
    }

    /// The id of the key that seals: the primary as soon as every replica holds it.
    #[must_use]
    pub fn sealing(&self) -> Option<&str> {
        self.sealing.as_deref()
    }

    /// The same keys. Where others hold only these ids, the key that seals is one of them: the primary, else
    /// the one so far, else the last by name.
    #[must_use]
    pub fn sealing_for(&self, common: Option<&BTreeSet<String>>, so_far: Option<&str>) -> Self {
        let usable = |id: &&str| self.holds(id) && common.is_none_or(|common| common.contains(*id));
        let last = || self.keys.keys().rev().map(String::as_str).find(usable);
        let first = [Some(self.primary.as_str()), so_far].into_iter().flatten().find(usable);
        Self {
            dir: self.dir.clone(),
            primary: self.primary.clone(),
            sealing: first.or_else(last).map(ToOwned::to_owned),
            keys: self.keys.clone(),
        }
    }

    /// The ids of all keys, sorted.
    #[must_use]
    pub fn key_ids(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// Whether a key is here.
    #[must_use]
    pub fn holds(&self, key_id: &str) -> bool {
        self.keys.contains_key(key_id)
    }

    /// Seals bytes with the key that seals.
    ///
    /// # Errors
    /// When the replicas have no key in common, or the system has no randomness.
    pub fn seal(&self, aad: &Aad, plain: &[u8]) -> Result<Sealed, SealError> {
        let sealing = self.sealing.as_deref().ok_or(SealError::NoCommonKey)?;
        self.seal_with(sealing, aad, plain)
    }

    /// Seals bytes with a named key: a new primary is written with only when every replica has it.
    ///
    /// # Errors
    /// When the key is not here or the system has no randomness.
    pub fn seal_with(&self, key_id: &str, aad: &Aad, plain: &[u8]) -> Result<Sealed, SealError> {
        let key = self.keys.get(key_id).ok_or_else(|| SealError::UnknownKey(key_id.to_owned()))?;
        seal(key_id, &key.cipher, aad, plain)
    }

    /// Seals a secret text with the primary key.
    ///
    /// # Errors
    /// As [`Keyring::seal`].
    pub fn seal_secret(&self, aad: &Aad, plain: &SecretString) -> Result<Sealed, SealError> {
        self.seal(aad, plain.expose_secret().as_bytes())
    }

    /// Opens a stored value; `aad` must be the one that it was sealed for.
    ///
    /// # Errors
    /// When it is damaged, of another row, or its key is not here.
    pub fn open(&self, aad: &Aad, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let parts = Parts::of(sealed)?;
        let key = self
            .keys
            .get(parts.key_id)
            .ok_or_else(|| OpenError::UnknownKey(parts.key_id.to_owned()))?;
        parts.open(&key.cipher, aad)
    }

    /// Opens a stored secret text.
    ///
    /// # Errors
    /// As [`Keyring::open`], and when it is not text.
    pub fn open_secret(&self, aad: &Aad, sealed: &[u8]) -> Result<SecretString, OpenError> {
        let plain = self.open(aad, sealed)?;
        let text = std::str::from_utf8(&plain).map_err(|_| OpenError::NotText)?;
        Ok(SecretString::from(text))
    }

    /// Whether a stored value is sealed with another key than the primary.
    ///
    /// # Errors
    /// When it is not a sealed value.
    pub fn needs_reseal(&self, sealed: &[u8]) -> Result<bool, OpenError> {
        Ok(Parts::of(sealed)?.key_id != self.primary)
    }

    /// Refuses when one of the key ids that rows need is not here.
    ///
    /// # Errors
    /// With the ids that are missing.
    pub fn check_needed(&self, needed: &[String]) -> Result<(), MissingKeys> {
        let mut ids: Vec<String> = needed.iter().filter(|id| !self.holds(id)).cloned().collect();
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return Ok(());
        }
        Err(MissingKeys { ids, dir: self.dir.display().to_string() })
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring")
            .field("dir", &self.dir)
            .field("primary", &self.primary)
            .field("key_ids", &self.key_ids())
            .finish_non_exhaustive()
    }
}

/// Whether a text can be a key id. `audit` is taken by the audit key.
#[must_use]
pub fn is_key_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=MAX_ID).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with('.')
        && text != "audit"
}

/// The data keys' files of a directory, by id. Hidden entries (a mounted secret has some) and the
/// audit key are left out.
///
/// # Errors
/// When the directory cannot be read or a `.key` file has a name that is no key id.
pub fn list_key_files(dir: &Path) -> Result<Vec<KeyFile>, KeyringError> {
    let unreadable = |source| KeyringError::Directory { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with('.') || text == AUDIT_KEY_FILE {
            continue;
        }
        let Some(id) = text.strip_suffix(KEY_SUFFIX) else { continue };
        let path = dir.join(&name);
        if !is_key_id(id) {
            return Err(KeyringError::Name { path });
        }
        files.push(KeyFile { id: id.to_owned(), path });
    }
    files.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(files)
}

/// The id in the file `primary`, and that file's name for messages.
fn named_primary(dir: &Path) -> Result<(String, String), KeyringError> {
    let path = dir.join(PRIMARY_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(KeyringError::Read { path, source }),
    };
    match text.trim() {
        "" => Err(KeyringError::PrimaryUnnamed { path }),
        id => Ok((id.to_owned(), path.display().to_string())),
    }
}

/// Reads one key file: mode, base64, length.
pub(super) fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    check_secret_file(path)?;
    let text = Zeroizing::new(
        fs::read(path).map_err(|source| KeyringError::Read { path: path.to_owned(), source })?,
    );
    // A capacity with room to spare: a growing buffer would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    STANDARD
        .decode_vec(text.trim_ascii(), &mut bytes)
        .map_err(|_| KeyringError::Base64 { path: path.to_owned() })?;
    if bytes.len() == KEY_BYTES {
        return Ok(bytes);
    }
    Err(KeyringError::Length { path: path.to_owned(), bytes: bytes.len() })
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
mod tests;
