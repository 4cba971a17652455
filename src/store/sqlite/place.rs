//! Whether the files that this process has open are still the ones at their place.
//!
//! A file that somebody deletes or replaces lives on for who has it open: what is written there is lost with
//! the process, and without its lock file a second process may begin. So nothing is written any more then.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::super::{StoreError, Unavailable};

/// A file by its path and its identity at the time it was opened: device and inode.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    pub(super) fn of(path: &Path, file: &File) -> std::io::Result<Self> {
        // The directory may be left, the place may not.
        let path = std::path::absolute(path)?;
        Ok(Self { path, identity: identity(&file.metadata()?) })
    }

    /// # Errors
    /// `Unavailable` when something else, or nothing, is there now.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let gone = |what: String| StoreError::Unavailable {
            reason: Unavailable::Io,
            detail: format!(
                "{} {what} while it was in use; put it back, or start the service again",
                self.path.display()
            ),
        };
        match std::fs::metadata(&self.path) {
            Ok(now) if identity(&now) == self.identity => Ok(()),
            Ok(_) => Err(gone("was replaced".to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(gone("was deleted".to_owned()))
            }
            Err(error) => Err(gone(format!("cannot be looked at ({error})"))),
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_left_its_place_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let place = Place::of(&path, &File::create(&path).unwrap()).unwrap();
        assert_eq!(place.check(), Ok(()));
        std::fs::rename(&path, directory.path().join("b")).unwrap();
        assert!(place.check().unwrap_err().to_string().contains("was deleted"));
        File::create(&path).unwrap();
        assert!(place.check().unwrap_err().to_string().contains("was replaced"));
        std::fs::rename(directory.path().join("b"), &path).unwrap();
        assert_eq!(place.check(), Ok(()));
    }
}
