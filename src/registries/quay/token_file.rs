//! The service's own OAuth token, read from a file that others replace.
//!
//! Whether the file's mode is fit for a secret is checked where the configuration is read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::registries::{Trouble, TroubleKind};

/// The file is looked at no more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Far above any token; a larger file is a mistake.
const LONGEST: usize = 16 * 1024;

pub(super) struct TokenFile {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

struct Known {
    token: SecretString,
    version: Version,
    looked_at: Instant,
}

/// What changes when a file is replaced or written to. A mounted secret is replaced by its links,
/// which are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl From<&Metadata> for Version {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::new(None) }
    }

    /// The token; the file is read when it has changed. One that cannot be read for a moment, as
    /// while it is replaced, leaves the token before in place.
    pub(super) async fn current(&self) -> Result<SecretString, Trouble> {
        let known = {
            let known = self.known();
            known.as_ref().map(|known| (known.token.clone(), known.version, known.looked_at))
        };
        let Some((token, version, looked_at)) = known else { return self.read().await };
        if looked_at.elapsed() < LOOK_EVERY {
            return Ok(token);
        }
        let unchanged = match tokio::fs::metadata(&self.path).await {
            Ok(meta) => Version::from(&meta) == version,
            Err(_) => true,
        };
        if unchanged {
            if let Some(known) = self.known().as_mut() {
                known.looked_at = Instant::now();
            }
            return Ok(token);
        }
        Ok(self.read().await.unwrap_or(token))
    }

    /// After the registry refused `used`: another token if the file holds one by now.
    pub(super) async fn other_than(&self, used: &SecretString) -> Option<SecretString> {
        let token = self.read().await.ok()?;
        (token.expose_secret() != used.expose_secret()).then_some(token)
    }

    async fn read(&self) -> Result<SecretString, Trouble> {
        let unreadable = |_| refused("token_file cannot be read");
        // The version first: should the file change in between, the next look finds it changed.
        let meta = tokio::fs::metadata(&self.path).await.map_err(unreadable)?;
        if meta.len() > LONGEST as u64 {
            return Err(refused("token_file is too large to hold a token"));
        }
        let text = tokio::fs::read_to_string(&self.path).await.map_err(unreadable)?;
        let text = Zeroizing::new(text);
        let token = text.trim();
        if token.is_empty() {
            return Err(refused("token_file is empty"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused("token_file holds more than a token"));
        }
        let token = SecretString::from(token);
        let version = Version::from(&meta);
        *self.known() = Some(Known { token: token.clone(), version, looked_at: Instant::now() });
        Ok(token)
    }

    /// Nothing panics while it is held.
    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without a token the service is nobody to the registry, as with a refused one.
fn refused(words: &str) -> Trouble {
    Trouble::new(TroubleKind::OwnCredential, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn current(file: &TokenFile) -> String {
        file.current().await.unwrap().expose_secret().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_file_is_read_within_a_second_or_at_once_when_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let file = TokenFile::new(path.clone());
        assert_eq!(current(&file).await, "one");
        let beside = directory.path().join("new");
        std::fs::write(&beside, "two").unwrap();
        std::fs::rename(&beside, &path).unwrap();
        assert_eq!(current(&file).await, "one");
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(current(&file).await, "two");

        assert!(file.other_than(&"two".into()).await.is_none());
        std::fs::write(&path, "three").unwrap();
        assert_eq!(file.other_than(&"two".into()).await.unwrap().expose_secret(), "three");
        assert_eq!(current(&file).await, "three");

        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(current(&file).await, "three");
    }

    #[tokio::test]
    async fn what_is_no_token_is_said_without_showing_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let file = TokenFile::new(path.clone());
        let words = |trouble: Trouble| {
            assert_eq!(trouble.kind, TroubleKind::OwnCredential);
            trouble.message
        };
        assert_eq!(words(file.current().await.unwrap_err()), "token_file cannot be read");
        for (text, expected) in [
            (" \n".to_owned(), "token_file is empty"),
            ("geheim und mehr".to_owned(), "token_file holds more than a token"),
            ("x".repeat(LONGEST + 1), "token_file is too large to hold a token"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(words(file.current().await.unwrap_err()), expected);
        }
    }
}
