//! `Idempotency-Key`: a request that comes again gets its first answer again.
//!
//! Knows keys, hashes and leases. What the request does is the handler's: it takes the [`Ticket`] along with
//! its command, so that the answer is committed with it or not at all.

use std::cell::Cell;
use std::time::Duration;

use actix_web::http::StatusCode;
use serde::Serialize;
use uuid::Uuid;

use super::backend::store;
use crate::crypto::AuditKey;
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::IdempotencyKey;
use crate::http::problem::{ApiError, Conflict, Constraint, FieldError};
use crate::store::{self, IdempotencyAnswer, IdempotencyStart, IdempotencyState, Store};
use crate::time::Clock;

/// A command is committed long before its request's wait is over; this is for a slow database.
const SPARE: Duration = Duration::from_secs(5);
/// A client that meets its own first attempt comes back after this.
const RUNNING: Duration = Duration::from_secs(1);

/// Where answers are kept: what a handler works with has it.
pub(super) trait Keeper {
    fn store(&self) -> &dyn Store;
    fn clock(&self) -> &dyn Clock;
    fn repeats(&self) -> &Repeats;
}

/// What requests are recognised by.
pub struct Repeats {
    hashes: AuditKey,
    lease: Duration,
}

impl Repeats {
    /// Hashes with a key made from the audit's. A request that has not answered some time after
    /// `request_wait` counts as dead.
    #[must_use]
    pub fn new(key: &AuditKey, request_wait: Duration) -> Self {
        Self { hashes: key.derive("idempotency/1"), lease: request_wait.saturating_add(SPARE) }
    }

    fn start<B: Serialize>(
        &self,
        key: &str,
        asked: &Asked<'_, B>,
        now: crate::time::Timestamp,
    ) -> Result<IdempotencyStart, ApiError> {
        let hash = |parts: &[&[u8]]| self.hashes.hash(parts).to_vec();
        let body = serde_json::to_vec(asked.body).map_err(ApiError::internal)?;
        let key = store::IdempotencyKey {
            key_hash: hash(&[b"key", key.as_bytes(), asked.context.path.as_bytes()]),
            caller_hash: hash(&[b"caller", asked.who.principal.name.as_bytes()]),
        };
        Ok(IdempotencyStart {
            key,
            body_hash: hash(&[b"body", &body]),
            holder: Uuid::now_v7(),
            now,
            lease_until: now.plus(self.lease),
        })
    }
}

/// A request as far as it matters here. `body` is the checked one: spaces, order and defaults make no
/// difference.
pub(super) struct Asked<'a, B> {
    pub key: IdempotencyKey,
    pub who: &'a Caller,
    pub context: &'a RequestContext,
    pub body: &'a B,
}

/// This attempt's right to store the answer; empty where the client gave no key.
pub(super) struct Ticket {
    held: Option<(store::IdempotencyKey, Uuid)>,
    used: Cell<bool>,
}

impl Ticket {
    /// The answer to commit with the command.
    pub(super) fn answer(
        &self,
        status: StatusCode,
        location: Option<&str>,
        resource_id: impl ToString,
    ) -> Option<IdempotencyAnswer> {
        let (key, holder) = self.held.clone()?;
        self.used.set(true);
        Some(IdempotencyAnswer {
            key,
            holder,
            status: status.as_u16(),
            location: location.map(ToOwned::to_owned),
            resource_id: Some(resource_id.to_string()),
        })
    }

    /// The committed answer turned out otherwise: another status, or none that is to be repeated.
    pub(super) async fn correct(&self, keeper: &impl Keeper, status: Option<StatusCode>) {
        let Some((key, holder)) = &self.held else { return };
        let status = status.map(|status| status.as_u16());
        if let Err(error) = keeper.store().correct_idempotent(key, *holder, status).await {
            // The one that was committed is still true: it was accepted.
            tracing::warn!(%error, "the answer of an idempotency key was not corrected");
        }
    }
}

/// A first answer, to be given again.
pub(super) struct Replay {
    pub status: StatusCode,
    pub location: Option<String>,
    pub resource_id: String,
}

/// Runs the request, or shows again what came of it. A refusal changes nothing and is not kept: whoever
/// comes again may find another state.
pub(super) async fn once<B: Serialize>(
    keeper: &impl Keeper,
    asked: Asked<'_, B>,
    run: impl AsyncFnOnce(&Ticket) -> Answer,
    show: impl AsyncFnOnce(Replay) -> Answer,
) -> Answer {
    let Some(key) = asked.key.0.as_deref() else {
        return run(&Ticket { held: None, used: Cell::new(false) }).await;
    };
    let start = keeper.repeats().start(key, &asked, keeper.clock().now())?;
    let known = keeper.store().begin_idempotent(&start).await;
    match known.map_err(|error| store(&error))? {
        IdempotencyState::Begun => {
            let held = Some((start.key, start.holder));
            let ticket = Ticket { held, used: Cell::new(false) };
            let answer = run(&ticket).await;
            if answer.is_err() || !ticket.used.get() {
                release(keeper, &ticket).await;
            }
            answer
        }
        IdempotencyState::Answered { status, location, resource_id } => {
            let status = StatusCode::from_u16(status).map_err(ApiError::internal)?;
            let resource_id = resource_id.unwrap_or_default();
            let shown = show(Replay { status, location, resource_id }).await?;
            Ok(answer::as_replayed(shown))
        }
        IdempotencyState::Running => Err(running()),
        IdempotencyState::OtherBody => Err(other_body()),
    }
}

/// Does nothing to an answer that was committed.
async fn release(keeper: &impl Keeper, ticket: &Ticket) {
    let Some((key, holder)) = &ticket.held else { return };
    if let Err(error) = keeper.store().release_idempotent(key, *holder).await {
        // Its lease ends by itself.
        tracing::warn!(%error, "an idempotency key was not released");
    }
}

fn running() -> ApiError {
    let detail = "a request with this Idempotency-Key is still running".to_owned();
    let (retryable, retry_after) = (Some(true), Some(RUNNING));
    Conflict { detail, retryable, retry_after, ..Conflict::default() }.into()
}

fn other_body() -> ApiError {
    let message = "was used with another body; use a new key for a new request";
    ApiError::rule(FieldError::new("Idempotency-Key", Constraint::Unique, message))
}
