//! Bearer tokens are kept as hashes only; this is how one is hashed and compared.
//!
//! A plain SHA-256 is enough because tokens are random and long: there is nothing to guess.

use data_encoding::HEXLOWER_PERMISSIVE;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The SHA-256 of a bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

/// The text was not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 64 hexadecimal digits, as `sha256sum` prints them")]
pub struct ParseHashError;

impl TokenHash {
    /// Hashes a token.
    #[must_use]
    pub fn of(token: &SecretString) -> Self {
        Self(Sha256::digest(token.expose_secret().as_bytes()).into())
    }

    /// Reads a hash written as hexadecimal digits.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn from_hex(text: &str) -> Result<Self, ParseHashError> {
        let bytes =
            HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).map_err(|_| ParseHashError)?;
        bytes.try_into().map(Self).map_err(|_| ParseHashError)
    }

    /// The hash as lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(**REDACTED**)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_its_hash_only() {
        let hash = TokenHash::of(&SecretString::from("abc".to_owned()));
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_hex(), hex);
        assert!(TokenHash::from_hex(hex).unwrap().matches(&hash));
        assert!(TokenHash::from_hex(&hex.to_uppercase()).unwrap().matches(&hash));
        assert!(!TokenHash::of(&SecretString::from("abd".to_owned())).matches(&hash));
        for bad in ["", "ab", &hex[1..], &hex.replace('b', "g")] {
            assert_eq!(TokenHash::from_hex(bad), Err(ParseHashError), "{bad}");
        }
        assert!(!format!("{hash:?}").contains("ba78"));
    }
}
