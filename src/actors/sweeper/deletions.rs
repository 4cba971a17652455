//! The deletions that were decided. Each call is announced in a commit of its own before it is sent, its
//! outcome is stored once, and whatever was open when a process died counts as lost after a while.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::json;

use super::super::audit::Caller;
use super::super::deps::{ConfiguredRegistry, Deps};
use super::told;
use crate::failpoints::Point;
use crate::ids::{AccountName, CallToken, RegistryId};
use crate::registries::lane::Permit;
use crate::registries::{CallContext, Fence, RevokeOutcome, Trouble, TroubleKind};
use crate::state::pull_secret::{Call, Entropy};
use crate::store::{
    AuditRow, Deletion, DeletionAnswer, DeletionCall, Store, StoreError, UnknownAccount,
};

/// So many are begun per look at a registry; its lane is the real limit.
const BATCH: u32 = 20;
/// What a registry refuses to delete is tried again so often.
const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Goes on with what is due at this registry: closes lost calls, makes new ones.
pub(super) async fn go_on(deps: &Arc<Deps>, registry_id: &RegistryId) -> Result<(), StoreError> {
    let Some(configured) = deps.registries.get(registry_id) else { return Ok(()) };
    let due = deps.store.due_deletions(registry_id, deps.clock.now(), BATCH).await?;
    for unknown in due {
        let Some(deletion) = unknown.deletion.clone() else { continue };
        if let Some((token, at)) = deletion.call {
            close_lost(deps, &unknown, &deletion, token, at).await?;
            continue;
        }
        let replica = &deps.replica;
        let alive = replica.is_live() && deps.time_is_trusted() && !deps.activity.is_stopping();
        if deps.restored.is_latched() || !alive {
            return Ok(());
        }
        // The lane is full, the rate used up or the breaker open: the row stays due.
        let Ok(permit) = configured.lane.try_permit() else { return Ok(()) };
        begin(deps, configured, unknown, &deletion, permit).await?;
    }
    Ok(())
}

/// Nobody will answer it any more.
async fn close_lost(
    deps: &Deps,
    unknown: &UnknownAccount,
    deletion: &Deletion,
    token: CallToken,
    at: crate::time::Timestamp,
) -> Result<(), StoreError> {
    let now = deps.clock.now();
    let call = DeletionCall {
        registry_id: unknown.registry_id.clone(),
        name: unknown.name.clone(),
        token,
        at,
        lost_at: deletion.next_attempt_at,
    };
    let error = "the call was not answered in time".to_owned();
    let answer = DeletionAnswer::Again { at: now, error };
    let row = answered(unknown, token, "call_lost", now);
    deps.store.answer_deletion(&call, &answer, &row).await.map(drop)
}

async fn begin(
    deps: &Arc<Deps>,
    configured: &ConfiguredRegistry,
    unknown: UnknownAccount,
    deletion: &Deletion,
    permit: Permit,
) -> Result<(), StoreError> {
    let Ok(name) = unknown.name.parse::<AccountName>() else { return Ok(()) };
    let announced_at = Instant::now();
    let now = deps.clock.now();
    let call = DeletionCall {
        registry_id: unknown.registry_id.clone(),
        name: unknown.name.clone(),
        token: CallToken(Entropy::from_seed(rand::random()).uuid(now)),
        at: now,
        lost_at: now.plus(deps.policy.call_lost_after(&unknown.registry_id)),
    };
    let detail = json!({ "call": Call::Revoke.as_ref(), "token": call.token });
    let caller = Caller::service("sweeper");
    let row = told::row(&unknown, "call_announced", detail, &caller, now);
    stopped(deps.at(Point::BeforeCommit, Some(Call::Revoke.into())).await)?;
    if !deps.store.announce_deletion(&call, &row).await? {
        let registry = unknown.registry_id.as_str();
        tracing::info!(
            registry,
            account = unknown.name,
            "a deletion is not sent: it is wanted after all"
        );
        return Ok(());
    }
    stopped(deps.at(Point::AfterCommit, Some(Call::Revoke.into())).await)?;
    let made = Made {
        deps: deps.clone(),
        deadline: announced_at + configured.timeout,
        attempts: deletion.attempts + 1,
        unknown,
        name,
        call,
    };
    let running = deps.activity.begin();
    actix_rt::spawn(async move {
        let _running = running;
        made.run(permit).await;
    });
    Ok(())
}

fn stopped(injected: Result<(), crate::failpoints::Injected>) -> Result<(), StoreError> {
    use crate::store::Unavailable;
    injected.map_err(|injected| StoreError::Unavailable {
        reason: Unavailable::Other,
        detail: injected.to_string(),
    })
}

/// Asks the database whether the announcement is current and nothing forbids it by now.
struct StoredFence {
    store: Arc<dyn Store>,
    registry_id: RegistryId,
    name: String,
    token: CallToken,
}

#[async_trait]
impl Fence for StoredFence {
    async fn is_current(&self) -> bool {
        // Not knowing is no reason to act.
        let current = self.store.is_deletion_current(&self.registry_id, &self.name, self.token);
        current.await.unwrap_or(false)
    }
}

/// A call that was announced.
struct Made {
    deps: Arc<Deps>,
    deadline: Instant,
    attempts: u32,
    unknown: UnknownAccount,
    name: AccountName,
    call: DeletionCall,
}

impl Made {
    async fn run(&self, permit: Permit) {
        let began = Instant::now();
        let outcome = self.send(permit).await;
        let now = self.deps.clock.now();
        let registry = self.call.registry_id.as_str();
        let (word, answer) = self.answer(&outcome, now);
        self.deps.metrics.effect(registry, "revoke", word.call, began.elapsed());
        self.deps.metrics.sweep_deletion(registry, word.call);
        told::deletion_ended(&self.unknown, &self.call, word.call, &answer, began.elapsed());
        let row = answered(&self.unknown, self.call.token, word.audit, now);
        let _ = self.deps.at(Point::BeforeOutcomeCommit, Some(Call::Revoke.into())).await;
        match self.deps.store.answer_deletion(&self.call, &answer, &row).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(registry, account = self.call.name, "a late outcome was dropped")
            }
            // It counts as lost after a while, and deleting again is harmless.
            Err(error) => tracing::warn!(registry, %error, "an outcome was not stored"),
        }
        let _ = self.deps.at(Point::AfterOutcomeCommit, Some(Call::Revoke.into())).await;
    }

    /// Never panics, never lasts longer than the registry's timeout.
    async fn send(&self, permit: Permit) -> RevokeOutcome {
        let Some(configured) = self.deps.registries.get(&self.call.registry_id) else {
            return RevokeOutcome::Unavailable(Trouble::timeout());
        };
        let fence = StoredFence {
            store: self.deps.store.clone(),
            registry_id: self.call.registry_id.clone(),
            name: self.call.name.clone(),
            token: self.call.token,
        };
        let context = CallContext { deadline: self.deadline, fence: Arc::new(fence) };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let remote_id = self.unknown.remote_id.as_deref();
        let work = async {
            if self.deps.at(Point::BeforeCall, Some(Call::Revoke.into())).await.is_err() {
                return RevokeOutcome::Unavailable(Trouble::new(
                    TroubleKind::Connect,
                    "a failure point keeps it from being sent",
                ));
            }
            let outcome = configured.registry.revoke(&context, &self.name, remote_id).await;
            let _ = self.deps.at(Point::AfterCall, Some(Call::Revoke.into())).await;
            outcome
        };
        let caught = AssertUnwindSafe(tokio::time::timeout(left, work)).catch_unwind().await;
        let outcome = match caught {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_elapsed)) => RevokeOutcome::Unknown(Trouble::timeout()),
            Err(_panic) => {
                self.deps.metrics.panic("call");
                let words = "the call ended by a fault of this service";
                RevokeOutcome::Unknown(Trouble::new(TroubleKind::NotCurrent, words))
            }
        };
        permit.report(&outcome);
        outcome
    }

    fn answer(
        &self,
        outcome: &RevokeOutcome,
        now: crate::time::Timestamp,
    ) -> (Words, DeletionAnswer) {
        let again = |trouble: &Trouble| {
            let mut entropy = Entropy::from_seed(rand::random());
            let pause = self.deps.policy.retry.delay(self.attempts, &mut entropy);
            let pause =
                trouble.retry_after.map_or(pause, |wish| wish.clamp(pause, DAILY.max(pause)));
            DeletionAnswer::Again { at: now.plus(pause), error: trouble.message.clone() }
        };
        match outcome {
            RevokeOutcome::Done => (Words::of("deleted", "account_gone"), DeletionAnswer::Gone),
            RevokeOutcome::AlreadyGone => {
                (Words::of("already_gone", "account_gone"), DeletionAnswer::Gone)
            }
            RevokeOutcome::Refused(reason) => {
                let answer = DeletionAnswer::Again { at: now.plus(DAILY), error: reason.clone() };
                (Words::of("refused", "account_residue"), answer)
            }
            RevokeOutcome::Unavailable(trouble) => {
                (Words::of("failed", "call_failed"), again(trouble))
            }
            RevokeOutcome::Unknown(trouble) => (Words::of("failed", "call_lost"), again(trouble)),
        }
    }
}

/// An outcome's word for metrics and log, and the one for the audit.
#[derive(Clone, Copy)]
struct Words {
    call: &'static str,
    audit: &'static str,
}

impl Words {
    const fn of(call: &'static str, audit: &'static str) -> Self {
        Self { call, audit }
    }
}

fn answered(
    unknown: &UnknownAccount,
    token: CallToken,
    outcome: &str,
    at: crate::time::Timestamp,
) -> AuditRow {
    let detail = json!({ "call": Call::Revoke.as_ref(), "token": token, "outcome": outcome });
    told::row(unknown, "call_answered", detail, &Caller::service("registry"), at)
}
