//! Keys and sealed values: what turns a secret into a row and back.
//!
//! Knows files of keys and bytes. Must not know the database, the configuration's shape or what a
//! secret is for beyond the [`Purpose`] it is bound to: a caller hands in paths and identifiers.

mod aad;
mod audit;
mod file_mode;
mod generate;
mod keyring;
mod sealed;
pub mod secret;
mod shared;
pub mod tokens;

pub use aad::{Aad, Purpose};
pub use audit::{AUDIT_KEY_FILE, AuditKey};
pub use file_mode::{FileModeError, check_secret_file};
pub use generate::{GenerateError, Generated, generate_audit_key, generate_key, write_new};
pub use keyring::{KeyFile, Keyring, KeyringError, MissingKeys, is_key_id, list_key_files};
pub use sealed::{OpenError, SealError, Sealed};
pub use shared::SharedKeyring;

/// Bytes of a key, of the audit key as well as of a data key.
pub const KEY_BYTES: usize = 32;
