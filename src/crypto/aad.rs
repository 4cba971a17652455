//! What a sealed value is bound to, beside its key.
//!
//! The bytes made here are authenticated and never stored: whoever opens a value has to know which
//! row it belongs to, so a ciphertext that was moved to another row does not open.

use uuid::Uuid;

use crate::ids::AccountId;

/// What a sealed value is. The texts are part of every ciphertext: never change one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The secret of an account at a registry.
    AccountSecret,
    /// The private key, or the whole kubeconfig, of a break-glass credential.
    BreakGlassCredential,
    /// The private key of a break-glass credential's probe.
    BreakGlassProbe,
    /// The private key of a signing authority.
    BreakGlassAuthority,
}

impl Purpose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::AccountSecret => "account-secret",
            Self::BreakGlassCredential => "break-glass-credential",
            Self::BreakGlassProbe => "break-glass-probe",
            Self::BreakGlassAuthority => "break-glass-authority",
        }
    }
}

/// The row and the use that a value is sealed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Aad {
    purpose: Purpose,
    owner: Uuid,
}

impl Aad {
    /// For the secret of one account.
    #[must_use]
    pub const fn account(id: AccountId) -> Self {
        Self { purpose: Purpose::AccountSecret, owner: id.0 }
    }

    /// For something else that a row owns.
    #[must_use]
    pub const fn new(purpose: Purpose, owner: Uuid) -> Self {
        Self { purpose, owner }
    }

    /// One spelling only: every field is preceded by its length, so that no two field lists give
    /// the same bytes.
    pub(super) fn bytes(&self, version: u8, key_id: &str) -> Vec<u8> {
        let owner = self.owner.as_bytes();
        let fields: [&[u8]; 4] =
            [&[version], key_id.as_bytes(), self.purpose.as_str().as_bytes(), owner];
        let mut bytes = Vec::with_capacity(96);
        for field in fields {
            // Fields are short by construction (a key id has at most 64 bytes).
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(field);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_counts() {
        let id = Uuid::from_u128(7);
        let aad = Aad::new(Purpose::AccountSecret, id);
        let bytes = aad.bytes(1, "k1");
        assert_ne!(bytes, aad.bytes(2, "k1"));
        assert_ne!(bytes, aad.bytes(1, "k2"));
        assert_ne!(bytes, Aad::new(Purpose::BreakGlassProbe, id).bytes(1, "k1"));
        assert_ne!(bytes, Aad::new(Purpose::AccountSecret, Uuid::from_u128(8)).bytes(1, "k1"));
        assert_eq!(bytes, Aad::account(AccountId(id)).bytes(1, "k1"));
    }

    #[test]
    fn the_bytes_are_fixed_for_ever() {
        let bytes = Aad::new(Purpose::AccountSecret, Uuid::nil()).bytes(1, "k");
        let mut expected = vec![0, 0, 0, 1, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 14];
        expected.extend_from_slice(b"account-secret");
        expected.extend_from_slice(&[0, 0, 0, 16]);
        expected.extend_from_slice(&[0; 16]);
        assert_eq!(bytes, expected);
    }
}
