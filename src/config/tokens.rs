//! The tokens file of static authentication: lines of `name role sha256:<hex>`.
//!
//! Reads and looks up; what a role may do is decided where the routes are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

use crate::crypto::tokens::{ParseHashError, TokenHash};
use crate::crypto::{FileModeError, check_secret_file};

/// The four columns of the table of permissions.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Fetches and confirms.
    Adapter,
    /// Also decides.
    Operator,
    /// Also forces.
    Admin,
    /// Only looks.
    Viewer,
}

/// One caller.
#[derive(Debug, Clone)]
pub struct TokenEntry {
    /// The name that the audit shows.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
    hash: TokenHash,
}

/// Everyone who may call.
#[derive(Debug, Clone)]
pub struct TokensFile {
    entries: Vec<TokenEntry>,
}

/// The tokens file cannot be used. A token or hash is never part of the message.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It is missing or open to others.
    #[error(transparent)]
    File(#[from] FileModeError),
    /// It cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line has the wrong form.
    #[error("{path}:{line}: {fault}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        fault: LineFault,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// Not three words.
    #[error("must be `name role sha256:<hex>`")]
    Form,
    /// An unknown role.
    #[error("the role must be one of {}", Role::VARIANTS.join(", "))]
    Role,
    /// The hash has no `sha256:`; perhaps somebody put the token itself there.
    #[error("the third word must begin with sha256: (the hash of the token, never the token)")]
    Scheme,
    /// The hash is no hash.
    #[error("the hash {0}")]
    Hash(#[from] ParseHashError),
    /// The same token or name stands further up.
    #[error("the name or the token stands on an earlier line already; every caller needs its own")]
    Duplicate,
}

impl TokensFile {
    /// Reads a file, after a look at who else may.
    ///
    /// # Errors
    /// When the mode, the form or a line is wrong.
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        check_secret_file(path)?;
        let text = fs::read_to_string(path)
            .map_err(|source| TokensError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// When a line is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, TokensError> {
        let mut entries: Vec<TokenEntry> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |fault| TokensError::Line { path: path.to_owned(), line: i + 1, fault };
            let entry = parse_line(line).map_err(fail)?;
            if entries.iter().any(|e| e.name == entry.name || e.hash.matches(&entry.hash)) {
                return Err(fail(LineFault::Duplicate));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// The caller that a token belongs to.
    ///
    /// Compares with every entry, each in constant time, so that the time tells nothing.
    #[must_use]
    pub fn lookup(&self, token: &SecretString) -> Option<&TokenEntry> {
        let hash = TokenHash::of(token);
        self.entries.iter().fold(
            None,
            |found, entry| {
                if entry.hash.matches(&hash) { Some(entry) } else { found }
            },
        )
    }

    /// The callers.
    #[must_use]
    pub fn entries(&self) -> &[TokenEntry] {
        &self.entries
    }
}

fn parse_line(line: &str) -> Result<TokenEntry, LineFault> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, role, hash] = words.as_slice() else { return Err(LineFault::Form) };
    let role = role.parse().map_err(|_| LineFault::Role)?;
    let hash = hash.strip_prefix("sha256:").ok_or(LineFault::Scheme)?;
    Ok(TokenEntry { name: (*name).to_owned(), role, hash: TokenHash::from_hex(hash)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, role: &str, token: &str) -> String {
        format!("{name} {role} sha256:{}\n", hash(token))
    }

    fn hash(token: &str) -> String {
        TokenHash::of(&SecretString::from(token)).to_hex()
    }

    #[test]
    fn a_token_finds_its_caller() {
        let text =
            format!("# people\n\n  {}{}", line("ada", "admin", "t1"), line("gcp", "adapter", "t2"));
        let file = TokensFile::parse(Path::new("tokens"), &text).unwrap();
        let found = file.lookup(&SecretString::from("t2")).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("gcp", Role::Adapter));
        assert!(file.lookup(&SecretString::from("t3")).is_none());
        assert!(!format!("{file:?}").contains(&hash("t1")));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (bad, part) in [
            ("ada admin".to_owned(), "must be `name role"),
            ("ada admin secret-token".to_owned(), "must begin with sha256:"),
            (format!("ada root sha256:{}", hash("x")), "adapter, operator, admin, viewer"),
            ("ada admin sha256:abc".to_owned(), "64 hexadecimal digits"),
            (line("first", "admin", "other"), "earlier line"),
            (line("other", "admin", "t1"), "earlier line"),
        ] {
            let text = format!("{}#\n{bad}\n", line("first", "viewer", "t1"));
            let error = TokensFile::parse(Path::new("/x/tokens"), &text).unwrap_err().to_string();
            assert!(error.starts_with("/x/tokens:3: ") && error.contains(part), "{error}");
            assert!(!error.contains("secret-token"), "{error}");
        }
    }
}
