//! Break-glass credentials, as a kind of credential: what their steps and calls work with.

use std::sync::Arc;

use super::calls::{self, Finished};
use super::fleet::{Drafter, Fleet};
use super::log;
use super::step::{self, AnnouncedCall, Delivered, Request, StepError, Tools};
use crate::actors::audit::Caller;
use crate::actors::deps::Deps;
use crate::actors::kind::{Ask, Kind, Step};
use crate::actors::log::Cause;
use crate::ids::{ClusterId, ReplicaId};
use crate::state::break_glass::{Answer, Command, Event, Rejection, due_at};
use crate::store::break_glass::LoadedBreakGlass;
use crate::store::{Claimed, OwnedBy, StoreError};
use crate::time::Timestamp;

/// What they work with.
pub struct Kit {
    /// Rows, keys, rules.
    pub tools: Tools,
    /// Clusters and signers.
    pub fleet: Fleet,
}

/// Signers have no queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoPlace {}

impl Kind for Kit {
    type Command = Command;
    type Event = Event;
    type Working = LoadedBreakGlass;
    type Call = AnnouncedCall;
    type Finished = Finished;
    type Delivered = Delivered;
    type Place = NoPlace;
    type Permit = NoPlace;
    type Error = StepError;

    fn deps(&self) -> &Deps {
        &self.tools.deps
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn take_over() -> Command {
        Command::TakeOver
    }

    fn quarantine(retry_at: Timestamp) -> Command {
        Command::Quarantine { retry_at }
    }

    async fn step(
        kit: Arc<Self>,
        cluster_id: ClusterId,
        working: Option<LoadedBreakGlass>,
        ask: Ask<Self>,
    ) -> Result<Step<Self>, StepError> {
        let entry = kit.fleet.entry(&cluster_id).ok_or(StepError::Unnamed)?;
        let configured = kit.fleet.configured(&cluster_id, &entry).await;
        let drafts = Drafter { configured: &configured, now: kit.tools.deps.clock.now() };
        let request = Request {
            command: &ask.command,
            rules: &kit.fleet.rules(&entry),
            delivered: &ask.delivered,
            drafts: &drafts,
            caller: &ask.caller,
            answer: ask.answer.as_ref(),
        };
        let cause = Cause::of(&ask.caller, None);
        let done = step::step(&kit.tools, &cluster_id, working, &request).await?;
        let step::Step { working, events, calls } = done;
        Ok(Step { working, events, calls, crowded: Vec::new(), cause })
    }

    async fn make(kit: Arc<Self>, cluster_id: ClusterId, announced: AnnouncedCall) -> Finished {
        let finished = match kit.fleet.entry(&cluster_id) {
            Some(entry) => {
                let configured = kit.fleet.configured(&cluster_id, &entry).await;
                calls::make(&kit.tools, &configured, announced).await
            }
            None => Finished::not_made(announced, "the clusters file does not name this cluster"),
        };
        log::call(&cluster_id, &finished);
        finished
    }

    fn told(finished: Finished) -> Ask<Self> {
        let Finished { subject, token, answer, delivered, cause, .. } = finished;
        let command = Command::Answer { subject, token, answer };
        Ask { delivered, ..Ask::new(command, Caller::caused("signer", &cause)) }
    }

    async fn turn(_kit: Arc<Self>, place: NoPlace) -> Option<NoPlace> {
        match place {}
    }

    fn is_refusal(error: &StepError) -> bool {
        matches!(error, StepError::Rejected(_))
    }

    /// Of a cluster that is not named nothing can be decided; when it is named again the call is begun anew.
    fn is_late(error: &StepError) -> bool {
        matches!(error, StepError::Rejected(Rejection::NotCurrent) | StepError::Unnamed)
    }

    fn late(cluster_id: &ClusterId, finished: &Finished) {
        log::late(cluster_id, finished);
    }

    async fn load(&self, cluster_id: &ClusterId) -> Result<LoadedBreakGlass, StoreError> {
        self.tools.store.load_break_glass(cluster_id).await
    }

    async fn stored_version(&self, cluster_id: &ClusterId) -> Result<Option<u64>, StoreError> {
        self.tools.store.break_glass_version(cluster_id).await
    }

    fn version(working: &LoadedBreakGlass) -> Option<u64> {
        working.record.as_ref().map(|_| working.version)
    }

    fn ownership(working: &LoadedBreakGlass) -> OwnedBy {
        working.ownership
    }

    fn pass(working: &mut LoadedBreakGlass, ownership: OwnedBy) {
        working.ownership = ownership;
    }

    fn due_at(&self, working: &LoadedBreakGlass) -> Option<Timestamp> {
        let record = working.record.as_ref()?;
        let entry = self.fleet.entry(&record.cluster_id)?;
        due_at(record, &self.tools.policy, &self.fleet.rules(&entry))
    }

    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        self.tools.store.reschedule_break_glass(cluster_id, version, due_at, ownership).await
    }

    async fn due(
        &self,
        now: Timestamp,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let batch = self.tools.deps.tuning.batch;
        self.tools.store.break_glass_due(now, batch, push_until, taker).await
    }

    async fn orphans(
        &self,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let batch = self.tools.deps.tuning.batch;
        self.tools.store.break_glass_orphans(batch, push_until, taker).await
    }
}

impl Finished {
    /// Nothing was asked of anybody.
    fn not_made(announced: AnnouncedCall, why: &str) -> Self {
        let AnnouncedCall { subject, call, token, cause, .. } = announced;
        let (answer, delivered) = (Answer::lost(call, why), Delivered::default());
        Self { subject, token, answer, delivered, cause, took: std::time::Duration::ZERO }
    }
}
