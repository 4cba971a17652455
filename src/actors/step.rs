//! One command, one transaction: decide, apply, announce the calls that can be made now, commit.
//!
//! Only when the commit has succeeded are the announced calls handed back, to be made. Knows nothing of
//! actors, so that it can be read and tested alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tracing::Instrument;

use super::audit::{self, Caller};
use super::count;
use super::deps::Deps;
use super::log::{self, Cause};
use crate::crypto::{Aad, SealError, secret};
use crate::failpoints::Point;
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId};
use crate::registries::lane::{NotNow, NotNowKind, Permit};
use crate::state::pull_secret::{
    Account, Call, Command, Context, Effect, Entropy, Event, PullSecret, Rejection, RotationReason,
    apply, decide, due_at, effects,
};
use crate::store::{Commit, IdempotencyAnswer, SealedSecret, StoreError, Turn, TurnRank, gone_how};
use crate::time::Timestamp;

/// A lost race reloads and decides again, at most so often.
const MAX_RACES: usize = 16;
/// A registry's wait up to this is waited for in memory; a longer one is stored.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// So many calls for residue wait in memory; the others in the database.
const RESIDUE_WAITS: usize = 8;
/// Within this they come back.
const RESIDUE_PAUSE: Duration = Duration::from_secs(30 * 60);

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
#[derive(Debug)]
pub struct Step {
    /// The state now.
    pub working: Working,
    /// What happened; empty when the command was already fulfilled.
    pub events: Vec<Event>,
    /// The calls to make.
    pub calls: Vec<AnnouncedCall>,
    /// Registries whose lane is full for the moment: wait for a place, then step again.
    pub crowded: Vec<Place>,
    /// What the step was made for.
    pub cause: Cause,
}

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
            let current = match working.take() {
                Some(current) => current,
                None => load(deps, cluster_id).await?,
            };
            match attempt(deps, cluster_id, current, &mut request, may_begin).await {
                Err(StepError::Store(StoreError::NoTurn)) if may_begin => may_begin = false,
                Err(StepError::Store(StoreError::Conflict)) if races < MAX_RACES => races += 1,
                other => return other,
            }
        }
    };
    work.instrument(span).await
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
    })
}

async fn attempt(
    deps: &Arc<Deps>,
    cluster_id: &ClusterId,
    current: Working,
    request: &mut Request<'_>,
    may_begin: bool,
) -> Result<Step, StepError> {
    let mut plan = Plan::new(deps, current, may_begin);
    plan.decide(request.command).inspect_err(|rejection| {
        let record = plan.before.record.as_ref();
        log::refused(cluster_id, record, request.command, rejection, request.caller);
    })?;
    if let Some((rank, max)) = plan.begins() {
        if deps.store.has_turn(cluster_id, rank, max, plan.now).await? {
            plan.turn = Some(Turn::Take { rank, max });
        } else {
            plan = Plan::new(deps, plan.before, false);
            plan.decide(request.command)?;
        }
    }
    // What follows from announcing must not begin one.
    plan.may_begin = false;
    if plan.turn.is_none() {
        plan.turn = plan.waits();
    }
    plan.announce(&mut request.permits);
    if plan.events.is_empty() {
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

/// A step being put together.
struct Plan<'a> {
    deps: &'a Arc<Deps>,
    now: Timestamp,
    started: Instant,
    before: Working,
    after: Option<PullSecret>,
    events: Vec<Event>,
    announced: Vec<(AccountId, Call, CallToken, Permit)>,
    crowded: Vec<Place>,
    may_begin: bool,
    turn: Option<Turn>,
}

impl<'a> Plan<'a> {
    fn new(deps: &'a Arc<Deps>, before: Working, may_begin: bool) -> Self {
        Self {
            deps,
            now: deps.clock.now(),
            started: Instant::now(),
            after: before.record.clone(),
            before,
            events: Vec::new(),
            announced: Vec::new(),
            crowded: Vec::new(),
            may_begin,
            turn: None,
        }
    }

    /// A rotation that needs a turn and begins in this step: its rank, and the limit of the fleet.
    fn begins(&self) -> Option<(TurnRank, u32)> {
        let rotation = self.after.as_ref()?.rotation()?;
        let began = |event: &Event| matches!(event, Event::GenerationStarted { generation, .. } if *generation == rotation.to);
        let waits_for_nobody = rotation.reason == RotationReason::Compromise;
        let begins = !waits_for_nobody && self.events.iter().any(began);
        begins.then(|| (TurnRank::of(rotation.reason), self.deps.tuning.max_rotations))
    }

    fn waits(&self) -> Option<Turn> {
        let record = self.after.as_ref().filter(|record| record.waits_for_turn())?;
        record.rotation().map(|rotation| Turn::Wait { rank: TurnRank::of(rotation.reason) })
    }

    fn decide(&mut self, command: &Command) -> Result<(), Rejection> {
        let context = Context {
            now: self.now,
            policy: &self.deps.policy,
            entropy: Entropy::from_seed(rand::random()),
            last_generation: self.before.last_generation,
            may_start: self.may_begin,
        };
        for event in decide(self.after.as_ref(), command, &context)? {
            self.after = apply(self.after.take(), &event);
            self.events.push(event);
        }
        Ok(())
    }

    /// Announces what is due and has a place in its lane; puts off what its registry cannot take.
    fn announce(&mut self, waited_for: &mut Vec<(Place, Permit)>) {
        let Some(record) = &self.after else { return };
        if self.deps.activity.is_stopping() {
            return;
        }
        let due: Vec<Effect> =
            effects(record, self.now).into_iter().filter(|effect| effect.due <= self.now).collect();
        for effect in due {
            let place = Place::of(&effect);
            let permit = match take(waited_for, &place) {
                Some(permit) => Ok(permit),
                None => self.permit(&place),
            };
            match permit {
                Ok(permit) => self.announce_one(&effect, permit),
                Err(Refused::Crowded) => {
                    if !self.crowded.contains(&place) {
                        self.crowded.push(place);
                    }
                }
                Err(Refused::Until { until, reason }) => self.defer(&effect, until, reason),
            }
        }
    }

    fn permit(&self, place: &Place) -> Result<Permit, Refused> {
        let Some(configured) = self.deps.registries.get(&place.registry_id) else {
            let until = self.now.plus(Duration::from_secs(60));
            let reason = "the registry is not configured any more".to_owned();
            return Err(Refused::Until { until, reason });
        };
        let lane = configured.lane_for(place.residue);
        lane.try_permit().map_err(|not_now| match self.refused(&not_now) {
            // Hopeless work has time: it waits in the database, and not all of it comes back at once.
            Refused::Crowded if place.residue && lane.waiting() >= RESIDUE_WAITS => {
                Refused::Until { until: self.now.plus(residue_pause()), reason: not_now.reason }
            }
            Refused::Until { until, reason } if place.residue => {
                Refused::Until { until: until.plus(residue_pause()), reason }
            }
            refused => refused,
        })
    }

    fn refused(&self, not_now: &NotNow) -> Refused {
        let reason = not_now.reason.clone();
        let wait = match not_now.kind {
            NotNowKind::Full => return Refused::Crowded,
            NotNowKind::Rate { until } => {
                let wait = until.saturating_duration_since(tokio::time::Instant::now());
                if wait <= SHORT_WAIT {
                    return Refused::Crowded;
                }
                wait
            }
            NotNowKind::Breaker { until: Some(until) } => {
                until.saturating_duration_since(tokio::time::Instant::now())
            }
            // Somebody else's probe is under way.
            NotNowKind::Breaker { until: None } => Duration::from_secs(1),
        };
        // Those who wait for the same registry do not come back at the same moment.
        let spread = wait.mul_f64(0.2 * rand::random::<f64>()) + Duration::from_millis(50);
        Refused::Until { until: self.now.plus(wait + spread), reason }
    }

    fn announce_one(&mut self, effect: &Effect, permit: Permit) {
        let token = CallToken(Entropy::from_seed(rand::random()).uuid(self.now));
        let command = Command::Announce { account_id: effect.account_id, call: effect.call, token };
        // The effect was just derived from this very state, so it is wanted.
        if self.decide(&command).is_ok() {
            self.announced.push((effect.account_id, effect.call, token, permit));
        }
    }

    fn defer(&mut self, effect: &Effect, until: Timestamp, reason: String) {
        let account_id = effect.account_id;
        // Wanted as above.
        let _ = self.decide(&Command::Defer { account_id, until, reason });
    }

    /// Seals what has to be stored with this step: the secret of an answer, and the secrets that the
    /// service chooses, before they are first sent.
    async fn secrets(
        &self,
        answered: Option<(AccountId, &SecretString)>,
    ) -> Result<Vec<(AccountId, SealedSecret)>, StepError> {
        let mut secrets = Vec::new();
        if let Some((account_id, secret)) = answered {
            let created = self.events.iter().any(|event| {
                matches!(event, Event::AccountCreated { account_id: id, .. } if *id == account_id)
            });
            if created {
                secrets.push((account_id, self.seal(account_id, secret)?));
            }
        }
        for (account_id, call, _, _) in &self.announced {
            if *call != Call::Create || !self.chooses_secret(*account_id) {
                continue;
            }
            // Every repeat sends the secret of the first time.
            if self.deps.store.secret(*account_id).await?.is_none() {
                let chosen = secret::generate().map_err(|e| StepError::Seal(e.to_string()))?;
                secrets.push((*account_id, self.seal(*account_id, &chosen)?));
            }
        }
        Ok(secrets)
    }

    fn chooses_secret(&self, account_id: AccountId) -> bool {
        let account = self.after.as_ref().and_then(|record| record.account(account_id));
        account
            .and_then(|account| self.deps.registries.get(&account.registry_id))
            .is_some_and(|configured| configured.registry.capabilities().own_secret)
    }

    fn seal(&self, id: AccountId, secret: &SecretString) -> Result<SealedSecret, SealError> {
        let sealed = self.deps.keyring.get().seal_secret(&aad(id), secret)?;
        Ok(SealedSecret { key_id: sealed.key_id().to_owned(), bytes: sealed.into_bytes() })
    }

    async fn commit(
        self,
        cluster_id: &ClusterId,
        secrets: Vec<(AccountId, SealedSecret)>,
        request: &Request<'_>,
    ) -> Result<Step, StepError> {
        let Self { deps, now, started, before, after, events, announced, crowded, turn, .. } = self;
        let commit = Commit {
            cluster_id,
            expected_version: before.version,
            before: before.record.as_ref(),
            after: after.as_ref(),
            gone_how: gone_how(&events),
            due_at: after.as_ref().and_then(|record| due_at(record, &deps.policy)),
            secrets,
            audit: audit::rows(cluster_id, &before, after.as_ref(), &events, request.caller, now),
            at: now,
            outbox: Vec::new(),
            idempotency: request.answer.clone(),
            turn,
        };
        let calls = || announced.iter().map(|(_, call, _, _)| *call);
        let points = [Point::BeforeCommit, Point::BeforeOutcomeCommit];
        deps.at_commit(points, calls(), request.command).await?;
        let version = deps.store.commit(commit).await?;
        let points = [Point::AfterCommit, Point::AfterOutcomeCommit];
        deps.at_commit(points, calls(), request.command).await?;
        let told = before.record.as_ref();
        log::events(cluster_id, told, after.as_ref(), &events, request.caller);
        count::events(&deps.metrics, told, after.as_ref(), &events);
        let cause = Cause::of(request.caller, after.as_ref());
        let calls = announced
            .into_iter()
            .filter_map(|(account_id, call, token, permit)| {
                let account = after.as_ref()?.account(account_id)?.clone();
                let cause = cause.clone();
                Some(AnnouncedCall { account, call, token, announced_at: started, permit, cause })
            })
            .collect();
        let last_generation = after
            .as_ref()
            .map_or(before.last_generation, |record| record.last_generation)
            .max(before.last_generation);
        let record = after.map(PullSecret::compact);
        let working = Working { record, version, last_generation };
        Ok(Step { working, events, calls, crowded, cause })
    }
}

enum Refused {
    /// A place is free in a moment.
    Crowded,
    /// Not before then.
    Until { until: Timestamp, reason: String },
}

fn residue_pause() -> Duration {
    RESIDUE_PAUSE.mul_f64(rand::random())
}

fn take(permits: &mut Vec<(Place, Permit)>, place: &Place) -> Option<Permit> {
    let index = permits.iter().position(|(known, _)| known == place)?;
    Some(permits.swap_remove(index).1)
}

/// What a pull secret's account secret is sealed for.
#[must_use]
pub const fn aad(account_id: AccountId) -> Aad {
    Aad::account(account_id)
}
