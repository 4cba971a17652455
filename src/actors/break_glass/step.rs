//! One command, one transaction: decide, apply, announce the calls that are due, commit.
//!
//! Only when the commit has succeeded are the announced calls handed back, to be made. Knows nothing of actors, so
//! that it can be read and tested alone.

use std::sync::Arc;
use std::time::Instant;

use secrecy::SecretString;
use uuid::Uuid;

use super::audit;
use super::{count, log};
use crate::actors::audit::Caller;
use crate::actors::deps::Deps;
use crate::actors::log::Cause;
use crate::actors::replica::Flight;
use crate::crypto::{Aad, Purpose, SealError};
use crate::failpoints::Point;
use crate::ids::{CallToken, ClusterId, ReplicaId};
use crate::state::break_glass::{
    Answer, BreakGlass, Call, ClusterRules, Command, Context, Credential, Effect, Event, Policy,
    Rejection, Subject, apply, decide, due_at, effects,
};
use crate::state::shared::Entropy;
use crate::store::break_glass::{
    BreakGlassCommit, BreakGlassStore, KeyPurpose, LoadedBreakGlass, Material,
};
use crate::store::{IdempotencyAnswer, SealedSecret, StoreError};
use crate::time::Timestamp;

/// A lost race reloads and decides again, at most so often.
const MAX_RACES: usize = 16;

/// What a step works with.
pub struct Tools {
    /// What all kinds of credentials work with.
    pub deps: Arc<Deps>,
    /// Rows and transactions.
    pub store: Arc<dyn BreakGlassStore>,
    /// The configured rules of the machine.
    pub policy: Policy,
}

/// What a signer made, to be stored with the step that tells of it.
#[derive(Clone, Default)]
pub struct Delivered {
    /// Public texts.
    pub material: Vec<Material>,
    /// Private keys, to be sealed.
    pub keys: Vec<(Uuid, KeyPurpose, SecretString)>,
}

/// Makes what has to be stored before a request is first given to a signer.
pub trait Drafts: Sync {
    /// Nothing where the signer needs no draft.
    ///
    /// # Errors
    /// Why there is none, in safe words; the request waits then.
    fn draft(&self, credential: &Credential) -> Result<Delivered, String>;
}

/// What goes into a step besides the state.
pub struct Request<'a> {
    /// The command.
    pub command: &'a Command,
    /// What is configured for the cluster.
    pub rules: &'a ClusterRules,
    /// What came with an answer.
    pub delivered: &'a Delivered,
    /// Who makes drafts.
    pub drafts: &'a dyn Drafts,
    /// Who asks.
    pub caller: &'a Caller,
    /// The answer that a repetition of the request gets, committed with the step.
    pub answer: Option<&'a IdempotencyAnswer>,
}

/// A call that was announced and has to be made.
#[derive(Debug, Clone)]
pub struct AnnouncedCall {
    /// For what.
    pub subject: Subject,
    /// Which call.
    pub call: Call,
    /// Its token.
    pub token: CallToken,
    /// When it was announced, on this process's own clock.
    pub announced_at: Instant,
    /// The state that it was announced in.
    pub record: Arc<BreakGlass>,
    /// What it is made for.
    pub cause: Cause,
}

/// What a step did.
#[derive(Debug)]
pub struct Step {
    /// The state now.
    pub working: LoadedBreakGlass,
    /// What happened; empty when the command was already fulfilled.
    pub events: Vec<Event>,
    /// The calls to make. Each flight ends when the call's outcome is stored, or will never be.
    pub calls: Vec<(AnnouncedCall, Flight)>,
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
    /// A private key could not be sealed.
    #[error("a private key cannot be sealed: {0}")]
    Seal(#[from] SealError),
    /// The clusters file does not name it (any more).
    #[error("the clusters file does not name this cluster")]
    Unnamed,
}

/// Runs one command. `working` is what the caller believes to be stored; `None` loads it. A lost race decides
/// again on what is there by then.
///
/// # Errors
/// [`StepError`]; nothing was stored and nothing may be sent then.
pub async fn step(
    tools: &Tools,
    cluster_id: &ClusterId,
    mut working: Option<LoadedBreakGlass>,
    request: &Request<'_>,
) -> Result<Step, StepError> {
    let _running = tools.deps.activity.begin();
    let mut races = 0;
    loop {
        let kept = working.is_some();
        let current = match working.take() {
            Some(current) => current,
            None => tools.store.load_break_glass(cluster_id).await?,
        };
        let done = match close_calls_of_others(tools, cluster_id, current, request).await {
            Ok(current) => attempt(tools, cluster_id, current, request, kept).await,
            Err(error) => Err(error),
        };
        match done {
            Err(StepError::Store(StoreError::Conflict)) if races < MAX_RACES => races += 1,
            other => return other,
        }
    }
}

/// The owner, or whoever is about to become it, begins here: an open call that this process knows nothing of will
/// never be answered. Its end is committed alone, so that the audit says who closed it.
async fn close_calls_of_others(
    tools: &Tools,
    cluster_id: &ClusterId,
    current: LoadedBreakGlass,
    request: &Request<'_>,
) -> Result<LoadedBreakGlass, StepError> {
    let replica = &tools.deps.replica;
    let found = match &current.record {
        Some(record) if replica.may_work_on(current.ownership) => {
            replica.open_calls_of_others(record.calls())
        }
        Some(_) | None => Vec::new(),
    };
    if found.is_empty() {
        return Ok(current);
    }
    let (caller, delivered) = (Caller::service("takeover"), Delivered::default());
    let request = Request {
        command: &Command::TakeOver,
        delivered: &delivered,
        caller: &caller,
        answer: None,
        ..*request
    };
    let mut plan = Plan::new(tools, &request, current);
    for (subject, open) in found {
        let (token, answer) = (open.token, Answer::died(open.call));
        // Refused where it was closed along with the one before.
        let _ = plan.decide(&Command::Answer { subject, token, answer });
    }
    Ok(plan.commit(cluster_id, Vec::new(), Vec::new()).await?.working)
}

async fn attempt(
    tools: &Tools,
    cluster_id: &ClusterId,
    before: LoadedBreakGlass,
    request: &Request<'_>,
    kept: bool,
) -> Result<Step, StepError> {
    let mut plan = Plan::new(tools, request, before);
    let decided = plan.decide(request.command);
    let (mut material, mut keys) = (plan.material(), plan.delivered()?);
    if decided.is_ok() {
        plan.announce(&mut material, &mut keys).await?;
    }
    // A commit is guarded by its version; a word without a commit is not.
    if kept && plan.events.is_empty() && is_stale(tools, cluster_id, &plan.before).await? {
        return Err(StoreError::Conflict.into());
    }
    if let Err(rejection) = decided {
        log::refused(cluster_id, request.command, &rejection, request.caller);
        return Err(rejection.into());
    }
    plan.commit(cluster_id, material, keys).await
}

/// Whether another replica has written since: what was decided without a commit has to be decided again.
async fn is_stale(
    tools: &Tools,
    cluster_id: &ClusterId,
    seen: &LoadedBreakGlass,
) -> Result<bool, StoreError> {
    let stored = tools.store.break_glass_version(cluster_id).await?;
    Ok(stored != seen.record.as_ref().map(|_| seen.version))
}

type SealedKey = (Uuid, KeyPurpose, SealedSecret);

/// A step being put together.
struct Plan<'a> {
    tools: &'a Tools,
    request: &'a Request<'a>,
    now: Timestamp,
    started: Instant,
    before: LoadedBreakGlass,
    after: Option<BreakGlass>,
    /// The clock went back: what has happened is dated now, which is stored even if nothing else happens.
    redated: bool,
    events: Vec<Event>,
    announced: Vec<(Subject, Call, CallToken, Flight)>,
}

impl<'a> Plan<'a> {
    fn new(tools: &'a Tools, request: &'a Request<'a>, before: LoadedBreakGlass) -> Self {
        let now = tools.deps.clock.now();
        let drawn_in = before.record.as_ref().and_then(|record| record.drawn_in(now));
        Self {
            tools,
            request,
            now,
            started: Instant::now(),
            redated: drawn_in.is_some(),
            after: drawn_in.or_else(|| before.record.clone()),
            before,
            events: Vec::new(),
            announced: Vec::new(),
        }
    }

    fn decide(&mut self, command: &Command) -> Result<(), Rejection> {
        let context = Context {
            now: self.now,
            policy: &self.tools.policy,
            rules: self.request.rules,
            entropy: Entropy::from_seed(rand::random()),
            time_is_certain: self.tools.deps.replica.time_is_trusted(self.now),
        };
        for event in decide(self.after.as_ref(), command, &context)? {
            self.after = apply(self.after.take(), &event);
            self.events.push(event);
        }
        Ok(())
    }

    /// Whether the machine took what this owner was made. What nobody waits for any more is not stored.
    fn took(&self, owner: Uuid) -> bool {
        self.events.iter().any(|event| match event {
            Event::CertificateSigned { credential_id, .. } => credential_id.0 == owner,
            Event::AuthorityMade { authority_id, .. } => authority_id.0 == owner,
            _ => false,
        })
    }

    fn material(&self) -> Vec<Material> {
        let all = self.request.delivered.material.iter();
        all.filter(|one| self.took(one.owner)).cloned().collect()
    }

    fn delivered(&self) -> Result<Vec<SealedKey>, SealError> {
        let all = self.request.delivered.keys.iter();
        let taken = all.filter(|(owner, _, _)| self.took(*owner));
        taken.map(|(owner, purpose, key)| self.seal(*owner, *purpose, key)).collect()
    }

    fn seal(
        &self,
        owner: Uuid,
        purpose: KeyPurpose,
        key: &SecretString,
    ) -> Result<SealedKey, SealError> {
        let sealed = self.tools.deps.keyring.get().seal_secret(&aad(owner, purpose), key)?;
        let key_id = sealed.key_id().to_owned();
        Ok((owner, purpose, SealedSecret { key_id, bytes: sealed.into_bytes() }))
    }

    /// Announces what is due. A request that is given to its signer for the first time is drafted now, and the
    /// draft is stored with the announcement: every repetition gives the same one.
    async fn announce(
        &mut self,
        material: &mut Vec<Material>,
        keys: &mut Vec<SealedKey>,
    ) -> Result<(), StepError> {
        let Some(record) = &self.after else { return Ok(()) };
        // The calls of what another replica owns are that one's.
        let deps = &self.tools.deps;
        if deps.activity.is_stopping() || !deps.replica.may_work_on(self.before.ownership) {
            return Ok(());
        }
        let due = effects(record, self.now).into_iter().filter(|effect| effect.due <= self.now);
        for effect in due.collect::<Vec<_>>() {
            match self.draft(&effect).await? {
                Ok(draft) => {
                    for (owner, purpose, key) in &draft.keys {
                        keys.push(self.seal(*owner, *purpose, key)?);
                    }
                    material.extend(draft.material);
                    self.announce_one(&effect);
                }
                Err(reason) => self.defer(&effect, reason),
            }
        }
        Ok(())
    }

    async fn draft(&self, effect: &Effect) -> Result<Result<Delivered, String>, StoreError> {
        let (Call::Submit, Subject::Credential(id)) = (effect.call, effect.subject) else {
            return Ok(Ok(Delivered::default()));
        };
        let credential = self.after.as_ref().and_then(|record| record.credential(id));
        let drafted = !self.tools.store.certificates(id.0).await?.is_empty();
        Ok(match credential.filter(|_| !drafted) {
            Some(credential) => self.request.drafts.draft(credential),
            None => Ok(Delivered::default()),
        })
    }

    fn announce_one(&mut self, effect: &Effect) {
        let token = CallToken(Entropy::from_seed(rand::random()).uuid(self.now));
        let (subject, call) = (effect.subject, effect.call);
        // Before anybody can see the announcement without it.
        let flight = self.tools.deps.replica.begin_flight(token);
        // The effect was just derived from this very state, so it is wanted.
        if self.decide(&Command::Announce { subject, call, token }).is_ok() {
            self.announced.push((subject, call, token, flight));
        }
    }

    fn defer(&mut self, effect: &Effect, reason: String) {
        let until = self.now.plus(self.tools.policy.retry.initial);
        // Wanted as above.
        let _ = self.decide(&Command::Defer { subject: effect.subject, until, reason });
    }

    /// Whoever has work keeps it, and gives it back in the commit after which there is nothing to do for a
    /// while; then whoever finds it due takes it.
    fn owner(&self, due_at: Option<Timestamp>) -> Option<ReplicaId> {
        let (deps, before) = (&self.tools.deps, self.before.ownership.owner);
        if deps.replica.other_owner(self.before.ownership).is_some() {
            return before;
        }
        let busy = self.after.as_ref().is_some_and(|record| record.calls().next().is_some());
        let soon = due_at.is_some_and(|due| due <= self.now.plus(deps.tuning.lease));
        let keeps = before.is_some() && soon && !deps.activity.is_stopping();
        if busy || keeps { Some(deps.replica.id) } else { None }
    }

    async fn commit(
        self,
        cluster_id: &ClusterId,
        material: Vec<Material>,
        keys: Vec<SealedKey>,
    ) -> Result<Step, StepError> {
        let (tools, rules) = (self.tools, self.request.rules);
        let due_at = self.after.as_ref().and_then(|it| due_at(it, &tools.policy, rules));
        let owner = self.owner(due_at);
        let Self { request, now, started, before, after, redated, events, announced, .. } = self;
        let deps = &tools.deps;
        let Some(after) = after.filter(|_| redated || !events.is_empty()) else {
            if let Some(answer) = request.answer {
                deps.store.answer_idempotent(answer).await?;
            }
            return Ok(Step { working: before, events, calls: Vec::new() });
        };
        let told = before.record.as_ref();
        let commit = BreakGlassCommit {
            ownership: before.ownership,
            owner,
            due_at,
            material,
            keys,
            audit: audit::rows(told, &after, &events, request.caller, now),
            idempotency: request.answer.cloned(),
            ..BreakGlassCommit::new(cluster_id, before.version, told, &after, now)
        };
        let names = || announced.iter().map(|(_, call, ..)| call.into());
        let answered = match request.command {
            Command::Answer { answer, .. } => Some(answer.call().into()),
            _ => None,
        };
        let points = [Point::BeforeCommit, Point::BeforeOutcomeCommit];
        deps.at_commit(points, names(), answered).await?;
        let version = tools.store.commit_break_glass(commit).await?;
        let points = [Point::AfterCommit, Point::AfterOutcomeCommit];
        deps.at_commit(points, names(), answered).await?;
        if redated {
            tracing::warn!(%cluster_id, "the clock went back: what has happened is dated now");
        }
        log::events(cluster_id, told, &after, &events, request.caller);
        count::events(&deps.metrics, told, &after, &events);
        let (record, cause) = (Arc::new(after.clone()), Cause::of(request.caller, None));
        let call = |(subject, call, token, flight)| {
            let (record, cause, announced_at) = (record.clone(), cause.clone(), started);
            (AnnouncedCall { subject, call, token, announced_at, record, cause }, flight)
        };
        let calls = announced.into_iter().map(call).collect();
        let ownership = before.ownership.passed_to(owner);
        let working = LoadedBreakGlass { record: Some(after.compact()), version, ownership };
        Ok(Step { working, events, calls })
    }
}

/// What a private key is sealed for.
#[must_use]
pub const fn aad(owner: Uuid, purpose: KeyPurpose) -> Aad {
    match purpose {
        KeyPurpose::Credential => Aad::new(Purpose::BreakGlassCredential, owner),
        KeyPurpose::Probe => Aad::new(Purpose::BreakGlassProbe, owner),
    }
}

#[cfg(test)]
mod tests;
