//! Readings of the registries' own records of use: when they are due, and whose use is asked for.

use std::time::Duration;

use sqlx::sqlite::SqlitePool;
use uuid::Uuid;

use super::super::rows::usage::{ALL, CLAIM, CandidateRow, DONE, ROTATING};
use super::super::usage::too_far;
use super::super::{StoreError, UsageCandidate, UsageScope};
use super::error::map;
use crate::ids::{AccountId, RegistryId};
use crate::time::Timestamp;

pub(super) async fn claim(
    pool: &SqlitePool,
    registry_id: &RegistryId,
    scope: UsageScope,
    now: Timestamp,
    pause: Duration,
) -> Result<Option<Option<Timestamp>>, StoreError> {
    let query = sqlx::query_as(CLAIM).bind(registry_id.as_str()).bind(scope.as_ref());
    let query = query.bind(now).bind(now.plus(pause)).bind(too_far(now, pause));
    let row: Option<(Option<Timestamp>,)> = query.fetch_optional(pool).await.map_err(map)?;
    Ok(row.map(|(read_until,)| read_until))
}

pub(super) async fn done(
    pool: &SqlitePool,
    registry_id: &RegistryId,
    scope: UsageScope,
    until: Timestamp,
) -> Result<(), StoreError> {
    let query = sqlx::query(DONE).bind(registry_id.as_str()).bind(scope.as_ref()).bind(until);
    query.execute(pool).await.map_err(map).map(drop)
}

pub(super) async fn candidates(
    pool: &SqlitePool,
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
    let query = sqlx::query_as(sql).bind(registry_id.as_str()).bind(after).bind(i64::from(limit));
    let rows: Vec<CandidateRow> = query.fetch_all(pool).await.map_err(map)?;
    rows.into_iter().map(CandidateRow::candidate).collect()
}
