//! The keyring that a running service holds: exchanged as a whole when the files change.
//!
//! Whoever seals or opens takes one snapshot and keeps it for the operation, so a reload never
//! changes the keys in the middle of one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::keyring::{Keyring, KeyringError, PRIMARY_FILE, list_key_files};

/// What says cheaply that a file may have changed: device, inode, mtime, ctime, size.
///
/// Mounted secrets change by a new symbolic link, which shows as another inode.
type Stamp = (PathBuf, Option<(u64, u64, i64, i64, i64, i64, u64)>);

struct Current {
    ring: Arc<Keyring>,
    stamps: Vec<Stamp>,
    /// The keys that every other replica holds; nothing where there is no other.
    common: Option<BTreeSet<String>>,
}

/// A keyring that can be read again while others use it.
pub struct SharedKeyring {
    dir: PathBuf,
    primary: Option<String>,
    current: RwLock<Current>,
}

impl SharedKeyring {
    /// Loads the ring for the first time.
    ///
    /// # Errors
    /// As [`Keyring::load`].
    pub fn load(dir: &Path, primary: Option<&str>) -> Result<Self, KeyringError> {
        // Stamped before reading: a change in between is seen at the next reload.
        let stamps = stamps(dir)?;
        let ring = Arc::new(Keyring::load(dir, primary)?);
        Ok(Self {
            dir: dir.to_owned(),
            primary: primary.map(ToOwned::to_owned),
            current: RwLock::new(Current { ring, stamps, common: None }),
        })
    }

    /// The ring as it is now.
    #[must_use]
    pub fn get(&self) -> Arc<Keyring> {
        // A poisoned lock still holds a whole ring: it is only ever exchanged by one assignment.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).ring)
    }

    /// Reads the files again when one of them changed; true when there is a new ring.
    ///
    /// # Errors
    /// As [`Keyring::load`]; the old ring stays in use, and the next call tries again.
    pub fn reload(&self) -> Result<bool, KeyringError> {
        let stamps = stamps(&self.dir)?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).stamps == stamps {
            return Ok(false);
        }
        let ring = Keyring::load(&self.dir, self.primary.as_deref())?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let ring = ring.sealing_for(current.common.as_ref(), current.ring.sealing());
        *current = Current { ring: Arc::new(ring), stamps, common: current.common.take() };
        Ok(true)
    }

    /// From now on seals with a key that all of these hold, too: those of every other replica.
    pub fn agree(&self, common: Option<BTreeSet<String>>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.common == common {
            return;
        }
        let ring = current.ring.sealing_for(common.as_ref(), current.ring.sealing());
        current.ring = Arc::new(ring);
        current.common = common;
    }
}

impl std::fmt::Debug for SharedKeyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

fn stamps(dir: &Path) -> Result<Vec<Stamp>, KeyringError> {
    let files = list_key_files(dir)?.into_iter().map(|file| file.path);
    let stamp = |path: PathBuf| {
        let seen = fs::metadata(&path).ok().map(|meta| {
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            (meta.dev(), meta.ino(), times.0, times.1, times.2, times.3, meta.size())
        });
        (path, seen)
    };
    Ok(files.chain([dir.join(PRIMARY_FILE)]).map(stamp).collect())
}
