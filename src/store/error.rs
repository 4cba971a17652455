//! What can go wrong with the database, told apart by what the caller has to do about it.
//!
//! Knows no SQL; each backend maps its own errors to these.

use super::cursor::CursorError;

/// Why the store could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else's commit came first: load again and decide again.
    #[error("the row was changed meanwhile")]
    Conflict,
    /// As many rotations as may be are at work, or others come first.
    #[error("it is not this rotation's turn")]
    NoTurn,
    /// The idempotency key was taken over by another request, or released.
    #[error("the lease of the idempotency key was lost")]
    LeaseLost,
    /// A value that may exist once exists already.
    #[error("already stored: {what}")]
    Duplicate {
        /// Which rule says so.
        what: String,
    },
    /// The database does not answer now; asking again later may help.
    #[error("the database is unavailable ({reason}): {detail}")]
    Unavailable {
        /// What kind of trouble.
        reason: Unavailable,
        /// The database's own words; they never hold a value.
        detail: String,
    },
    /// A second process wants to write.
    #[error("another process has the database open: {path}")]
    Locked {
        /// The database's file.
        path: String,
    },
    /// What answers is not a database that this program can work with.
    #[error("db.url: {what}")]
    Unworkable {
        /// What it is, and what is needed instead.
        what: String,
    },
    /// The database is another installation's.
    #[error(
        "the database belongs to installation {stored}, the configuration says {configured}; \
         correct installation.id or db.url"
    )]
    InstallationMismatch {
        /// In the database.
        stored: String,
        /// In the configuration.
        configured: String,
    },
    /// The database holds something that this program never wrote, or was asked to write it.
    #[error("the database's content is not consistent: {what}")]
    Corrupt {
        /// What, without values.
        what: String,
    },
    /// A newer program was here.
    #[error("the schema has version {found}, this program knows {known}; run the newer program")]
    SchemaTooNew {
        /// In the database.
        found: i64,
        /// In this program.
        known: i64,
    },
    /// The schema is older than the program.
    #[error("the schema has version {found}, this program needs {known}; run `migrate`")]
    NotMigrated {
        /// In the database, 0 for an empty one.
        found: i64,
        /// In this program.
        known: i64,
    },
    /// The address of the database cannot be understood.
    #[error(
        "db.url must look like sqlite://relative/path.db, sqlite:///absolute/path.db or \
         postgres://user@host/database"
    )]
    Url,
    /// The cursor is not one of this list's.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// Why the database does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Unavailable {
    /// Others hold it for too long.
    Busy,
    /// No room left.
    DiskFull,
    /// It was opened, or its file is, read-only.
    ReadOnly,
    /// Reading or writing its file failed, or it cannot be reached.
    Io,
    /// The store was closed.
    Closed,
    /// Something else.
    Other,
}

impl StoreError {
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// True when the same call may succeed later without anybody doing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Conflict | Self::NoTurn => true,
            Self::Unavailable { reason, .. } => match reason {
                Unavailable::Busy
                | Unavailable::DiskFull
                | Unavailable::Io
                | Unavailable::Other => true,
                Unavailable::ReadOnly | Unavailable::Closed => false,
            },
            Self::LeaseLost
            | Self::Duplicate { .. }
            | Self::Locked { .. }
            | Self::Unworkable { .. }
            | Self::InstallationMismatch { .. }
            | Self::Corrupt { .. }
            | Self::SchemaTooNew { .. }
            | Self::NotMigrated { .. }
            | Self::Url
            | Self::Cursor(_) => false,
        }
    }
}
