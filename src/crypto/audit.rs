//! The audit key: authenticates the audit's chain. Seals nothing.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use super::keyring::{KeyringError, read_key};

/// Its file in the keys directory.
pub const AUDIT_KEY_FILE: &str = "audit.key";

/// A key for HMAC-SHA256. Cloning is cheap; the state is the key's schedule.
#[derive(Clone)]
pub struct AuditKey(Hmac<Sha256>);

impl AuditKey {
    /// Reads `audit.key` from the keys directory.
    ///
    /// # Errors
    /// When the file is missing, has the wrong mode or is not 32 bytes of base64.
    pub fn load(dir: &Path) -> Result<Self, KeyringError> {
        let bytes = read_key(&dir.join(AUDIT_KEY_FILE))?;
        Self::from_bytes(&bytes).ok_or_else(|| KeyringError::Length {
            path: dir.join(AUDIT_KEY_FILE),
            bytes: bytes.len(),
        })
    }

    /// From the bytes of a key.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Hmac::new_from_slice(bytes).ok().map(Self)
    }

    /// A key for another purpose, from which this one cannot be told.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        let mut bytes = self.hash(&[b"derive/1", purpose.as_bytes()]);
        // HMAC takes a key of any length.
        let derived = Hmac::new_from_slice(&bytes).map_or_else(|_| self.clone(), Self);
        bytes.zeroize();
        derived
    }

    /// The keyed hash of the parts; each is preceded by its length.
    #[must_use]
    pub fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `hash` is the keyed hash of the parts, in constant time.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], hash: &[u8]) -> bool {
        self.mac(parts).verify_slice(hash).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            // A usize has at most 64 bits on every platform there is.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey(**REDACTED**)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_borders_and_keys_matter() {
        let key = AuditKey::from_bytes(&[1; 32]).unwrap();
        let hash = key.hash(&[b"ab", b"c"]);
        assert!(key.verify(&[b"ab", b"c"], &hash));
        assert!(!key.verify(&[b"a", b"bc"], &hash));
        assert!(!AuditKey::from_bytes(&[2; 32]).unwrap().verify(&[b"ab", b"c"], &hash));
        assert!(!key.derive("x").verify(&[b"ab", b"c"], &hash));
        assert_eq!(format!("{key:?}"), "AuditKey(**REDACTED**)");
    }
}
