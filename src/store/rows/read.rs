//! Rows of the reads on the hot paths, which join several tables.

use sqlx::FromRow;
use uuid::Uuid;

use super::super::{Presented, SealedSecret, ServedCredential, ServedView, StoreError};
use super::decode::{generation, maybe_word, word};
use super::record::{Head, HeadRow, served};
use super::rotation::BriefRow;
use crate::ids::AccountId;
use crate::state::pull_secret::{Consumer, EvidenceSource};
use crate::time::Timestamp;

#[derive(FromRow)]
pub(in crate::store) struct ServedRow {
    #[sqlx(flatten)]
    head: HeadRow,
    #[sqlx(flatten)]
    brief: BriefRow,
    #[sqlx(flatten)]
    credential: CredentialRow,
}

#[derive(FromRow)]
struct CredentialRow {
    account_id: Option<Uuid>,
    account_registry_id: Option<String>,
    username: Option<String>,
    key_id: Option<String>,
    sealed: Option<Vec<u8>>,
}

impl CredentialRow {
    fn credential(self) -> Result<Option<ServedCredential>, StoreError> {
        let (Some(id), Some(registry_id)) = (self.account_id, self.account_registry_id) else {
            return Ok(None);
        };
        // All or nothing: a document that lacks an entry is never handed out.
        let (Some(username), Some(key_id), Some(bytes)) = (self.username, self.key_id, self.sealed)
        else {
            return Err(StoreError::corrupt("a served account without user name or secret"));
        };
        Ok(Some(ServedCredential {
            account_id: AccountId(id),
            registry_id: word(&registry_id, "a registry id")?,
            username,
            secret: SealedSecret { key_id, bytes },
        }))
    }
}

/// What the rows of one record say together; `None` without any.
pub(in crate::store) fn served_view(
    rows: Vec<ServedRow>,
) -> Result<Option<ServedView>, StoreError> {
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else { return Ok(None) };
    let head = Head::try_from(first.head)?;
    let rotation = first.brief.brief()?;
    let credentials = std::iter::once(first.credential).chain(rows.map(|row| row.credential));
    let credentials = credentials.filter_map(|row| row.credential().transpose());
    Ok(Some(ServedView {
        version: head.version,
        state: head.state.state,
        state_since: head.state_since,
        served: head.state.served,
        refusal: head.state.refusal,
        quarantine: head.quarantine,
        created_at: head.created_at,
        last_rotated_at: head.last_rotated_at,
        next_rotation_at: head.next_rotation_at,
        rotation,
        credentials: credentials.collect::<Result<_, _>>()?,
    }))
}

#[derive(FromRow)]
pub(in crate::store) struct PresentedRow {
    account_id: Uuid,
    registry_id: String,
    phase: String,
    born_generation: i64,
    served_in: Option<i64>,
    gone_at: Option<Timestamp>,
    key_id: String,
    sealed: Vec<u8>,
    state: Option<String>,
    served_generation: Option<i64>,
    served_since: Option<Timestamp>,
    seen_generation: Option<i64>,
    observed_at: Option<Timestamp>,
}

impl PresentedRow {
    /// `consumer` is whose latest heartbeat the row brought along.
    pub(in crate::store) fn presented(self, consumer: &str) -> Result<Presented, StoreError> {
        let seen = |(number, observed_at)| {
            Ok::<_, StoreError>(Consumer {
                source: EvidenceSource::Heartbeat,
                name: consumer.to_owned(),
                generation: generation(number)?,
                observed_at,
            })
        };
        Ok(Presented {
            account_id: AccountId(self.account_id),
            registry_id: word(&self.registry_id, "a registry id")?,
            phase: word(&self.phase, "an account's phase")?,
            generation: generation(self.served_in.unwrap_or(self.born_generation))?,
            gone_at: self.gone_at,
            secret: SealedSecret { key_id: self.key_id, bytes: self.sealed },
            state: maybe_word(self.state.as_deref(), "a state")?,
            served: served(self.served_generation, self.served_since)?,
            last_seen: self.seen_generation.zip(self.observed_at).map(seen).transpose()?,
        })
    }
}

#[derive(FromRow)]
pub(in crate::store) struct SecretRow {
    account_id: Uuid,
    key_id: String,
    sealed: Vec<u8>,
}

impl SecretRow {
    pub(in crate::store) fn secret(self) -> (AccountId, SealedSecret) {
        let Self { account_id, key_id, sealed: bytes } = self;
        (AccountId(account_id), SealedSecret { key_id, bytes })
    }
}
