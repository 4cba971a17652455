//! Secrets of our own making, and comparing secrets.
//!
//! Knows no rule of any registry beyond "upper, lower and digit", which the strictest ones ask for.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct NoRandomness;

/// A new random secret of 256 bits: 43 characters of `A-Z a-z 0-9 - _`.
///
/// Never begins with `-` (it would look like an option on a command line) and always has an
/// upper-case letter, a lower-case letter and a digit, because some registries insist.
///
/// # Errors
/// When the operating system has no randomness.
pub fn generate() -> Result<SecretString, NoRandomness> {
    loop {
        let mut bytes = Zeroizing::new([0_u8; super::KEY_BYTES]);
        SysRng.try_fill_bytes(&mut *bytes).map_err(|_| NoRandomness)?;
        let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(*bytes));
        let has = |of: fn(&u8) -> bool| text.bytes().any(|b| of(&b));
        if !text.starts_with('-')
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_digit)
        {
            return Ok(SecretString::from(text.as_str()));
        }
    }
}

/// Whether two secrets are equal, in a time that depends on their lengths only.
#[must_use]
pub fn equal(a: &SecretString, b: &SecretString) -> bool {
    equal_bytes(a.expose_secret().as_bytes(), b.expose_secret().as_bytes())
}

/// The same for bytes.
#[must_use]
pub fn equal_bytes(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn generated_secrets_fit_everywhere() {
        let mut seen = HashSet::new();
        for _ in 0..500 {
            let secret = generate().unwrap();
            let text = secret.expose_secret();
            assert_eq!(text.len(), 43);
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            assert!(!text.starts_with('-'));
            assert!(text.bytes().any(|b| b.is_ascii_uppercase()));
            assert!(text.bytes().any(|b| b.is_ascii_digit()));
            assert!(seen.insert(text.to_owned()), "twice the same");
        }
    }

    #[test]
    fn comparing() {
        let secret = |text: &str| SecretString::from(text.to_owned());
        assert!(equal(&secret("abc"), &secret("abc")));
        assert!(!equal(&secret("abc"), &secret("abd")));
        assert!(!equal(&secret("abc"), &secret("ab")));
        assert!(equal_bytes(b"", b""));
    }
}
