//! One command, one transaction: decide, apply, announce the calls that can be made now, commit.
//!
//! Only when the commit has succeeded are the announced calls handed back, to be made. Knows nothing of
//! actors, so that it can be read and tested alone.

mod plan;

use std::sync::Arc;
use std::time::Instant;

use secrecy::SecretString;
use tracing::Instrument;

use self::plan::Plan;
use super::audit::Caller;
use super::deps::Deps;
use super::kind;
use super::log::{self, Cause};
use crate::crypto::{Aad, SealError};
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId};
use crate::registries::lane::Permit;
use crate::state::pull_secret::{Account, Answer, Call, Command, Effect, PullSecret, Rejection};
use crate::store::{IdempotencyAnswer, OwnedBy, StoreError, Turn};

/// A lost race reloads and decides again, at most so often.
const MAX_RACES: usize = 16;

/// A lane in which a call may wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The registry.
    pub registry_id: RegistryId,
    /// The lane of its residue.
    pub residue: bool,
}

impl Place {
    fn of(effect: &Effect) -> Self {
        Self { registry_id: effect.registry_id.clone(), residue: effect.residue }
    }
}

/// What an actor keeps between commands, as it stands in the database.
#[derive(Debug, Clone)]
pub struct Working {
    /// The record.
    pub record: Option<PullSecret>,
    /// The row version that the next write is guarded by.
    pub version: u64,
    /// The generation counter.
    pub last_generation: Generation,
    /// Who may run its effects.
    pub ownership: OwnedBy,
}

/// A call that was announced and may be made now.
#[derive(Debug)]
pub struct AnnouncedCall {
    /// The account as it was when announced.
    pub account: Account,
    /// Which call.
    pub call: Call,
    /// Its token.
    pub token: CallToken,
    /// When it was announced, on this process's own clock.
    pub announced_at: Instant,
    /// The place in the registry's lane.
    pub permit: Permit,
    /// What it is made for.
    pub cause: Cause,
}

/// What a step did.
pub type Step = kind::Step<Deps>;

/// Why a step did nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The machine says no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A secret could not be sealed or made.
    #[error("a secret cannot be sealed: {0}")]
    Seal(String),
}

impl From<SealError> for StepError {
    fn from(error: SealError) -> Self {
        Self::Seal(error.to_string())
    }
}

/// What goes into a step besides the state.
pub struct Request<'a> {
    /// The command.
    pub command: &'a Command,
    /// A secret that came with an answer, to be sealed for its account.
    pub secret: Option<(AccountId, &'a SecretString)>,
    /// Who asks.
    pub caller: &'a Caller,
    /// Places in lanes that were waited for.
    pub permits: Vec<(Place, Permit)>,
    /// The answer that a repetition of the request gets, committed with the step.
    pub answer: Option<IdempotencyAnswer>,
}

/// Runs one command. `working` is what the caller believes to be stored; `None` loads it.
///
/// # Errors
/// [`StepError`]; nothing was stored and nothing may be sent then.
pub async fn step(
    deps: &Arc<Deps>,
    cluster_id: &ClusterId,
    mut working: Option<Working>,
    mut request: Request<'_>,
) -> Result<Step, StepError> {
    let _running = deps.activity.begin();
    let known = working.as_ref().and_then(|working| working.record.as_ref());
    let span = log::span(cluster_id, &Cause::of(request.caller, known));
    let mut races = 0;
    // Lost once, a turn is waited for: whoever calls knows better.
    let mut may_begin = true;
    let work = async {
        loop {
            let kept = working.is_some();
            let current = match working.take() {
                Some(current) => current,
                None => load(deps, cluster_id).await?,
            };
            let done = match close_calls_of_others(deps, cluster_id, current).await {
                Ok(current) => {
                    attempt(deps, cluster_id, current, &mut request, kept, may_begin).await
                }
                Err(error) => Err(error),
            };
            match done {
                Err(StepError::Store(StoreError::NoTurn)) if may_begin => may_begin = false,
                Err(StepError::Store(StoreError::Conflict)) if races < MAX_RACES => races += 1,
                other => return other,
            }
        }
    };
    work.instrument(span).await
}

/// The owner, or whoever is about to become it, begins here: an open call that this process knows nothing of will
/// never be answered. Its end is committed alone, so that the audit says who closed it.
async fn close_calls_of_others(
    deps: &Arc<Deps>,
    cluster_id: &ClusterId,
    current: Working,
) -> Result<Working, StepError> {
    let found = match &current.record {
        Some(record) if deps.replica.may_work_on(current.ownership) => {
            let accounts = record.accounts.iter();
            let open = accounts.filter_map(|account| Some((account.id, account.call?)));
            deps.replica.open_calls_of_others(open)
        }
        Some(_) | None => Vec::new(),
    };
    if found.is_empty() {
        return Ok(current);
    }
    let caller = Caller::service("takeover");
    // To close calls begins nothing: whoever may begin is told by the step that follows.
    let mut plan = Plan::new(deps, current, false);
    for (account_id, open) in found {
        let answer = Answer::abandoned(open.call);
        // Refused where it was closed along with the one before.
        let _ = plan.decide(&Command::Answer { account_id, token: open.token, answer });
    }
    if plan.events.is_empty() {
        return Ok(plan.before);
    }
    let request = Request {
        command: &Command::TakeOver,
        secret: None,
        caller: &caller,
        permits: Vec::new(),
        answer: None,
    };
    plan.turn = plan.waits();
    Ok(plan.commit(cluster_id, Vec::new(), &request).await?.working)
}

/// Whether another replica has written since: what was decided without a commit has to be decided again.
async fn is_stale(deps: &Deps, cluster_id: &ClusterId, seen: &Working) -> Result<bool, StoreError> {
    let stored = deps.store.version_of(cluster_id).await?.map(|(version, _)| version);
    Ok(stored != seen.record.as_ref().map(|_| seen.version))
}

/// Reads what an actor works on.
///
/// # Errors
/// [`StoreError`].
pub async fn load(deps: &Deps, cluster_id: &ClusterId) -> Result<Working, StoreError> {
    let loaded = deps.store.load(cluster_id).await?;
    Ok(Working {
        record: loaded.record,
        version: loaded.version,
        last_generation: loaded.last_generation,
        ownership: loaded.ownership,
    })
}

async fn attempt(
    deps: &Arc<Deps>,
    cluster_id: &ClusterId,
    current: Working,
    request: &mut Request<'_>,
    kept: bool,
    may_begin: bool,
) -> Result<Step, StepError> {
    let mut plan = Plan::new(deps, current, may_begin);
    let mut decided = plan.decide(request.command);
    if decided.is_ok() {
        if let Some((rank, max)) = plan.begins() {
            if deps.store.has_turn(cluster_id, rank, max, plan.now).await? {
                plan.turn = Some(Turn::Take { rank, max });
            } else {
                plan = Plan::new(deps, plan.before, false);
                decided = plan.decide(request.command);
            }
        }
        // What follows from announcing must not begin one.
        plan.may_begin = false;
        if plan.turn.is_none() {
            plan.turn = plan.waits();
        }
        plan.announce(&mut request.permits);
    }
    // A commit is guarded by its version; a word without a commit is not.
    if kept && plan.events.is_empty() && is_stale(deps, cluster_id, &plan.before).await? {
        return Err(StoreError::Conflict.into());
    }
    if let Err(rejection) = decided {
        let record = plan.before.record.as_ref();
        log::refused(cluster_id, record, request.command, &rejection, request.caller);
        return Err(rejection.into());
    }
    if plan.events.is_empty() && !plan.redated {
        if let Some(answer) = &request.answer {
            deps.store.answer_idempotent(answer).await?;
        }
        let Plan { before, crowded, turn, now, .. } = plan;
        if let Some(Turn::Wait { rank }) = turn {
            deps.store.wait_for_turn(cluster_id, rank, now).await?;
        }
        let cause = Cause::of(request.caller, before.record.as_ref());
        return Ok(Step { working: before, events: Vec::new(), calls: Vec::new(), crowded, cause });
    }
    let secrets = plan.secrets(request.secret).await?;
    plan.commit(cluster_id, secrets, request).await
}

/// What a pull secret's account secret is sealed for.
#[must_use]
pub const fn aad(account_id: AccountId) -> Aad {
    Aad::account(account_id)
}
