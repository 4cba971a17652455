//! Rows of `pull_secrets`, with the cluster's counters, and of `consumers`.

use std::time::Duration;

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::columns::StateColumns;
use super::super::{Loaded, OwnedBy, PullSecretRow, StoreError};
use super::decode::{count, generation, maybe_word, small, word};
use super::rotation::{BriefRow, Open};
use crate::ids::{ClusterId, Generation, RegistryId, ReplicaId};
use crate::state::pull_secret::{
    Account, Consumer, Pause, PullSecret, Quarantine, Refusal, Schedule, Served, Slot,
};
use crate::time::Timestamp;
use crate::window::Window;

/// The columns of a [`HeadRow`], for statements that read `clusters` as `c` and `pull_secrets` as `p`.
macro_rules! head_columns {
    () => {
        "p.cluster_id AS cluster_id, c.version AS version, c.last_generation AS last_generation, \
         p.state AS state, p.state_since AS state_since, \
         p.served_generation AS served_generation, p.served_since AS served_since, \
         p.issuing_generation AS issuing_generation, \
         p.refusal_registry_id AS refusal_registry_id, p.refusal_message AS refusal_message, \
         p.registries AS registries, p.created_at AS created_at, \
         p.last_rotated_at AS last_rotated_at, p.next_rotation_at AS next_rotation_at, \
         p.slot_at AS slot_at, p.slot_failures AS slot_failures, \
         p.slot_retry_at AS slot_retry_at, p.interval_from AS interval_from, \
         p.schedule_enabled AS schedule_enabled, p.schedule_next_at AS schedule_next_at, \
         p.schedule_cron AS schedule_cron, p.schedule_length AS schedule_length, \
         p.reissue_failures AS reissue_failures, p.reissue_at AS reissue_at, \
         p.quarantine_since AS quarantine_since, p.quarantine_retry_at AS quarantine_retry_at, \
         p.owner AS owner, p.epoch AS epoch"
    };
}
pub(in crate::store) use head_columns;

#[derive(FromRow)]
pub(in crate::store) struct HeadRow {
    cluster_id: String,
    version: i64,
    last_generation: i64,
    state: String,
    state_since: Timestamp,
    served_generation: Option<i64>,
    served_since: Option<Timestamp>,
    issuing_generation: Option<i64>,
    refusal_registry_id: Option<String>,
    refusal_message: Option<String>,
    registries: Json<Vec<RegistryId>>,
    created_at: Timestamp,
    last_rotated_at: Option<Timestamp>,
    next_rotation_at: Option<Timestamp>,
    slot_at: Option<Timestamp>,
    slot_failures: Option<i64>,
    slot_retry_at: Option<Timestamp>,
    interval_from: Option<Timestamp>,
    schedule_enabled: Option<bool>,
    schedule_next_at: Option<Timestamp>,
    schedule_cron: Option<String>,
    schedule_length: Option<i64>,
    reissue_failures: Option<i64>,
    reissue_at: Option<Timestamp>,
    quarantine_since: Option<Timestamp>,
    quarantine_retry_at: Option<Timestamp>,
    owner: Option<Uuid>,
    epoch: i64,
}

/// A record without what hangs on it.
pub(in crate::store) struct Head {
    pub cluster_id: ClusterId,
    pub version: u64,
    pub last_generation: Generation,
    pub state: StateColumns,
    pub state_since: Timestamp,
    pub registries: Vec<RegistryId>,
    pub created_at: Timestamp,
    pub last_rotated_at: Option<Timestamp>,
    pub next_rotation_at: Option<Timestamp>,
    pub interval_from: Option<Timestamp>,
    pub schedule: Schedule,
    pub slot: Option<Slot>,
    pub reissue_pause: Option<Pause>,
    pub quarantine: Option<Quarantine>,
    pub ownership: OwnedBy,
}

pub(in crate::store) fn served(
    number: Option<i64>,
    since: Option<Timestamp>,
) -> Result<Option<Served>, StoreError> {
    let (Some(number), Some(since)) = (number, since) else { return Ok(None) };
    Ok(Some(Served { generation: generation(number)?, since }))
}

impl TryFrom<HeadRow> for Head {
    type Error = StoreError;
    fn try_from(row: HeadRow) -> Result<Self, StoreError> {
        let registry = maybe_word(row.refusal_registry_id.as_deref(), "a registry id")?;
        let refusal = registry
            .zip(row.refusal_message)
            .map(|(registry_id, message)| Refusal { registry_id, message });
        let slot = row.slot_at.zip(row.slot_failures).zip(row.slot_retry_at);
        let slot = slot.map(|((at, failures), retry_at)| {
            Ok::<_, StoreError>(Slot { at, failures: small(failures)?, retry_at })
        });
        let pause = row.reissue_failures.zip(row.reissue_at).map(|(failures, until)| {
            Ok::<_, StoreError>(Pause { failures: small(failures)?, until })
        });
        let window = row.schedule_cron.zip(row.schedule_length);
        let window = window.map(|(cron, length)| {
            let length = u64::try_from(length).map(Duration::from_micros).ok();
            length
                .and_then(|length| Window::parse(&cron, length).ok())
                .ok_or_else(|| StoreError::corrupt("a window"))
        });
        let quarantine = row.quarantine_since.zip(row.quarantine_retry_at);
        Ok(Self {
            cluster_id: word(&row.cluster_id, "a cluster id")?,
            version: count(row.version)?,
            last_generation: generation(row.last_generation)?,
            state: StateColumns {
                state: word(&row.state, "a state")?,
                served: served(row.served_generation, row.served_since)?,
                issuing_generation: row.issuing_generation.map(generation).transpose()?,
                refusal,
            },
            state_since: row.state_since,
            registries: row.registries.0,
            created_at: row.created_at,
            last_rotated_at: row.last_rotated_at,
            next_rotation_at: row.next_rotation_at,
            interval_from: row.interval_from,
            schedule: Schedule {
                enabled: row.schedule_enabled,
                next_at: row.schedule_next_at,
                window: window.transpose()?,
            },
            slot: slot.transpose()?,
            reissue_pause: pause.transpose()?,
            quarantine: quarantine.map(|(since, retry_at)| Quarantine { since, retry_at }),
            ownership: OwnedBy { owner: row.owner.map(ReplicaId), epoch: count(row.epoch)? },
        })
    }
}

impl Head {
    /// The working set, with what hangs on the record.
    pub(in crate::store) fn loaded(
        self,
        open: Open,
        accounts: Vec<Account>,
        consumers: Vec<Consumer>,
    ) -> Result<Loaded, StoreError> {
        let (version, last_generation) = (self.version, self.last_generation);
        let ownership = self.ownership;
        let record = PullSecret {
            cluster_id: self.cluster_id,
            state: self.state.rebuild(open.running)?,
            state_since: self.state_since,
            registries: self.registries,
            last_generation,
            accounts,
            consumers,
            ended: Vec::new(),
            created_at: self.created_at,
            last_rotated_at: self.last_rotated_at,
            next_rotation_at: self.next_rotation_at,
            interval_from: self.interval_from,
            schedule: self.schedule,
            slot: self.slot,
            reissue_pause: self.reissue_pause,
            waiting: open.waiting.map(Box::new),
            quarantine: self.quarantine,
        };
        Ok(Loaded { record: Some(record), version, last_generation, ownership })
    }
}

/// What is left of a cluster without a record.
pub(in crate::store) fn without_record(row: Option<(i64, i64)>) -> Result<Loaded, StoreError> {
    let Some((version, last)) = row else { return Ok(Loaded::default()) };
    let (version, last_generation) = (count(version)?, generation(last)?);
    Ok(Loaded { version, last_generation, ..Loaded::default() })
}

/// The columns that [`bind_record`] binds.
macro_rules! record_columns {
    () => {
        "cluster_id, state, state_since, served_generation, served_since, issuing_generation, \
         refusal_registry_id, refusal_message, registries, created_at, last_rotated_at, \
         next_rotation_at, slot_at, slot_failures, quarantine_since, quarantine_retry_at, due_at, \
         slot_retry_at, interval_from, schedule_enabled, schedule_next_at, schedule_cron, \
         schedule_length, reissue_failures, reissue_at, owner, epoch"
    };
}
pub(in crate::store) use record_columns;

/// A record is written whole, unless somebody else became its owner.
macro_rules! record_changes {
    () => {
        "ON CONFLICT (cluster_id) DO UPDATE SET state = excluded.state, \
         state_since = excluded.state_since, served_generation = excluded.served_generation, \
         served_since = excluded.served_since, issuing_generation = excluded.issuing_generation, \
         refusal_registry_id = excluded.refusal_registry_id, \
         refusal_message = excluded.refusal_message, registries = excluded.registries, \
         created_at = excluded.created_at, last_rotated_at = excluded.last_rotated_at, \
         next_rotation_at = excluded.next_rotation_at, slot_at = excluded.slot_at, \
         slot_failures = excluded.slot_failures, quarantine_since = excluded.quarantine_since, \
         quarantine_retry_at = excluded.quarantine_retry_at, due_at = excluded.due_at, \
         slot_retry_at = excluded.slot_retry_at, interval_from = excluded.interval_from, \
         schedule_enabled = excluded.schedule_enabled, \
         schedule_next_at = excluded.schedule_next_at, schedule_cron = excluded.schedule_cron, \
         schedule_length = excluded.schedule_length, \
         reissue_failures = excluded.reissue_failures, reissue_at = excluded.reissue_at, \
         owner = excluded.owner, epoch = excluded.epoch WHERE pull_secrets.epoch = "
    };
}
pub(in crate::store) use record_changes;

/// Binds [`record_columns`] and the epoch that is expected; the list of registries as JSON text.
macro_rules! bind_record {
    ($query:expr, $record:expr, $commit:expr) => {{
        let columns = $crate::store::columns::StateColumns::of(&$record.state);
        let refusal = columns.refusal.as_ref();
        let registries = serde_json::to_string(&$record.registries)
            .map_err(|_| StoreError::corrupt("a list of registries"))?;
        let after = $commit.ownership.passed_to($commit.owner);
        let window = $record.schedule.window.as_ref();
        let length = window.map(|window| window.length().as_micros());
        let length = length.map(|micros| i64::try_from(micros).unwrap_or(i64::MAX));
        $query
            .bind($record.cluster_id.as_str())
            .bind(<&'static str>::from(columns.state))
            .bind($record.state_since)
            .bind(columns.served.map(|served| i64::from(served.generation.0)))
            .bind(columns.served.map(|served| served.since))
            .bind(columns.issuing_generation.map(|generation| i64::from(generation.0)))
            .bind(refusal.map(|refusal| refusal.registry_id.as_str()))
            .bind(refusal.map(|refusal| refusal.message.as_str()))
            .bind(registries)
            .bind($record.created_at)
            .bind($record.last_rotated_at)
            .bind($record.next_rotation_at)
            .bind($record.slot.map(|slot| slot.at))
            .bind($record.slot.map(|slot| i64::from(slot.failures)))
            .bind($record.quarantine.map(|quarantine| quarantine.since))
            .bind($record.quarantine.map(|quarantine| quarantine.retry_at))
            .bind($commit.due_at)
            .bind($record.slot.map(|slot| slot.retry_at))
            .bind($record.interval_from)
            .bind($record.schedule.enabled)
            .bind($record.schedule.next_at)
            .bind(window.map(|window| window.cron()))
            .bind(length)
            .bind($record.reissue_pause.map(|pause| i64::from(pause.failures)))
            .bind($record.reissue_pause.map(|pause| pause.until))
            .bind(after.owner.map(|owner| owner.0))
            .bind($crate::store::rows::decode::signed(after.epoch))
            .bind($crate::store::rows::decode::signed($commit.ownership.epoch))
    }};
}
pub(in crate::store) use bind_record;

#[derive(FromRow)]
pub(in crate::store) struct ListRow {
    #[sqlx(flatten)]
    head: HeadRow,
    #[sqlx(flatten)]
    brief: BriefRow,
}

impl TryFrom<ListRow> for PullSecretRow {
    type Error = StoreError;
    fn try_from(row: ListRow) -> Result<Self, StoreError> {
        let head = Head::try_from(row.head)?;
        Ok(Self {
            cluster_id: head.cluster_id,
            version: head.version,
            state: head.state.state,
            state_since: head.state_since,
            served: head.state.served,
            refusal: head.state.refusal,
            quarantine: head.quarantine,
            registries: head.registries,
            created_at: head.created_at,
            last_rotated_at: head.last_rotated_at,
            next_rotation_at: head.next_rotation_at,
            rotation: row.brief.brief()?,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct ConsumerRow {
    source: String,
    name: String,
    generation: i64,
    observed_at: Timestamp,
}

impl TryFrom<ConsumerRow> for Consumer {
    type Error = StoreError;
    fn try_from(row: ConsumerRow) -> Result<Self, StoreError> {
        Ok(Self {
            source: word(&row.source, "a source of evidence")?,
            name: row.name,
            generation: generation(row.generation)?,
            observed_at: row.observed_at,
        })
    }
}
