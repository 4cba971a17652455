//! The identifiers of the product, validated once at the edge and trusted afterwards.
//!
//! Knows nothing of storage, HTTP or registries.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is not an identifier. The text itself is never part of the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not a DNS-1123 label (RFC 1123, at most 63 characters).
    #[error("must match ^[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?$")]
    ClusterId,
    /// Not 1 to 63 visible ASCII characters without a slash.
    #[error("must be 1 to 63 lower-case letters, digits, dots, dashes or underscores")]
    RegistryId,
    /// Not `rot-` and a lower-case UUID.
    #[error("must be rot- followed by a lower-case UUID")]
    RotationId,
    /// Not an account name that this service makes.
    #[error("must be 2 to 49 lower-case letters and digits with single separators")]
    AccountName,
    /// Not a break-glass credential's id.
    #[error("must be 32 lower-case hexadecimal digits")]
    CredentialId,
    /// Not a revocation's id.
    #[error("must be a lower-case UUID")]
    RevocationId,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $error:ident, $valid:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                if $valid(text) { Ok(Self(text.to_owned())) } else { Err(IdError::$error) }
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

text_id!(
    /// The one identifier of a cluster: a DNS-1123 label.
    ClusterId, ClusterId, is_dns_label
);
text_id!(
    /// One configured registry.
    RegistryId, RegistryId, is_registry_id
);
text_id!(
    /// The name of an account as this service made it; used once, for ever.
    AccountName, AccountName, is_account_name
);

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(inner)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

fn is_registry_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    (1..=63).contains(&text.len()) && text.bytes().all(allowed)
}

/// Quay's rule (single separators only), which is the strictest of the known registries.
fn is_account_name(text: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    (2..=49).contains(&bytes.len())
        && bytes.iter().all(|b| alnum(*b) || b"._-".contains(b))
        && alnum(bytes[0])
        && alnum(bytes[bytes.len() - 1])
        && bytes.windows(2).all(|pair| alnum(pair[0]) || alnum(pair[1]))
}

/// The number of a set of accounts of one cluster; never used twice. Zero means "none".
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u32);

impl Generation {
    /// No generation.
    pub const NONE: Self = Self(0);

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id!(
    /// The identity of one account row; a secret is sealed for it.
    AccountId
);
uuid_id!(
    /// Minted for each announced call; an outcome counts only while its token is current.
    CallToken
);
uuid_id!(
    /// The identity of a campaign of rotations.
    CampaignId
);

uuid_id!(
    /// One run of the program; a process that is started again is another replica.
    ReplicaId
);

uuid_id!(
    /// The identity of a certificate authority that no credential owns: a control's or a placeholder's.
    AuthorityId
);

/// The identity of a break-glass credential, written as 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialId(pub Uuid);

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl FromStr for CredentialId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let id = Uuid::try_parse(text).map_err(|_| IdError::CredentialId)?;
        if id.simple().to_string() == text { Ok(Self(id)) } else { Err(IdError::CredentialId) }
    }
}

/// The identity of a revocation of break-glass credentials, written as a lower-case UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevocationId(pub Uuid);

impl fmt::Display for RevocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for RevocationId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let id = Uuid::try_parse(text).map_err(|_| IdError::RevocationId)?;
        if id.hyphenated().to_string() == text { Ok(Self(id)) } else { Err(IdError::RevocationId) }
    }
}

/// The identity of a rotation, written `rot-<uuid>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RotationId(pub Uuid);

impl fmt::Display for RotationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rot-{}", self.0)
    }
}

impl FromStr for RotationId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let uuid = text.strip_prefix("rot-").ok_or(IdError::RotationId)?;
        let id = Uuid::try_parse(uuid).map_err(|_| IdError::RotationId)?;
        // Only the canonical spelling: one resource has one address.
        if id.hyphenated().to_string() == uuid { Ok(Self(id)) } else { Err(IdError::RotationId) }
    }
}

impl TryFrom<String> for RotationId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<RotationId> for String {
    fn from(id: RotationId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ids_are_dns_labels() {
        for good in ["a", "cls-7f3k2m9q1x", "0", &"a".repeat(63)] {
            assert!(good.parse::<ClusterId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a\n", &"a".repeat(64), "é"] {
            assert_eq!(bad.parse::<ClusterId>(), Err(IdError::ClusterId), "{bad:?}");
        }
    }

    #[test]
    fn account_names_have_single_separators() {
        for good in ["ab", "hyp-cls-1-g3-k4t7mzq2ab", "a.b_c-d"] {
            assert!(good.parse::<AccountName>().is_ok(), "{good}");
        }
        for bad in ["a", "a--b", "a-", "-a", "a+b", "a:b", "a\n", &"a".repeat(50)] {
            assert_eq!(bad.parse::<AccountName>(), Err(IdError::AccountName), "{bad:?}");
        }
    }

    #[test]
    fn rotation_ids_have_one_spelling() {
        let id = RotationId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(id.to_string().to_uppercase().parse::<RotationId>().is_err());
        assert!(format!("rot-{}", id.0.simple()).parse::<RotationId>().is_err());
    }

    #[test]
    fn credential_and_revocation_ids_have_one_spelling() {
        let uuid = Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab);
        let (simple, hyphenated) = (uuid.simple().to_string(), uuid.hyphenated().to_string());
        assert_eq!(simple.parse(), Ok(CredentialId(uuid)));
        assert_eq!(hyphenated.parse(), Ok(RevocationId(uuid)));
        assert_eq!(CredentialId(uuid).to_string().len(), 32);
        for bad in [hyphenated.as_str(), &simple.to_uppercase(), "", "not-an-id"] {
            assert_eq!(bad.parse::<CredentialId>(), Err(IdError::CredentialId), "{bad}");
        }
        assert!(simple.parse::<RevocationId>().is_err());
    }
}
