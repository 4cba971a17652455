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
use super::kind;
use super::log::{self, Cause};
use super::replica::Flight;
use crate::crypto::{Aad, SealError, secret};
use crate::failpoints::Point;
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId, ReplicaId};
use crate::registries::lane::{NotNow, NotNowKind, Permit};
use crate::state::pull_secret::{
    Account, Answer, Call, Command, Context, Effect, Entropy, Event, PullSecret, Rejection,
    RotationReason, apply, decide, due_at, effects,
};
use crate::store::{
    Commit, IdempotencyAnswer, OwnedBy, SealedSecret, StoreError, Turn, TurnRank, gone_how,
};
use crate::time::Timestamp;

/// A lost race reloads and decides again, at most so often.
const MAX_RACES: usize = 16;
/// A deletion that a restore holds is looked at again after this.
const HELD: Duration = Duration::from_secs(60);
const NOT_ACKNOWLEDGED: &str =
    "the database was restored; nothing is deleted until an operator acknowledges it";
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

/// A step being put together.
struct Plan<'a> {
    deps: &'a Arc<Deps>,
    now: Timestamp,
    started: Instant,
    before: Working,
    after: Option<PullSecret>,
    /// The clock went back: what has happened is dated now, which is stored even if nothing else happens.
    redated: bool,
    events: Vec<Event>,
    announced: Vec<(AccountId, Call, CallToken, Permit, Flight)>,
    crowded: Vec<Place>,
    may_begin: bool,
    turn: Option<Turn>,
}

impl<'a> Plan<'a> {
    fn new(deps: &'a Arc<Deps>, before: Working, may_begin: bool) -> Self {
        let now = deps.clock.now();
        let drawn_in = before.record.as_ref().and_then(|record| record.drawn_in(now));
        Self {
            deps,
            now,
            started: Instant::now(),
            redated: drawn_in.is_some(),
            after: drawn_in.or_else(|| before.record.clone()),
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
            time_is_trusted: self.deps.replica.time_is_trusted(self.now),
            restored_at: self.deps.restored.at(),
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
        // The calls of what another replica owns are that one's.
        let replica = &self.deps.replica;
        if self.deps.activity.is_stopping() || !replica.may_work_on(self.before.ownership) {
            return;
        }
        let due: Vec<Effect> =
            effects(record, self.now).into_iter().filter(|effect| effect.due <= self.now).collect();
        for effect in due {
            if effect.call == Call::Revoke && self.deps.restored.is_latched() {
                let until = self.now.plus(HELD.min(self.deps.policy.retry.max));
                self.defer(&effect, until, NOT_ACKNOWLEDGED.to_owned());
                continue;
            }
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
        // Before anybody can see the announcement without it.
        let flight = self.deps.replica.begin_flight(token);
        // The effect was just derived from this very state, so it is wanted.
        if self.decide(&command).is_ok() {
            self.announced.push((effect.account_id, effect.call, token, permit, flight));
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
        for (account_id, call, ..) in &self.announced {
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

    /// Whoever has work keeps it, and gives it back in the commit after which there is nothing to do for a
    /// while; then whoever finds it due takes it.
    fn owner(&self, due_at: Option<Timestamp>) -> Option<ReplicaId> {
        let (replica, before) = (&self.deps.replica, self.before.ownership.owner);
        if replica.other_owner(self.before.ownership).is_some() {
            return before;
        }
        let open = |record: &PullSecret| record.accounts.iter().any(|it| it.call.is_some());
        let busy = self.after.as_ref().is_some_and(open) || !self.crowded.is_empty();
        let soon = due_at.is_some_and(|due| due <= self.now.plus(self.deps.tuning.lease));
        let keeps = before.is_some() && soon && !self.deps.activity.is_stopping();
        if busy || keeps { Some(replica.id) } else { None }
    }

    async fn commit(
        self,
        cluster_id: &ClusterId,
        secrets: Vec<(AccountId, SealedSecret)>,
        request: &Request<'_>,
    ) -> Result<Step, StepError> {
        let due_at = self.after.as_ref().and_then(|record| due_at(record, &self.deps.policy));
        let owner = self.owner(due_at);
        let Self {
            deps,
            now,
            started,
            redated,
            before,
            after,
            events,
            announced,
            crowded,
            turn,
            ..
        } = self;
        let commit = Commit {
            cluster_id,
            expected_version: before.version,
            before: before.record.as_ref(),
            after: after.as_ref(),
            gone_how: gone_how(&events),
            ownership: before.ownership,
            owner,
            due_at,
            secrets,
            audit: audit::rows(cluster_id, &before, after.as_ref(), &events, request.caller, now),
            at: now,
            outbox: Vec::new(),
            idempotency: request.answer.clone(),
            turn,
        };
        let calls = || announced.iter().map(|(_, call, ..)| call.into());
        let answered = match request.command {
            Command::Answer { answer, .. } => Some(answer.call().into()),
            _ => None,
        };
        let points = [Point::BeforeCommit, Point::BeforeOutcomeCommit];
        deps.at_commit(points, calls(), answered).await?;
        let version = deps.store.commit(commit).await?;
        let points = [Point::AfterCommit, Point::AfterOutcomeCommit];
        deps.at_commit(points, calls(), answered).await?;
        let told = before.record.as_ref();
        if redated {
            tracing::warn!(%cluster_id, "the clock went back: what has happened is dated now");
        }
        log::events(cluster_id, told, after.as_ref(), &events, request.caller);
        count::events(&deps.metrics, told, after.as_ref(), &events);
        let cause = Cause::of(request.caller, after.as_ref());
        let calls = announced
            .into_iter()
            .filter_map(|(account_id, call, token, permit, flight)| {
                let account = after.as_ref()?.account(account_id)?.clone();
                let cause = cause.clone();
                let announced_at = started;
                let call = AnnouncedCall { account, call, token, announced_at, permit, cause };
                Some((call, flight))
            })
            .collect();
        let last_generation = after
            .as_ref()
            .map_or(before.last_generation, |record| record.last_generation)
            .max(before.last_generation);
        let record = after.map(PullSecret::compact);
        let passed = before.ownership.passed_to(owner);
        let ownership = if record.is_some() { passed } else { OwnedBy::default() };
        let working = Working { record, version, last_generation, ownership };
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
