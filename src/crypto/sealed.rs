//! The form of a sealed value: `version(1) | length of key id(1) | key id | nonce(12) | ciphertext | tag(16)`.
//!
//! Knows only the form and the cipher; which keys there are is the keyring's business.

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use rand::TryRng;
use rand::rngs::SysRng;
use zeroize::Zeroizing;

use super::aad::Aad;

/// The only form that exists so far.
pub(super) const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// A sealed value as it stands in the database. Holds nothing secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to store, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The key that this value was sealed with.
    #[must_use]
    pub fn key_id(&self) -> &str {
        Parts::of(&self.0).map_or("", |parts| parts.key_id)
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed({} bytes, key {:?})", self.0.len(), self.key_id())
    }
}

impl TryFrom<Vec<u8>> for Sealed {
    type Error = OpenError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, OpenError> {
        Parts::of(&bytes)?;
        Ok(Self(bytes))
    }
}

/// A value could not be sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Replicas hold different keys, and none in common.
    #[error("no key is held by every replica; give all of them the same keys")]
    NoCommonKey,
    /// The named key is not in the ring.
    #[error("key {0} is not in the keyring; put its file into the keys directory")]
    UnknownKey(String),
    /// The system gave no random bytes.
    #[error("the operating system gave no random bytes for a nonce")]
    NoRandomness,
    /// More than the cipher can take (64 GiB).
    #[error("the value is too long to be sealed")]
    TooLong,
}

/// A value could not be opened. Says nothing about the plaintext.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not the form of a sealed value.
    #[error("the stored value is not a sealed value: it is cut short or damaged")]
    Malformed,
    /// Made by a later release.
    #[error("the stored value has format version {0}, this release knows {VERSION}; upgrade")]
    UnknownVersion(u8),
    /// Its key is not in the ring.
    #[error("the stored value needs key {0}; put its file back into the keys directory")]
    UnknownKey(String),
    /// The tag does not fit: damaged, moved from another row, or another key under this name.
    #[error(
        "the stored value does not open with key {0}: it was changed, moved to another row, or the \
         key file holds another key than the one it was sealed with"
    )]
    Rejected(String),
    /// The plaintext is not text, where text was asked for.
    #[error("the stored value is not text")]
    NotText,
}

/// A sealed value taken apart.
pub(super) struct Parts<'a> {
    pub(super) key_id: &'a str,
    nonce: &'a [u8],
    ciphertext: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let (version, rest) = bytes.split_first().ok_or(OpenError::Malformed)?;
        if *version != VERSION {
            return Err(OpenError::UnknownVersion(*version));
        }
        let (length, rest) = rest.split_first().ok_or(OpenError::Malformed)?;
        let (key_id, rest) =
            rest.split_at_checked(usize::from(*length)).ok_or(OpenError::Malformed)?;
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_BYTES).ok_or(OpenError::Malformed)?;
        let key_id = std::str::from_utf8(key_id).map_err(|_| OpenError::Malformed)?;
        if key_id.is_empty() || ciphertext.len() < TAG_BYTES {
            return Err(OpenError::Malformed);
        }
        Ok(Self { key_id, nonce, ciphertext })
    }

    pub(super) fn open(
        &self,
        cipher: &Aes256Gcm,
        aad: &Aad,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let nonce = Nonce::try_from(self.nonce).map_err(|_| OpenError::Malformed)?;
        let aad = aad.bytes(VERSION, self.key_id);
        cipher
            .decrypt(&nonce, Payload { msg: self.ciphertext, aad: &aad })
            .map(Zeroizing::new)
            .map_err(|_| OpenError::Rejected(self.key_id.to_owned()))
    }
}

pub(super) fn seal(
    key_id: &str,
    cipher: &Aes256Gcm,
    aad: &Aad,
    plain: &[u8],
) -> Result<Sealed, SealError> {
    let id_length =
        u8::try_from(key_id.len()).map_err(|_| SealError::UnknownKey(key_id.to_owned()))?;
    let mut nonce = [0_u8; NONCE_BYTES];
    SysRng.try_fill_bytes(&mut nonce).map_err(|_| SealError::NoRandomness)?;
    let aad = aad.bytes(VERSION, key_id);
    let ciphertext = cipher
        .encrypt(&Nonce::from(nonce), Payload { msg: plain, aad: &aad })
        .map_err(|_| SealError::TooLong)?;
    let mut bytes = Vec::with_capacity(2 + key_id.len() + NONCE_BYTES + ciphertext.len());
    bytes.extend_from_slice(&[VERSION, id_length]);
    bytes.extend_from_slice(key_id.as_bytes());
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&ciphertext);
    Ok(Sealed(bytes))
}
