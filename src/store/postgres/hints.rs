//! What replicas tell each other: NOTIFY on one channel, heard on a connection of its own.
//!
//! Only hints. A pooler in transaction mode lets none through, which is found out at the start of listening, and
//! nothing but a little time is lost.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgListener, PgPool};
use uuid::Uuid;

use super::super::{Hint, Hints, Listening, StoreError, Unavailable};
use super::error::map;
use super::transaction::{end, query, write};

const CHANNEL: &str = "hyperfleet_credentials";
/// A hint to oneself takes a moment; where it does not come within this time, none ever will.
const PATIENCE: Duration = Duration::from_secs(3);

/// Never with a commit of a credential: the server lets one notifying transaction commit after the other.
const TELL: &str = "SELECT pg_notify('hyperfleet_credentials', $1)";

pub(super) async fn tell(pool: &PgPool, text: &str) -> Result<(), StoreError> {
    let mut tx = write(pool).await?;
    let told = query(TELL).bind(text).execute(&mut *tx).await.map_err(map);
    end(tx, told).await.map(drop)
}

/// Listens on a connection that `own` gives away for good. Whether anything arrives is tried with a hint from
/// `pool`: behind a pooler the listening server connection is soon somebody else's.
pub(super) async fn listen(own: PgPool, pool: &PgPool) -> Result<Listening, StoreError> {
    let mut listener = PgListener::connect_with(&own).await.map_err(map)?;
    listener.listen(CHANNEL).await.map_err(map)?;
    let trial = format!("trial {}", Uuid::now_v7());
    tell(pool, &trial).await?;
    let heard = async {
        while let Ok(Some(told)) = listener.try_recv().await {
            if told.payload() == trial {
                return true;
            }
        }
        false
    };
    let heard = tokio::time::timeout(PATIENCE, heard).await;
    let hears = heard == Ok(true);
    Ok(if hears { Listening::Hears(Box::new(Ear(listener))) } else { Listening::Deaf })
}

struct Ear(PgListener);

#[async_trait]
impl Hints for Ear {
    async fn next(&mut self) -> Result<Hint, StoreError> {
        loop {
            let told = self.0.try_recv().await.map_err(map)?;
            let Some(told) = told else {
                let detail = "the connection for hints was lost".to_owned();
                return Err(StoreError::Unavailable { reason: Unavailable::Io, detail });
            };
            if let Some(hint) = Hint::read(told.payload()) {
                return Ok(hint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{open, server};
    use super::*;

    /// As behind a pooler: what is told is not heard where it is listened for.
    #[tokio::test]
    async fn whoever_hears_nothing_is_told_so() {
        let (here, there) =
            (server::shared().database(None).await, server::shared().database(None).await);
        let pool = open::open(&here, 1).await.unwrap();
        let heard = listen(open::lazily(&there, 1).unwrap(), &pool).await;
        assert!(matches!(heard, Ok(Listening::Deaf)));
        let heard = listen(open::lazily(&here, 1).unwrap(), &pool).await;
        assert!(matches!(heard, Ok(Listening::Hears(_))));
    }
}
