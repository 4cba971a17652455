//! Opening the database: its address, the pool, and what a connection may rely on.
//!
//! Nothing here may need a session of its own. Between PostgreSQL and this program there may be PgBouncer in
//! transaction mode, which gives each transaction whatever server connection is free. So there are no named
//! prepared statements, no settings outside a transaction, no session locks; see `transaction`. Only `hints` listens on a
//! connection of its own, and can do without.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::super::StoreError;
use super::error::map;
use super::transaction::{one, query_as};

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

fn sized(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A connection that died with a server that was started again is noticed before it is used.
        .test_before_acquire(true)
}

pub(super) async fn open(url: &str, connections: u32) -> Result<PgPool, StoreError> {
    sized(connections).connect_with(options(url)?).await.map_err(map)
}

/// Connects when it is first used.
pub(super) fn lazily(url: &str, connections: u32) -> Result<PgPool, StoreError> {
    Ok(sized(connections).connect_lazy_with(options(url)?))
}

const LOOK: &str = "SELECT pg_is_in_recovery(), current_setting('server_version_num')::int";
/// The oldest release that is still maintained.
const OLDEST: i32 = 150_000;

/// Says what is wrong in words that name the remedy, before anything fails in words that do not.
pub(super) async fn check_server(pool: &PgPool) -> Result<(), StoreError> {
    let unworkable = |what: &str| Err(StoreError::Unworkable { what: what.to_owned() });
    let looked: Result<(bool, i32), _> = one(pool, query_as(LOOK)).await;
    match looked {
        Ok((true, _)) => unworkable(
            "leads to a standby, which may only be read and may lag behind; every replica needs the primary",
        ),
        Ok((false, version)) if version < OLDEST => {
            unworkable("PostgreSQL 15 is the oldest release that works here")
        }
        Ok((false, _)) => Ok(()),
        Err(StoreError::Unavailable { detail, .. }) if detail.contains("statement pooling") => {
            unworkable("leads to a pooler in statement mode; transaction mode, or none, is needed")
        }
        Err(error) => Err(error),
    }
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
