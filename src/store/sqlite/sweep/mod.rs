//! Sweeps: their times, what they remember, what they delete.

pub(super) mod steps;

use async_trait::async_trait;
use uuid::Uuid;

use super::super::rows::decode::{generation, word};
use super::super::rows::sweep::{NamedRow, RestoredRow, ServingRow, SweepRow, UnknownRow};
use super::super::{
    AuditRow, DeletionAnswer, DeletionCall, Restored, StoreError, SweepCommit, SweepState,
    SweepStore, SweepStored, UnknownAccount,
};
use super::SqliteStore;
use super::error::map;
use super::write::Write;
use crate::ids::{CallToken, ClusterId, Generation, RegistryId};
use crate::state::sweep::{Named, Serving};
use crate::time::Timestamp;

fn json<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> String {
    let texts: Vec<serde_json::Value> = texts.map(|text| text.as_ref().into()).collect();
    serde_json::Value::from(texts).to_string()
}

fn unknown(rows: Vec<UnknownRow>) -> Result<Vec<UnknownAccount>, StoreError> {
    rows.into_iter().map(UnknownAccount::try_from).collect()
}

#[async_trait]
impl SweepStore for SqliteStore {
    async fn plan_sweeps(&self, plans: &[(RegistryId, Timestamp)]) -> Result<(), StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::plan(&mut tx, plans).await;
        tx.end(done).await
    }

    async fn due_sweeps(&self, now: Timestamp) -> Result<Vec<RegistryId>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_DUE).bind(now);
        let rows: Vec<(String,)> = query.fetch_all(&self.reader).await.map_err(map)?;
        rows.iter().map(|(id,)| word(id, "a registry id")).collect()
    }

    async fn begin_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        until: Timestamp,
        only_due: bool,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(steps::BEGIN).bind(registry_id.as_str()).bind(holder);
        let query = query.bind(now).bind(until).bind(only_due);
        let done = query.execute(&self.writer).await.map_err(map)?;
        Ok(done.rows_affected() == 1)
    }

    async fn abandon_sweep(
        &self,
        registry_id: &RegistryId,
        holder: Uuid,
        now: Timestamp,
        failure: Option<(Timestamp, &str)>,
    ) -> Result<(), StoreError> {
        let query = match failure {
            None => sqlx::query(steps::RELEASE).bind(registry_id.as_str()).bind(holder),
            Some((due_at, error)) => {
                let query = sqlx::query(steps::FAIL).bind(registry_id.as_str()).bind(holder);
                query.bind(due_at).bind(now).bind(error.to_owned())
            }
        };
        query.execute(&self.writer).await.map_err(map).map(drop)
    }

    async fn end_sweep(&self, commit: &SweepCommit<'_>) -> Result<SweepStored, StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::end_sweep(&mut tx, commit, self.seal()).await;
        tx.end(done).await
    }

    async fn sweep_states(&self) -> Result<Vec<SweepState>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_STATES);
        let rows: Vec<SweepRow> = query.fetch_all(&self.reader).await.map_err(map)?;
        rows.into_iter().map(SweepState::try_from).collect()
    }

    async fn named_accounts(
        &self,
        registry_id: &RegistryId,
        names: &[String],
    ) -> Result<Vec<Named>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_NAMED).bind(registry_id.as_str());
        let query = query.bind(json(names.iter()));
        let rows: Vec<NamedRow> = query.fetch_all(&self.reader).await.map_err(map)?;
        rows.into_iter().map(Named::try_from).collect()
    }

    async fn serving_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Serving>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_SERVING).bind(registry_id.as_str());
        let query = query.bind(after.to_owned()).bind(limit);
        let rows: Vec<ServingRow> = query.fetch_all(&self.reader).await.map_err(map)?;
        rows.into_iter().map(Serving::try_from).collect()
    }

    async fn generation_counters(
        &self,
        clusters: &[ClusterId],
    ) -> Result<Vec<(ClusterId, Generation)>, StoreError> {
        let clusters = json(clusters.iter().map(ClusterId::as_str));
        let query = sqlx::query_as(steps::SELECT_COUNTERS).bind(clusters);
        let rows: Vec<(String, i64)> = query.fetch_all(&self.reader).await.map_err(map)?;
        let counter =
            |(id, counter): &(String, i64)| Ok((word(id, "a cluster id")?, generation(*counter)?));
        rows.iter().map(counter).collect()
    }

    async fn slug_counters(
        &self,
        texts: &[String],
    ) -> Result<Vec<(String, Generation)>, StoreError> {
        steps::slugs(&self.reader, texts).await
    }

    async fn unknown_accounts(
        &self,
        registry_id: &RegistryId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_UNKNOWN).bind(registry_id.as_str());
        let query = query.bind(after.to_owned()).bind(limit);
        unknown(query.fetch_all(&self.reader).await.map_err(map)?)
    }

    async fn due_deletions(
        &self,
        registry_id: &RegistryId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<UnknownAccount>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_DELETIONS)
            .bind(registry_id.as_str())
            .bind(now)
            .bind(limit);
        unknown(query.fetch_all(&self.reader).await.map_err(map)?)
    }

    async fn announce_deletion(
        &self,
        call: &DeletionCall,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::announce(&mut tx, call, audit, self.seal()).await;
        tx.end(done).await
    }

    async fn is_deletion_current(
        &self,
        registry_id: &RegistryId,
        name: &str,
        token: CallToken,
    ) -> Result<bool, StoreError> {
        let query =
            sqlx::query_as(steps::IS_CURRENT).bind(registry_id.as_str()).bind(name.to_owned());
        let query = query.bind(token.0);
        let (current,): (bool,) = query.fetch_one(&self.reader).await.map_err(map)?;
        Ok(current)
    }

    async fn answer_deletion(
        &self,
        call: &DeletionCall,
        outcome: &DeletionAnswer,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::answer(&mut tx, call, outcome, audit, self.seal()).await;
        tx.end(done).await
    }

    async fn restored(&self) -> Result<Option<Restored>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_RESTORED);
        let row: Option<RestoredRow> = query.fetch_optional(&self.reader).await.map_err(map)?;
        Ok(row.map(Restored::from))
    }

    async fn latch_restored(
        &self,
        at: Timestamp,
        reason: &str,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::latch(&mut tx, at, reason, audit, self.seal()).await;
        tx.end(done).await
    }

    async fn acknowledge_restore(
        &self,
        at: Timestamp,
        by: &str,
        audit: &AuditRow,
    ) -> Result<Option<Restored>, StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::acknowledge(&mut tx, at, by, audit, self.seal()).await;
        tx.end(done).await
    }

    async fn noted_timeline(&self) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_as(steps::SELECT_TIMELINE);
        let row: Option<(String,)> = query.fetch_optional(&self.reader).await.map_err(map)?;
        Ok(row.map(|(timeline,)| timeline))
    }

    async fn note_timeline(
        &self,
        timeline: &str,
        sweep_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut tx = Write::begin(&self.writer).await?;
        let done = steps::note(&mut tx, timeline, sweep_at).await;
        tx.end(done).await
    }
}
