//! PostgreSQL's error codes, told apart by what the caller has to do.

use super::super::{StoreError, Unavailable};

/// Rules whose breach means that somebody else's transaction came first.
const RACES: [&str; 3] =
    ["clusters_pkey", "audit_streams_pkey", "audit_events_stream_sequence_key"];

/// Turns sqlx's error into the store's. Messages of PostgreSQL name tables and rules; values stand in its
/// details, which are not taken over.
pub(super) fn map(error: sqlx::Error) -> StoreError {
    let detail = error.to_string();
    let unavailable = |reason, detail| StoreError::Unavailable { reason, detail };
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            match of_code(&code) {
                Some(Told::Unavailable(reason)) => unavailable(reason, detail),
                Some(Told::Conflict) => StoreError::Conflict,
                Some(Told::Unique) if error.constraint().is_some_and(|c| RACES.contains(&c)) => {
                    StoreError::Conflict
                }
                Some(Told::Unique) => StoreError::Duplicate { what: error.message().to_owned() },
                Some(Told::Corrupt) => StoreError::corrupt(detail),
                None => unavailable(Unavailable::Other, detail),
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::BeginFailed => unavailable(Unavailable::Io, detail),
        sqlx::Error::PoolTimedOut => unavailable(Unavailable::Busy, detail),
        sqlx::Error::PoolClosed => unavailable(Unavailable::Closed, detail),
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_) => StoreError::corrupt(detail),
        _ => unavailable(Unavailable::Other, detail),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Unavailable(Unavailable),
    Conflict,
    Unique,
    Corrupt,
}

fn of_code(code: &str) -> Option<Told> {
    let told = match code {
        // Serialisation failure, deadlock.
        "40001" | "40P01" => Told::Conflict,
        "23505" => Told::Unique,
        // Read-only transaction: a standby, or a primary that was told so.
        "25006" => Told::Unavailable(Unavailable::ReadOnly),
        "53100" => Told::Unavailable(Unavailable::DiskFull),
        // Too many connections, a lock that is not free, a time-out of a statement or a transaction.
        "53300" | "55P03" | "57014" | "25P03" | "25P04" => Told::Unavailable(Unavailable::Busy),
        // It shuts down, crashed, starts, drops the idle; and the server's own trouble with a file.
        "57P01" | "57P02" | "57P03" | "57P05" | "58030" => Told::Unavailable(Unavailable::Io),
        // A text that the database cannot hold.
        "22021" | "22P05" => Told::Corrupt,
        _ if code.starts_with("08") => Told::Unavailable(Unavailable::Io),
        _ if code.starts_with("23") || code.starts_with("XX") => Told::Corrupt,
        _ => return None,
    };
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        let unavailable = |reason| Some(Told::Unavailable(reason));
        let cases = [
            ("40001", Some(Told::Conflict)),
            ("40P01", Some(Told::Conflict)),
            ("23505", Some(Told::Unique)),
            ("23503", Some(Told::Corrupt)),
            ("25006", unavailable(Unavailable::ReadOnly)),
            ("53100", unavailable(Unavailable::DiskFull)),
            ("57014", unavailable(Unavailable::Busy)),
            ("57P01", unavailable(Unavailable::Io)),
            ("57P03", unavailable(Unavailable::Io)),
            ("08006", unavailable(Unavailable::Io)),
            ("42P01", None),
        ];
        for (code, told) in cases {
            assert_eq!(of_code(code), told, "{code}");
        }
    }

    #[test]
    fn trouble_that_passes_is_transient() {
        for error in [sqlx::Error::PoolTimedOut, sqlx::Error::Protocol("x".to_owned())] {
            assert!(map(error).is_transient());
        }
        assert!(!map(sqlx::Error::PoolClosed).is_transient());
    }
}
