//! Who may read a file that holds a secret.
//!
//! Used for keys, tokens and passwords alike, so that there is one rule and one message.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Readable by the owner, perhaps writable by it, perhaps readable by the group; nothing else.
const ALLOWED: [u32; 4] = [0o640, 0o600, 0o440, 0o400];

/// A secret's file is not fit to be used.
#[derive(Debug, thiserror::Error)]
pub enum FileModeError {
    /// It is not there, or may not be looked at.
    #[error("{path}: cannot be read: {source}; make the file, or correct the path to it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a directory or something stranger.
    #[error("{path}: is not a file; name the file itself")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Others may read it, or more than its owner may write it.
    #[error(
        "{path}: mode {mode:04o} is not allowed for a secret; run: chmod {advice:04o} {path} \
         (0640, 0600, 0440 and 0400 are accepted; in Kubernetes set defaultMode on the volume)"
    )]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The mode nearest to it that passes.
        advice: u32,
    },
}

/// Refuses a file that others may read or the group may write.
///
/// Symbolic links are followed: a mounted secret consists of them, and the target's mode counts.
///
/// # Errors
/// When the file is missing, is no file, or has a mode outside the four that pass.
pub fn check_secret_file(path: &Path) -> Result<(), FileModeError> {
    let meta = fs::metadata(path)
        .map_err(|source| FileModeError::Unreadable { path: path.to_owned(), source })?;
    if !meta.is_file() {
        return Err(FileModeError::NotAFile { path: path.to_owned() });
    }
    let mode = meta.permissions().mode() & 0o7777;
    if ALLOWED.contains(&mode) {
        return Ok(());
    }
    // Keep the group's right to read where it had one: a pod often reads by its fsGroup.
    let advice = if mode & 0o040 == 0 { 0o600 } else { 0o640 };
    Err(FileModeError::TooOpen { path: path.to_owned(), mode, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mode(mode: u32) -> Result<(), FileModeError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        check_secret_file(&file)
    }

    #[test]
    fn four_modes_pass() {
        for mode in 0..=0o777 {
            assert_eq!(with_mode(mode).is_ok(), ALLOWED.contains(&mode), "{mode:o}");
        }
    }

    #[test]
    fn the_message_says_what_to_do() {
        let text = with_mode(0o644).unwrap_err().to_string();
        assert!(text.contains("mode 0644") && text.contains("chmod 0640 /"), "{text}");
        let text = with_mode(0o602).unwrap_err().to_string();
        assert!(text.contains("chmod 0600 /"), "{text}");
        let missing = check_secret_file(Path::new("/nowhere/x.key")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/x.key: cannot be read"), "{missing}");
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(check_secret_file(dir.path()), Err(FileModeError::NotAFile { .. })));
    }
}
