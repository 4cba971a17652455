//! One announced call to a registry, and what its outcome means in the machine's words.
//!
//! A panic in a registry's code and a call that outlives its time become ordinary outcomes here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::FutureExt;
use secrecy::SecretString;
use tracing::Instrument;

use super::deps::{ConfiguredRegistry, Deps};
use super::log::{self, Cause};
use super::step::{AnnouncedCall, aad};
use crate::failpoints::Point;
use crate::ids::{AccountId, CallToken, ClusterId};
use crate::registries::lane::{BreakerState, Lane, Permit};
use crate::registries::{
    CallContext, CreateIntent, CreateOutcome, Fence, LookupOutcome, Marker, Ownership as Found,
    RevokeOutcome, Trouble, TroubleKind, VerifyOutcome,
};
use crate::state::pull_secret::{
    Account, AccountPhase, Answer, Call, CreateAnswer, Failure, LookupAnswer, Ownership,
    RevokeAnswer, VerifyAnswer,
};
use crate::store::Store;

/// The outcome of a call, to be told to the machine.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Of which account.
    pub account_id: AccountId,
    /// The token it was announced with.
    pub token: CallToken,
    /// What it said.
    pub answer: Answer,
    /// A secret that came with it and is not stored yet.
    pub secret: Option<SecretString>,
    /// What it was made for.
    pub cause: Cause,
}

/// Asks the database whether the announcement is still current.
struct StoredFence {
    store: Arc<dyn Store>,
    account_id: AccountId,
    token: CallToken,
    deletes: bool,
}

#[async_trait]
impl Fence for StoredFence {
    async fn is_current(&self) -> bool {
        // Not knowing is no reason to act.
        let current = self.store.is_current(self.account_id, self.token).await.unwrap_or(false);
        current && !(self.deletes && self.is_held().await)
    }
}

impl StoredFence {
    /// After a restore nothing is deleted until it is acknowledged, whatever was announced before.
    async fn is_held(&self) -> bool {
        match self.store.restored().await {
            Ok(restored) => restored.is_some_and(|restored| restored.is_latched()),
            Err(_) => true,
        }
    }
}

/// Makes the call. Never panics, never lasts longer than the registry's timeout.
pub async fn make(deps: Arc<Deps>, cluster_id: ClusterId, announced: AnnouncedCall) -> Finished {
    let AnnouncedCall { account, call, token, announced_at, permit, cause } = announced;
    let deps = &deps;
    let account_id = account.id;
    let Some(configured) = deps.registries.get(&account.registry_id) else {
        let answer = Answer::lost(call, "the registry is not configured any more");
        return Finished { account_id, token, answer, secret: None, cause };
    };
    let context = CallContext {
        deadline: announced_at + configured.timeout,
        fence: Arc::new(StoredFence {
            store: deps.store.clone(),
            account_id,
            token,
            deletes: call == Call::Revoke,
        }),
    };
    let lane = configured.lane_for(account.phase == AccountPhase::Residue);
    let left = context.deadline.saturating_duration_since(Instant::now());
    // The process may have stood still since the announcement, or not know any more whether it is the owner.
    let may_send = !left.is_zero() && deps.replica.is_live();
    let work =
        Work { deps, configured, lane: &lane, account: &account, cluster_id: &cluster_id, context };
    let began = Instant::now();
    let run = work.run(call, permit, may_send).instrument(log::span(&cluster_id, &cause));
    let left = if may_send { left } else { configured.timeout };
    let caught = AssertUnwindSafe(tokio::time::timeout(left, run));
    let (answer, secret) = match caught.catch_unwind().await {
        Ok(Ok(done)) => done,
        Ok(Err(_elapsed)) => {
            // The permit went down unreported with its future; a call that is not answered says as much about
            // the registry as one that is answered with an error.
            let trouble = Trouble::timeout();
            lane.trouble(trouble.clone());
            (trouble_answer(call, &trouble, &lane), None)
        }
        Err(_panic) => {
            deps.metrics.panic("call");
            (Answer::lost(call, "the call ended by a fault of this service"), None)
        }
    };
    let (registry, took) = (account.registry_id.as_str(), began.elapsed());
    deps.metrics.effect(registry, call.into(), outcome_word(&answer), took);
    let finished = Finished { account_id, token, answer, secret, cause };
    log::call_ended(&cluster_id, &account, &finished, took);
    finished
}

struct Work<'a> {
    deps: &'a Arc<Deps>,
    configured: &'a ConfiguredRegistry,
    lane: &'a Lane,
    account: &'a Account,
    cluster_id: &'a ClusterId,
    context: CallContext,
}

type Done = (Answer, Option<SecretString>);

impl Work<'_> {
    async fn run(&self, call: Call, permit: Permit, may_send: bool) -> Done {
        if !may_send {
            let trouble = Trouble::new(TroubleKind::NotCurrent, "it was too late to send it");
            return (self.not_sent(call, &trouble), None);
        }
        if self.deps.at(Point::BeforeCall, Some(call.into())).await.is_err() {
            let trouble =
                Trouble::new(TroubleKind::Connect, "a failure point keeps it from being sent");
            return (self.not_sent(call, &trouble), None);
        }
        let done = match call {
            Call::Create => self.create(permit).await,
            Call::Lookup => self.lookup(permit).await,
            Call::Verify => (self.verify(permit).await, None),
            Call::Revoke => (self.revoke(permit).await, None),
        };
        if self.deps.at(Point::AfterCall, Some(call.into())).await.is_err() {
            let trouble = Trouble::new(TroubleKind::Timeout, "a failure point loses the answer");
            return (trouble_answer(call, &trouble, self.lane), None);
        }
        done
    }

    fn not_sent(&self, call: Call, trouble: &Trouble) -> Answer {
        match call {
            Call::Create => Answer::Create(CreateAnswer::NotApplied(self.failure(trouble))),
            Call::Lookup | Call::Verify | Call::Revoke => trouble_answer(call, trouble, self.lane),
        }
    }

    fn marker(&self) -> Marker {
        Marker {
            installation: self.deps.installation.clone(),
            cluster_id: Some(self.cluster_id.clone()),
            generation: self.account.born_generation,
        }
    }

    async fn create(&self, permit: Permit) -> Done {
        let own_secret = self.configured.registry.capabilities().own_secret;
        let secret = match self.stored_secret().await {
            Ok(secret) => secret,
            Err(failure) => return (Answer::Create(CreateAnswer::NotApplied(failure)), None),
        };
        let secret = secret.filter(|_| own_secret);
        let intent =
            CreateIntent { name: self.account.name.clone(), marker: self.marker(), secret };
        let outcome = self.configured.registry.create(&self.context, &intent).await;
        permit.report(&outcome);
        let (answer, secret) = match outcome {
            CreateOutcome::Created { remote_id, username, secret } => {
                (CreateAnswer::Created { remote_id, username }, secret)
            }
            CreateOutcome::AlreadyExists => (CreateAnswer::AlreadyExists, None),
            CreateOutcome::Refused(reason) => (CreateAnswer::Refused(reason), None),
            CreateOutcome::Unavailable(trouble) => {
                (CreateAnswer::NotApplied(self.failure(&trouble)), None)
            }
            CreateOutcome::Unknown(trouble) => {
                (CreateAnswer::Unknown(self.failure(&trouble)), None)
            }
        };
        (Answer::Create(answer), secret)
    }

    async fn lookup(&self, permit: Permit) -> Done {
        let stored = match self.stored_secret().await {
            Ok(stored) => stored,
            Err(failure) => return (Answer::Lookup(LookupAnswer::Failed(failure)), None),
        };
        let outcome = self
            .configured
            .registry
            .lookup(&self.context, &self.account.name, &self.marker())
            .await;
        permit.report(&outcome);
        let (answer, secret) = match outcome {
            LookupOutcome::Absent => (LookupAnswer::Absent, None),
            LookupOutcome::Present { remote_id, username, secret, ownership } => {
                let ownership = match ownership {
                    Found::ThisIntent => Ownership::ThisIntent,
                    Found::Foreign => Ownership::Foreign,
                    Found::NoMarker => Ownership::NoMarker,
                };
                let adoptable = secret.is_some() || stored.is_some();
                (LookupAnswer::Present { remote_id, username, ownership, adoptable }, secret)
            }
            LookupOutcome::Unavailable(trouble) => {
                (LookupAnswer::Failed(self.failure(&trouble)), None)
            }
        };
        (Answer::Lookup(answer), secret)
    }

    async fn verify(&self, permit: Permit) -> Answer {
        let secret = match self.stored_secret().await {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                let failure = own_fault("the account's secret is missing from the database");
                return Answer::Verify(VerifyAnswer::Failed(failure));
            }
            Err(failure) => return Answer::Verify(VerifyAnswer::Failed(failure)),
        };
        let username = self.account.username.as_deref().unwrap_or(self.account.name.as_str());
        let outcome = self.configured.registry.verify(&self.context, username, &secret).await;
        permit.report(&outcome);
        Answer::Verify(match outcome {
            VerifyOutcome::Valid { can_pull: true } => VerifyAnswer::Valid,
            VerifyOutcome::Valid { can_pull: false } => VerifyAnswer::CannotPull,
            VerifyOutcome::Invalid => VerifyAnswer::Invalid,
            VerifyOutcome::Unavailable(trouble) => VerifyAnswer::Failed(self.failure(&trouble)),
        })
    }

    async fn revoke(&self, permit: Permit) -> Answer {
        let remote_id = self.account.remote_id.as_deref();
        let outcome =
            self.configured.registry.revoke(&self.context, &self.account.name, remote_id).await;
        permit.report(&outcome);
        Answer::Revoke(match outcome {
            RevokeOutcome::Done => RevokeAnswer::Done,
            RevokeOutcome::AlreadyGone => RevokeAnswer::AlreadyGone,
            RevokeOutcome::Refused(reason) => RevokeAnswer::Refused(reason),
            RevokeOutcome::Unavailable(trouble) | RevokeOutcome::Unknown(trouble) => {
                RevokeAnswer::Failed(self.failure(&trouble))
            }
        })
    }

    /// The secret that is stored for this account, opened; none before one was stored.
    async fn stored_secret(&self) -> Result<Option<SecretString>, Failure> {
        let stored = self.deps.store.secret(self.account.id).await;
        let sealed = stored.map_err(|_| own_fault("the database does not answer"))?;
        let Some(sealed) = sealed else { return Ok(None) };
        let opened = self.deps.keyring.get().open_secret(&aad(self.account.id), &sealed.bytes);
        opened.map(Some).map_err(|error| own_fault(&format!("a stored secret: {error}")))
    }

    fn failure(&self, trouble: &Trouble) -> Failure {
        failure(trouble, self.lane)
    }
}

/// Trouble on our side is nobody's attempt.
fn own_fault(message: &str) -> Failure {
    Failure { message: message.to_owned(), retry_after: None, blocked: true }
}

/// Whose fault is it? `DESIGN` section 3: our own credential refused, `429`, no connection, or a breaker
/// that is open block the registry; lasting trouble of one account at a registry that serves others counts.
fn failure(trouble: &Trouble, lane: &Lane) -> Failure {
    let blocked = trouble.kind.blocks() || lane.status().breaker != BreakerState::Closed;
    let retry_after = trouble.pause();
    Failure { message: trouble.message.clone(), retry_after, blocked }
}

fn trouble_answer(call: Call, trouble: &Trouble, lane: &Lane) -> Answer {
    let failure = failure(trouble, lane);
    match call {
        Call::Create => Answer::Create(CreateAnswer::Unknown(failure)),
        Call::Lookup => Answer::Lookup(LookupAnswer::Failed(failure)),
        Call::Verify => Answer::Verify(VerifyAnswer::Failed(failure)),
        Call::Revoke => Answer::Revoke(RevokeAnswer::Failed(failure)),
    }
}

/// The answer's word in metrics, logs and the audit.
#[must_use]
pub const fn outcome_word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Create(CreateAnswer::Created { .. }) => "created",
        Answer::Create(CreateAnswer::AlreadyExists) => "exists",
        Answer::Create(CreateAnswer::Refused(_)) | Answer::Revoke(RevokeAnswer::Refused(_)) => {
            "refused"
        }
        Answer::Create(CreateAnswer::NotApplied(_)) => "not_applied",
        Answer::Create(CreateAnswer::Unknown(_)) => "unknown",
        Answer::Lookup(LookupAnswer::Absent) => "absent",
        Answer::Lookup(LookupAnswer::Present { .. }) => "present",
        Answer::Verify(VerifyAnswer::Valid) => "valid",
        Answer::Verify(VerifyAnswer::CannotPull) => "cannot_pull",
        Answer::Verify(VerifyAnswer::Invalid) => "invalid",
        Answer::Revoke(RevokeAnswer::Done) => "deleted",
        Answer::Revoke(RevokeAnswer::AlreadyGone) => "already_gone",
        Answer::Lookup(LookupAnswer::Failed(_))
        | Answer::Verify(VerifyAnswer::Failed(_))
        | Answer::Revoke(RevokeAnswer::Failed(_)) => "failed",
    }
}

/// What went wrong, in plain words.
#[must_use]
pub fn error_of(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Create(CreateAnswer::NotApplied(failure) | CreateAnswer::Unknown(failure))
        | Answer::Lookup(LookupAnswer::Failed(failure))
        | Answer::Verify(VerifyAnswer::Failed(failure))
        | Answer::Revoke(RevokeAnswer::Failed(failure)) => Some(&failure.message),
        Answer::Create(CreateAnswer::Refused(reason))
        | Answer::Revoke(RevokeAnswer::Refused(reason)) => Some(reason),
        Answer::Create(CreateAnswer::Created { .. } | CreateAnswer::AlreadyExists)
        | Answer::Lookup(LookupAnswer::Absent | LookupAnswer::Present { .. })
        | Answer::Verify(VerifyAnswer::Valid | VerifyAnswer::CannotPull | VerifyAnswer::Invalid)
        | Answer::Revoke(RevokeAnswer::Done | RevokeAnswer::AlreadyGone) => None,
    }
}
