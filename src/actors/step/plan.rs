//! A step being put together: what follows from a command, which calls are announced with it, how all of it is
//! stored in one commit.
//!
//! Makes no call, and does not know that a step may be tried again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::SecretString;

use super::super::audit;
use super::super::count;
use super::super::deps::Deps;
use super::super::log::{self, Cause};
use super::super::replica::Flight;
use super::{AnnouncedCall, Place, Request, Step, StepError, Working, aad};
use crate::crypto::{SealError, secret};
use crate::failpoints::Point;
use crate::ids::{AccountId, CallToken, ClusterId, ReplicaId};
use crate::registries::lane::{NotNow, NotNowKind, Permit};
use crate::state::pull_secret::{
    Call, Command, Context, Effect, Entropy, Event, PullSecret, Rejection, RotationReason, apply,
    decide, due_at, effects,
};
use crate::store::{Commit, OwnedBy, SealedSecret, Turn, TurnRank, gone_how};
use crate::time::Timestamp;

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

/// A step being put together.
pub(super) struct Plan<'a> {
    pub(super) deps: &'a Arc<Deps>,
    pub(super) now: Timestamp,
    pub(super) started: Instant,
    pub(super) before: Working,
    pub(super) after: Option<PullSecret>,
    /// The clock went back: what has happened is dated now, which is stored even if nothing else happens.
    pub(super) redated: bool,
    pub(super) events: Vec<Event>,
    pub(super) announced: Vec<(AccountId, Call, CallToken, Permit, Flight)>,
    pub(super) crowded: Vec<Place>,
    pub(super) may_begin: bool,
    pub(super) turn: Option<Turn>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(deps: &'a Arc<Deps>, before: Working, may_begin: bool) -> Self {
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
    pub(super) fn begins(&self) -> Option<(TurnRank, u32)> {
        let rotation = self.after.as_ref()?.rotation()?;
        let began = |event: &Event| matches!(event, Event::GenerationStarted { generation, .. } if *generation == rotation.to);
        let waits_for_nobody = rotation.reason == RotationReason::Compromise;
        let begins = !waits_for_nobody && self.events.iter().any(began);
        begins.then(|| (TurnRank::of(rotation.reason), self.deps.tuning.max_rotations))
    }

    pub(super) fn waits(&self) -> Option<Turn> {
        let record = self.after.as_ref().filter(|record| record.waits_for_turn())?;
        record.rotation().map(|rotation| Turn::Wait { rank: TurnRank::of(rotation.reason) })
    }

    pub(super) fn decide(&mut self, command: &Command) -> Result<(), Rejection> {
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
    pub(super) fn announce(&mut self, waited_for: &mut Vec<(Place, Permit)>) {
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
    pub(super) async fn secrets(
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

    pub(super) async fn commit(
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
