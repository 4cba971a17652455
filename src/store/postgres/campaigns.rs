//! Campaigns and their members.

use async_trait::async_trait;
use sqlx::postgres::PgConnection;

use super::super::campaigns::{MINUTE, Moved, campaign_start, ended_at, member_start};
use super::super::cursor::Key;
use super::super::rows::campaign::{
    CampaignRow, MemberRow, RunningRow, bind_campaign, campaign_columns,
};
use super::super::rows::decode::{count, small, word};
use super::super::{
    AuditSeal, Campaign, CampaignChange, CampaignMember, Campaigns, Cursor, MemberResult,
    NewCampaign, Page, RunningMember, Selector, StoreError,
};
use super::PgStore;
use super::error::map;
use super::transaction::{end, query, query_as, read, write as begin};
use super::{audit, idempotency};
use crate::ids::{CampaignId, ClusterId, RotationId};
use crate::state::campaign::{Load, MemberStatus};
use crate::time::Timestamp;

const INSERT: &str = concat!(
    "INSERT INTO campaigns (",
    campaign_columns!(),
    ", driven_until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $20)"
);

const INSERT_MEMBER: &str = "INSERT INTO campaign_clusters (campaign_id, position, cluster_id, status) \
     VALUES ($1, $2, $3, 'pending')";

/// Index: the primary key.
const SELECT_ONE: &str =
    concat!("SELECT ", campaign_columns!(), " FROM campaigns WHERE campaign_id = $1");

/// Index: the primary key; ids are in the order of time.
pub(super) const LIST: &str = concat!(
    "SELECT ",
    campaign_columns!(),
    " FROM campaigns WHERE campaign_id < $1 ORDER BY campaign_id DESC LIMIT $2"
);

const COUNT: &str = "SELECT count(*) FROM campaigns";

macro_rules! members {
    ($where:expr) => {
        concat!(
            "SELECT position, cluster_id, status, rotation_id, started_at, ended_at, detail \
             FROM campaign_clusters WHERE campaign_id = $1 AND position > $2 AND ",
            $where,
            " ORDER BY position LIMIT $3"
        )
    };
}

/// Index: the primary key.
pub(super) const MEMBERS: &str = members!("$4::text IS NULL");
/// Index: `campaign_clusters_by_status`.
pub(super) const MEMBERS_OF_STATUS: &str = members!("status = $4");

/// Index: the primary key.
const CHANGE: &str = "UPDATE campaigns SET state = $3, message = $4, state_since = $5, \
     completed_at = $6 WHERE campaign_id = $1 AND state = $2";

/// Index: `campaigns_driven`.
pub(super) const ANYTHING: &str = "SELECT EXISTS (SELECT 1 FROM campaigns \
     WHERE driven_until IS NOT NULL AND driven_until <= $1)";

/// Index: `campaigns_driven`, then the primary key.
pub(super) const CLAIM: &str = concat!(
    "UPDATE campaigns SET driven_until = $2 WHERE campaign_id IN (SELECT campaign_id \
     FROM campaigns WHERE driven_until IS NOT NULL AND driven_until <= $1 \
     ORDER BY driven_until LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING ",
    campaign_columns!()
);

/// Index: the primary key.
const RELEASE: &str = "UPDATE campaigns SET driven_until = CASE \
     WHEN state IN ('completed', 'aborted') AND running = 0 THEN NULL ELSE $3 END \
     WHERE campaign_id = $1 AND driven_until = $2";

/// Index: the primary key, by the `|| ''`: by state, all that fit would be sorted for each page.
pub(super) const FIND: &str = "SELECT p.cluster_id FROM pull_secrets p WHERE p.cluster_id > $1 \
     AND p.state || '' IN ('active', 'rotating') \
     AND ($2::text IS NULL OR p.registries ? $2) \
     AND ($3::timestamptz IS NULL OR coalesce(p.last_rotated_at, p.created_at) <= $3) \
     ORDER BY p.cluster_id LIMIT $4";

/// Index: the primary key. Whoever gathered the same page already has moved the mark.
const GATHERED: &str = "UPDATE campaigns SET total = total + $3, pending = pending + $3, \
     gathered_to = $4, gathered = $5 WHERE campaign_id = $1 AND gathered_to = $2 \
     AND gathered = false";

/// Index: `campaign_clusters_by_status`, then the primary key of `rotations`.
pub(super) const RUNNING: &str = "SELECT m.cluster_id, m.rotation_id, r.status, r.phase, \
     r.promoted_at, r.error_code FROM campaign_clusters m \
     LEFT JOIN rotations r ON r.rotation_id = m.rotation_id \
     WHERE m.campaign_id = $1 AND m.status = 'running' ORDER BY m.position LIMIT $2";

/// Index: the primary key. Held to the end of the transaction, so that the counters and the rows of members
/// change together.
const RUNS: &str = "SELECT state = 'running' AND driven_until IS NOT DISTINCT FROM $2 FROM campaigns \
     WHERE campaign_id = $1 FOR NO KEY UPDATE";

/// Index: `campaign_clusters_by_status`.
pub(super) const NEXT: &str = "SELECT position, cluster_id FROM campaign_clusters \
     WHERE campaign_id = $1 AND status = 'pending' ORDER BY position LIMIT $2";

/// Index: the primary key.
const BEGIN: &str = "UPDATE campaign_clusters SET status = 'running', rotation_id = $3, \
     started_at = $4 WHERE campaign_id = $1 AND position = $2 AND status = 'pending'";

/// Index: the primary key.
const BEGUN: &str = "UPDATE campaigns SET pending = pending - $2, running = running + $2 \
     WHERE campaign_id = $1";

/// Index: the unique one of `campaign_clusters`.
const SETTLE: &str = "UPDATE campaign_clusters SET status = $4, detail = $5, ended_at = $6 \
     WHERE campaign_id = $1 AND cluster_id = $2 AND rotation_id = $3 AND status = 'running'";

/// Index: the primary key.
const SETTLED: &str = "UPDATE campaigns SET running = running - $2, succeeded = succeeded + $3, \
     failed = failed + $4, skipped = skipped + $5 WHERE campaign_id = $1";

/// Index: `campaign_clusters_started`, nothing else.
pub(super) const COUNT_BEGUN: &str = "SELECT count(*) FROM campaign_clusters \
     WHERE campaign_id = $1 AND started_at IS NOT NULL AND started_at > $2";

/// Index: `accounts_deleting`, `rotations_running`, then the unique one of `campaign_clusters`.
pub(super) const COUNT_DELETING: &str = "SELECT count(DISTINCT a.cluster_id) FROM accounts a \
     JOIN rotations r ON r.cluster_id = a.cluster_id AND r.running \
     JOIN campaign_clusters m ON m.campaign_id = $1 AND m.cluster_id = a.cluster_id \
     AND m.rotation_id = r.rotation_id AND m.status <> 'running' \
     WHERE a.phase = 'deleting' AND a.next_attempt_at <= $2";

#[async_trait]
impl Campaigns for PgStore {
    async fn create_campaign(&self, new: NewCampaign<'_>) -> Result<(), StoreError> {
        let mut tx = begin(&self.pool).await?;
        let done = create(&mut tx, &new, self.seal()).await;
        end(tx, done).await
    }

    async fn campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        let mut tx = read(&self.pool).await?;
        let query = query_as(SELECT_ONE).bind(id.0);
        let row: Result<Option<CampaignRow>, _> = query.fetch_optional(&mut *tx).await.map_err(map);
        drop(tx);
        row?.map(Campaign::try_from).transpose()
    }

    async fn list_campaigns(
        &self,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Campaign>, StoreError> {
        let start = campaign_start(cursor)?;
        let mut tx = read(&self.pool).await?;
        let (total,): (i64,) = query_as(COUNT).fetch_one(&mut *tx).await.map_err(map)?;
        let query = query_as(LIST).bind(start).bind(i64::from(limit) + 1);
        let rows: Vec<CampaignRow> = query.fetch_all(&mut *tx).await.map_err(map)?;
        let items = rows.into_iter().map(Campaign::try_from).collect::<Result<_, _>>()?;
        let key = |campaign: &Campaign| Key::Campaign { id: campaign.id };
        Ok(Page::cut(items, limit, Some(count(total)?), key))
    }

    async fn list_campaign_members(
        &self,
        id: CampaignId,
        status: Option<MemberStatus>,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<CampaignMember>, StoreError> {
        let start = member_start(cursor)?;
        let sql = if status.is_some() { MEMBERS_OF_STATUS } else { MEMBERS };
        let mut tx = read(&self.pool).await?;
        let query = query_as(sql).bind(id.0).bind(i64::from(start)).bind(i64::from(limit) + 1);
        let query = query.bind(status.map(<&'static str>::from));
        let rows: Vec<MemberRow> = query.fetch_all(&mut *tx).await.map_err(map)?;
        let items = rows.into_iter().map(CampaignMember::try_from).collect::<Result<_, _>>()?;
        let key = |member: &CampaignMember| Key::Member { position: member.position };
        // The counters of the campaign say how many there are.
        Ok(Page::cut(items, limit, None, key))
    }

    async fn change_campaign(&self, change: CampaignChange) -> Result<(), StoreError> {
        let mut tx = begin(&self.pool).await?;
        let done = apply(&mut tx, &change, self.seal()).await;
        end(tx, done).await
    }

    async fn claim_campaigns(
        &self,
        now: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError> {
        {
            let mut tx = read(&self.pool).await?;
            let query = query_as(ANYTHING).bind(now);
            let (anything,): (bool,) = query.fetch_one(&mut *tx).await.map_err(map)?;
            if !anything {
                return Ok(Vec::new());
            }
        }
        let mut tx = begin(&self.pool).await?;
        let query = query_as(CLAIM).bind(now).bind(until).bind(i64::from(limit));
        let rows: Result<Vec<CampaignRow>, _> = query.fetch_all(&mut *tx).await.map_err(map);
        let rows = end(tx, rows).await?;
        rows.into_iter().map(Campaign::try_from).collect()
    }

    async fn release_campaign(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tx = begin(&self.pool).await?;
        let query = query(RELEASE).bind(id.0).bind(taken_until).bind(now);
        let done = query.execute(&mut *tx).await.map_err(map).map(drop);
        end(tx, done).await
    }

    async fn gather_members(&self, campaign: &Campaign, batch: u32) -> Result<bool, StoreError> {
        let (registry, before) = match &campaign.selector {
            Selector::ClusterIds => return Ok(true),
            Selector::Registry(id) => (Some(id.as_str()), None),
            Selector::OlderThan(age) => (None, Some(campaign.created_at.minus(*age))),
        };
        let found: Vec<(String,)> = {
            let mut tx = read(&self.pool).await?;
            let query = query_as(FIND).bind(campaign.gathered_to.as_str()).bind(registry);
            let query = query.bind(before).bind(i64::from(batch));
            query.fetch_all(&mut *tx).await.map_err(map)?
        };
        let last = found.len() < usize::try_from(batch).unwrap_or(usize::MAX);
        let mut tx = begin(&self.pool).await?;
        let done = gathered(&mut tx, campaign, &found, last).await;
        end(tx, done).await?;
        Ok(last)
    }

    async fn running_members(
        &self,
        id: CampaignId,
        limit: u32,
    ) -> Result<Vec<RunningMember>, StoreError> {
        let mut tx = read(&self.pool).await?;
        let query = query_as(RUNNING).bind(id.0).bind(i64::from(limit));
        let rows: Vec<RunningRow> = query.fetch_all(&mut *tx).await.map_err(map)?;
        rows.into_iter().map(RunningMember::try_from).collect()
    }

    async fn begin_members(
        &self,
        id: CampaignId,
        taken_until: Timestamp,
        rotations: &[RotationId],
        now: Timestamp,
    ) -> Result<Vec<(ClusterId, RotationId)>, StoreError> {
        let mut tx = begin(&self.pool).await?;
        let begun = begin_some(&mut tx, (id, taken_until), rotations, now).await;
        end(tx, begun).await
    }

    async fn settle_members(
        &self,
        id: CampaignId,
        results: &[MemberResult],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        if results.is_empty() {
            return Ok(0);
        }
        let mut tx = begin(&self.pool).await?;
        let done = settle(&mut tx, id, results, now).await;
        end(tx, done).await
    }

    async fn campaign_load(&self, id: CampaignId, now: Timestamp) -> Result<Load, StoreError> {
        let mut tx = read(&self.pool).await?;
        let query = query_as(COUNT_BEGUN).bind(id.0).bind(now.minus(MINUTE));
        let (begun,): (i64,) = query.fetch_one(&mut *tx).await.map_err(map)?;
        let query = query_as(COUNT_DELETING).bind(id.0).bind(now);
        let (deleting,): (i64,) = query.fetch_one(&mut *tx).await.map_err(map)?;
        Ok(Load { begun: small(begun)?, deleting: small(deleting)? })
    }
}

async fn create(
    db: &mut PgConnection,
    new: &NewCampaign<'_>,
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    let insert = bind_campaign!(query(INSERT), new.campaign);
    insert.execute(&mut *db).await.map_err(map)?;
    for (position, cluster_id) in (1_i64..).zip(new.members) {
        let member = query(INSERT_MEMBER).bind(new.campaign.id.0).bind(position);
        member.bind(cluster_id.as_str()).execute(&mut *db).await.map_err(map)?;
    }
    if let Some(answer) = &new.idempotency {
        idempotency::answer(db, answer).await?;
    }
    audit::append(db, std::slice::from_ref(&new.audit), seal).await
}

async fn apply(
    db: &mut PgConnection,
    change: &CampaignChange,
    seal: Option<&dyn AuditSeal>,
) -> Result<(), StoreError> {
    let query = query(CHANGE)
        .bind(change.id.0)
        .bind(<&'static str>::from(change.from))
        .bind(<&'static str>::from(change.to))
        .bind(change.message.as_deref())
        .bind(change.at)
        .bind(ended_at(change));
    let done = query.execute(&mut *db).await.map_err(map)?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Conflict);
    }
    if let Some(answer) = &change.idempotency {
        idempotency::answer(db, answer).await?;
    }
    audit::append(db, std::slice::from_ref(&change.audit), seal).await
}

async fn gathered(
    db: &mut PgConnection,
    campaign: &Campaign,
    found: &[(String,)],
    last: bool,
) -> Result<(), StoreError> {
    let number = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let to = found.last().map_or(campaign.gathered_to.as_str(), |(id,)| id.as_str());
    let mark = query(GATHERED).bind(campaign.id.0).bind(campaign.gathered_to.as_str());
    let mark = mark.bind(number).bind(to).bind(last);
    if mark.execute(&mut *db).await.map_err(map)?.rows_affected() == 0 {
        return Err(StoreError::Conflict);
    }
    let first = i64::from(campaign.progress.total) + 1;
    for (position, (cluster_id,)) in (first..).zip(found) {
        let member = query(INSERT_MEMBER).bind(campaign.id.0).bind(position);
        member.bind(cluster_id).execute(&mut *db).await.map_err(map)?;
    }
    Ok(())
}

async fn begin_some(
    db: &mut PgConnection,
    (id, taken_until): (CampaignId, Timestamp),
    rotations: &[RotationId],
    now: Timestamp,
) -> Result<Vec<(ClusterId, RotationId)>, StoreError> {
    let runs = query_as(RUNS).bind(id.0).bind(taken_until);
    let runs: Option<(bool,)> = runs.fetch_optional(&mut *db).await.map_err(map)?;
    if runs != Some((true,)) {
        return Ok(Vec::new());
    }
    let limit = i64::try_from(rotations.len()).unwrap_or(i64::MAX);
    let some = query_as(NEXT).bind(id.0).bind(limit);
    let next: Vec<(i64, String)> = some.fetch_all(&mut *db).await.map_err(map)?;
    let mut begun = Vec::with_capacity(next.len());
    for ((position, cluster_id), rotation_id) in next.iter().zip(rotations) {
        let begin = query(BEGIN).bind(id.0).bind(*position).bind(rotation_id.0).bind(now);
        begin.execute(&mut *db).await.map_err(map)?;
        begun.push((word(cluster_id, "a cluster id")?, *rotation_id));
    }
    let number = i64::try_from(begun.len()).unwrap_or(i64::MAX);
    query(BEGUN).bind(id.0).bind(number).execute(db).await.map_err(map)?;
    Ok(begun)
}

async fn settle(
    db: &mut PgConnection,
    id: CampaignId,
    results: &[MemberResult],
    now: Timestamp,
) -> Result<u64, StoreError> {
    query(RUNS).bind(id.0).bind(None::<Timestamp>).execute(&mut *db).await.map_err(map)?;
    let mut moved = Moved::default();
    for result in results {
        let query = query(SETTLE)
            .bind(id.0)
            .bind(result.cluster_id.as_str())
            .bind(result.rotation_id.0)
            .bind(<&'static str>::from(result.status))
            .bind(result.detail.as_deref())
            .bind(now);
        if query.execute(&mut *db).await.map_err(map)?.rows_affected() == 1 {
            moved.count(result.status);
        }
    }
    let query = query(SETTLED)
        .bind(id.0)
        .bind(i64::from(moved.all()))
        .bind(i64::from(moved.succeeded))
        .bind(i64::from(moved.failed))
        .bind(i64::from(moved.skipped));
    query.execute(db).await.map_err(map)?;
    Ok(u64::from(moved.all()))
}
