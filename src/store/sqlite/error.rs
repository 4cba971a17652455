//! SQLite's result codes, told apart by what the caller has to do.

use super::super::{StoreError, Unavailable};

/// The low byte of SQLite's extended result codes.
mod code {
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const READONLY: i32 = 8;
    pub const IOERR: i32 = 10;
    pub const CORRUPT: i32 = 11;
    pub const FULL: i32 = 13;
    pub const CANTOPEN: i32 = 14;
    pub const CONSTRAINT: i32 = 19;
    pub const NOTADB: i32 = 26;
}

/// Turns sqlx's error into the store's. Messages of SQLite name tables and columns, never values.
pub(super) fn map(error: sqlx::Error) -> StoreError {
    let detail = error.to_string();
    let unavailable = |reason, detail| StoreError::Unavailable { reason, detail };
    match error {
        sqlx::Error::Database(error) => {
            let extended = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
            match extended & 0xff {
                code::BUSY | code::LOCKED => unavailable(Unavailable::Busy, detail),
                code::READONLY => unavailable(Unavailable::ReadOnly, detail),
                code::IOERR | code::CANTOPEN => unavailable(Unavailable::Io, detail),
                code::FULL => unavailable(Unavailable::DiskFull, detail),
                code::CORRUPT | code::NOTADB => StoreError::corrupt(detail),
                code::CONSTRAINT if error.is_unique_violation() => {
                    StoreError::Duplicate { what: error.message().to_owned() }
                }
                code::CONSTRAINT => StoreError::corrupt(detail),
                _ => unavailable(Unavailable::Other, detail),
            }
        }
        sqlx::Error::Io(_) => unavailable(Unavailable::Io, detail),
        sqlx::Error::PoolTimedOut => unavailable(Unavailable::Busy, detail),
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            unavailable(Unavailable::Closed, detail)
        }
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_) => StoreError::corrupt(detail),
        _ => unavailable(Unavailable::Other, detail),
    }
}
