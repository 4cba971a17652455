//! One command, one transaction: decide, apply, announce the calls that are due, commit.
//!
//! Only when the commit has succeeded are the announced calls handed back, to be made. Whatever stands between
//! two commands is loaded: nothing is remembered here.

use std::sync::Arc;
use std::time::Instant;

use secrecy::SecretString;
use uuid::Uuid;

use super::audit;
use crate::actors::audit::Caller;
use crate::crypto::{Aad, Purpose, SealError, SharedKeyring};
use crate::ids::{CallToken, ClusterId};
use crate::state::break_glass::{
    BreakGlass, Call, ClusterRules, Command, Context, Credential, Effect, Event, Policy, Rejection,
    Subject, apply, decide, due_at, effects,
};
use crate::state::shared::Entropy;
use crate::store::break_glass::{
    BreakGlassCommit, BreakGlassStore, KeyPurpose, LoadedBreakGlass, Material,
};
use crate::store::{IdempotencyAnswer, SealedSecret, StoreError};
use crate::time::{Clock, Timestamp};

/// A lost race reloads and decides again, at most so often.
const MAX_RACES: usize = 16;

/// What a step works with.
pub struct Tools {
    /// Rows and transactions.
    pub store: Arc<dyn BreakGlassStore>,
    /// Keys of sealed values.
    pub keyring: Arc<SharedKeyring>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The configured rules of the machine.
    pub policy: Policy,
}

/// What a signer made, to be stored with the step that tells of it.
#[derive(Default)]
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
    /// Whether calls may be announced now: not while the process stops.
    pub may_begin: bool,
    /// Whether the wall clock is to be believed.
    pub time_is_certain: bool,
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
}

/// What a step did.
#[derive(Debug)]
pub struct Step {
    /// The state now.
    pub working: LoadedBreakGlass,
    /// What happened; empty when the command was already fulfilled. Nothing was committed then, so the answer
    /// to a repetition is still to be stored.
    pub events: Vec<Event>,
    /// The calls to make.
    pub calls: Vec<AnnouncedCall>,
    /// When the state wants to be looked at again.
    pub due_at: Option<Timestamp>,
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
}

/// Runs one command. A lost race decides again on what is there by then.
///
/// # Errors
/// [`StepError`]; nothing was stored and nothing may be sent then.
pub async fn step(
    tools: &Tools,
    cluster_id: &ClusterId,
    request: &Request<'_>,
) -> Result<Step, StepError> {
    let mut races = 0;
    loop {
        let before = tools.store.load_break_glass(cluster_id).await?;
        match attempt(tools, cluster_id, before, request).await {
            Err(StepError::Store(StoreError::Conflict)) if races < MAX_RACES => races += 1,
            other => return other,
        }
    }
}

async fn attempt(
    tools: &Tools,
    cluster_id: &ClusterId,
    before: LoadedBreakGlass,
    request: &Request<'_>,
) -> Result<Step, StepError> {
    let mut plan = Plan::new(tools, request, before);
    plan.decide(request.command)?;
    let mut keys = plan.delivered()?;
    let mut material = plan.material();
    plan.announce(&mut material, &mut keys).await?;
    plan.commit(cluster_id, material, keys).await
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
    events: Vec<Event>,
    announced: Vec<(Subject, Call, CallToken)>,
}

impl<'a> Plan<'a> {
    fn new(tools: &'a Tools, request: &'a Request<'a>, before: LoadedBreakGlass) -> Self {
        Self {
            tools,
            request,
            now: tools.clock.now(),
            started: Instant::now(),
            after: before.record.clone(),
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
            time_is_certain: self.request.time_is_certain,
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
        let sealed = self.tools.keyring.get().seal_secret(&aad(owner, purpose), key)?;
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
        if !self.request.may_begin {
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
        // The effect was just derived from this very state, so it is wanted.
        if self.decide(&Command::Announce { subject, call, token }).is_ok() {
            self.announced.push((subject, call, token));
        }
    }

    fn defer(&mut self, effect: &Effect, reason: String) {
        let until = self.now.plus(self.tools.policy.retry.initial);
        // Wanted as above.
        let _ = self.decide(&Command::Defer { subject: effect.subject, until, reason });
    }

    async fn commit(
        self,
        cluster_id: &ClusterId,
        material: Vec<Material>,
        keys: Vec<SealedKey>,
    ) -> Result<Step, StepError> {
        let Self { tools, request, now, started, before, after, events, announced } = self;
        let due_at = after.as_ref().and_then(|record| due_at(record, &tools.policy, request.rules));
        let Some(after) = after.filter(|_| !events.is_empty()) else {
            return Ok(Step { working: before, events, calls: Vec::new(), due_at });
        };
        let told = before.record.as_ref();
        let commit = BreakGlassCommit {
            due_at,
            material,
            keys,
            audit: audit::rows(told, &after, &events, request.caller, now),
            idempotency: request.answer.cloned(),
            ..BreakGlassCommit::new(cluster_id, before.version, told, &after, now)
        };
        let version = tools.store.commit_break_glass(commit).await?;
        let record = Arc::new(after.clone());
        let call = |(subject, call, token)| AnnouncedCall {
            subject,
            call,
            token,
            announced_at: started,
            record: record.clone(),
        };
        let calls = announced.into_iter().map(call).collect();
        let working = LoadedBreakGlass { record: Some(after.compact()), version };
        Ok(Step { working, events, calls, due_at })
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
