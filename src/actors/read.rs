//! Reads for GET and heartbeats: from the database, never from an actor's memory, so that no replica ever
//! hands out an older generation after a newer one.

use secrecy::SecretString;

use super::audit::Caller;
use super::deps::Deps;
use super::log::Cause;
use super::shard::CommandError;
use super::step::{StepError, aad};
use super::system::Shards;
use crate::crypto::{OpenError, secret};
use crate::ids::{AccountId, ClusterId, Generation, RegistryId};
use crate::state::pull_secret::{
    AccountPhase, Command, Evidence, EvidenceSource, EvidenceSubject, Rejection, Served,
};
use crate::store::{Presented, SealedSecret, StoreError};

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored secret does not open.
    #[error("a stored secret does not open: {0}")]
    Open(#[from] OpenError),
}

/// Opens an account's secret.
///
/// # Errors
/// [`OpenError`] when the key is missing or the row was tampered with.
pub fn open(
    deps: &Deps,
    account_id: AccountId,
    sealed: &SealedSecret,
) -> Result<SecretString, OpenError> {
    deps.keyring.get().open_secret(&aad(account_id), &sealed.bytes)
}

/// The credential that a cluster presented.
#[derive(Debug)]
pub struct Heartbeat {
    /// The login name.
    pub username: String,
    /// The secret.
    pub secret: SecretString,
}

/// Who in the cluster it is, when nobody says.
pub const DEFAULT_CONSUMER: &str = "default";

/// A presented credential that is in use.
#[derive(Debug)]
pub struct Recognised {
    username: String,
    found: Presented,
    served: Served,
}

/// What the cluster is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// Whose account it is.
    pub registry_id: RegistryId,
    /// The generation that was presented.
    pub generation: Generation,
    /// It is the served one.
    pub current: bool,
}

/// Why a heartbeat is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum HeartbeatError {
    /// Unknown, revoked or foreign: the same answer for each.
    #[error("the credential is not valid")]
    Unauthorized,
    /// The command was not carried out.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Checks a presented credential, before anything else of the request is looked at.
///
/// # Errors
/// [`HeartbeatError`].
pub async fn recognised(
    deps: &Deps,
    cluster_id: &ClusterId,
    heartbeat: &Heartbeat,
) -> Result<Recognised, HeartbeatError> {
    let rows = deps.store.presented(cluster_id, &heartbeat.username, DEFAULT_CONSUMER).await;
    let found = matching(deps, rows.map_err(ReadError::from)?, heartbeat)?;
    let (Some(served), true) = (found.served, found.phase.is_handed_out()) else {
        // Somebody still holds what was revoked: worth a person's look, never a different answer.
        tracing::warn!(
            %cluster_id, registry = %found.registry_id, generation = found.generation.0,
            event_name = "revoked_in_use", "a revoked credential was presented"
        );
        return Err(HeartbeatError::Unauthorized);
    };
    Ok(Recognised { username: heartbeat.username.clone(), found, served })
}

/// Notes who was seen with a credential that was recognised. Costs a write only when there is something new
/// to note.
///
/// # Errors
/// [`HeartbeatError`].
pub async fn heartbeat(
    deps: &Deps,
    shards: &Shards,
    cluster_id: &ClusterId,
    known: Recognised,
    consumer: &str,
    cause: &Cause,
) -> Result<HeartbeatAnswer, HeartbeatError> {
    let Recognised { username, mut found, served } = known;
    if consumer != DEFAULT_CONSUMER {
        let rows = deps.store.presented(cluster_id, &username, consumer).await;
        let mut rows = rows.map_err(ReadError::from)?.into_iter();
        let same = rows.find(|row| row.account_id == found.account_id);
        found.last_seen = same.ok_or(HeartbeatError::Unauthorized)?.last_seen;
    }
    let current = found.phase == AccountPhase::Serving;
    let generation = if current { served.generation } else { found.generation };
    if is_news(deps, &found, generation, served.since) {
        note(deps, shards, cluster_id, &found, consumer, cause).await?;
    }
    Ok(HeartbeatAnswer { registry_id: found.registry_id, generation, current })
}

fn matching(
    deps: &Deps,
    rows: Vec<Presented>,
    heartbeat: &Heartbeat,
) -> Result<Presented, HeartbeatError> {
    for row in rows {
        let stored = open(deps, row.account_id, &row.secret).map_err(ReadError::from)?;
        if secret::equal(&stored, &heartbeat.secret) {
            return Ok(row);
        }
    }
    Err(HeartbeatError::Unauthorized)
}

/// The same rule as in the machine, asked before its mailbox is troubled.
fn is_news(
    deps: &Deps,
    found: &Presented,
    generation: Generation,
    switched_at: crate::time::Timestamp,
) -> bool {
    let Some(seen) = &found.last_seen else { return true };
    let age = deps.clock.now().since(seen.observed_at);
    seen.generation != generation
        || seen.observed_at <= switched_at
        || age >= deps.policy.sighting_interval()
}

async fn note(
    deps: &Deps,
    shards: &Shards,
    cluster_id: &ClusterId,
    found: &Presented,
    consumer: &str,
    cause: &Cause,
) -> Result<(), HeartbeatError> {
    let evidence = Evidence {
        source: EvidenceSource::Heartbeat,
        consumer: consumer.to_owned(),
        subject: EvidenceSubject::Account(found.account_id),
        observed_at: deps.clock.now(),
    };
    let caller =
        Caller { actor: format!("cluster:{cluster_id}"), ..Caller::caused("heartbeat", cause) };
    match shards.execute(cluster_id, Command::Observe(evidence), caller).await {
        Ok(_) => Ok(()),
        // It was revoked between the read and the command.
        Err(CommandError::Step(StepError::Rejected(
            Rejection::NotInUse | Rejection::NoRecord | Rejection::State { .. },
        ))) => Err(HeartbeatError::Unauthorized),
        Err(error) => Err(error.into()),
    }
}
