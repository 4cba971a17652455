//! Opening the database: its address, the pool, and what a connection may rely on.
//!
//! Nothing here may need a session of its own. Between PostgreSQL and this program there may be PgBouncer in
//! transaction mode, which gives each transaction whatever server connection is free. So there are no named
//! prepared statements, no settings outside a transaction, no session locks, no LISTEN; see `transaction`.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::super::StoreError;
use super::error::map;

/// How long a task waits for a connection, and the first one for the server.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(StoreError::Url);
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Url)?;
    let options = options
        // A named statement belongs to a server connection, and the next transaction may be on another one.
        .statement_cache_capacity(0)
        // PgBouncer refuses start-up parameters that it does not know. No number here is a float.
        .extra_float_digits(None)
        .disable_statement_logging();
    // PgBouncer carries the name along.
    Ok(match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("hyperfleet-credentials"),
    })
}

pub(super) async fn open(url: &str, connections: u32) -> Result<PgPool, StoreError> {
    let pool = PgPoolOptions::new()
        // One of them keeps the lease while the others work.
        .max_connections(connections.max(2))
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A connection that died with a server that was started again is noticed before it is used.
        .test_before_acquire(true);
    pool.connect_with(options(url)?).await.map_err(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_database() {
        for good in ["postgres://u@h/d", "postgresql://u:p@h:5433/d?sslmode=verify-full"] {
            let options = options(good).unwrap();
            assert_eq!(options.get_application_name(), Some("hyperfleet-credentials"));
        }
        let named = options("postgres:///d?host=/run/postgresql&application_name=blue").unwrap();
        assert_eq!(named.get_application_name(), Some("blue"));
        for bad in ["", "sqlite://a.db", "postgres:u@h/d", "postgres://h/d?sslmode=sometimes"] {
            assert_eq!(options(bad).err(), Some(StoreError::Url), "{bad}");
        }
    }
}
