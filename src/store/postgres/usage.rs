//! Readings of the registries' own records of use: when they are due, and whose use is asked for.

use std::time::Duration;

use sqlx::postgres::PgPool;
use uuid::Uuid;

use super::super::rows::usage::{ALL, CLAIM, CandidateRow, DONE, ROTATING};
use super::super::usage::too_far;
use super::super::{StoreError, UsageCandidate, UsageScope};
use super::error::map;
use super::transaction::{all, end, execute, query, query_as, write};
use crate::ids::{AccountId, RegistryId};
use crate::time::Timestamp;

pub(super) async fn claim(
    pool: &PgPool,
    registry_id: &RegistryId,
    scope: UsageScope,
    now: Timestamp,
    pause: Duration,
) -> Result<Option<Option<Timestamp>>, StoreError> {
    let query = query_as(CLAIM).bind(registry_id.as_str()).bind(scope.as_ref());
    let query = query.bind(now).bind(now.plus(pause)).bind(too_far(now, pause));
    let mut tx = write(pool).await?;
    let row: Result<Option<(Option<Timestamp>,)>, _> =
        query.fetch_optional(&mut *tx).await.map_err(map);
    let row = end(tx, row).await?;
    Ok(row.map(|(read_until,)| read_until))
}

pub(super) async fn done(
    pool: &PgPool,
    registry_id: &RegistryId,
    scope: UsageScope,
    until: Timestamp,
) -> Result<(), StoreError> {
    let statement = query(DONE).bind(registry_id.as_str()).bind(scope.as_ref()).bind(until);
    execute(pool, statement).await.map(drop)
}

pub(super) async fn candidates(
    pool: &PgPool,
    registry_id: &RegistryId,
    scope: UsageScope,
    after: Option<AccountId>,
    limit: u32,
) -> Result<Vec<UsageCandidate>, StoreError> {
    let sql = match scope {
        UsageScope::Rotating => ROTATING,
        UsageScope::All => ALL,
    };
    // Nothing sorts before the nil id.
    let after = after.map_or(Uuid::nil(), |id| id.0);
    let query = query_as(sql).bind(registry_id.as_str()).bind(after).bind(i64::from(limit));
    let rows: Vec<CandidateRow> = all(pool, query).await?;
    rows.into_iter().map(CandidateRow::candidate).collect()
}
