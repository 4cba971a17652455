//! Pull secrets, as a kind of credential. Their steps work with what all actors are given.

use std::sync::Arc;

use secrecy::SecretString;

use super::audit::Caller;
use super::calls::{self, Finished};
use super::deps::Deps;
use super::kind::{Ask, Kind, Step};
use super::log;
use super::step::{self, AnnouncedCall, Place, Request, StepError, Working};
use crate::ids::{AccountId, ClusterId, ReplicaId};
use crate::registries::lane::Permit;
use crate::state::pull_secret::{Command, Event, Rejection, due_at};
use crate::store::{Claimed, OwnedBy, StoreError};
use crate::time::Timestamp;

impl Kind for Deps {
    type Command = Command;
    type Event = Event;
    type Working = Working;
    type Call = AnnouncedCall;
    type Finished = Finished;
    type Delivered = Option<(AccountId, SecretString)>;
    type Place = Place;
    type Permit = Permit;
    type Error = StepError;

    fn deps(&self) -> &Deps {
        self
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
        tools: Arc<Self>,
        cluster_id: ClusterId,
        working: Option<Working>,
        ask: Ask<Self>,
    ) -> Result<Step<Self>, StepError> {
        let Ask { command, caller, delivered, permits, answer } = ask;
        let secret = delivered.as_ref().map(|(id, secret)| (*id, secret));
        let request = Request { command: &command, secret, caller: &caller, permits, answer };
        step::step(&tools, &cluster_id, working, request).await
    }

    async fn make(tools: Arc<Self>, cluster_id: ClusterId, call: AnnouncedCall) -> Finished {
        calls::make(tools, cluster_id, call).await
    }

    fn told(finished: Finished) -> Ask<Self> {
        let Finished { account_id, token, answer, secret, cause } = finished;
        let command = Command::Answer { account_id, token, answer };
        let delivered = secret.map(|secret| (account_id, secret));
        Ask { delivered, ..Ask::new(command, Caller::caused("registry", &cause)) }
    }

    async fn turn(tools: Arc<Self>, place: Place) -> Option<Permit> {
        let lane = tools.registries.get(&place.registry_id)?.lane_for(place.residue);
        lane.permit().await.ok()
    }

    fn is_refusal(error: &StepError) -> bool {
        matches!(error, StepError::Rejected(_))
    }

    fn is_late(error: &StepError) -> bool {
        matches!(error, StepError::Rejected(Rejection::NotCurrent | Rejection::NoRecord))
    }

    fn late(cluster_id: &ClusterId, finished: &Finished) {
        log::late_outcome(cluster_id, finished);
    }

    async fn load(&self, cluster_id: &ClusterId) -> Result<Working, StoreError> {
        step::load(self, cluster_id).await
    }

    async fn stored_version(&self, cluster_id: &ClusterId) -> Result<Option<u64>, StoreError> {
        Ok(self.store.version_of(cluster_id).await?.map(|(version, _)| version))
    }

    fn version(working: &Working) -> Option<u64> {
        working.record.as_ref().map(|_| working.version)
    }

    fn ownership(working: &Working) -> OwnedBy {
        working.ownership
    }

    fn pass(working: &mut Working, ownership: OwnedBy) {
        working.ownership = ownership;
    }

    fn due_at(&self, working: &Working) -> Option<Timestamp> {
        due_at(working.record.as_ref()?, &self.policy)
    }

    async fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> Result<bool, StoreError> {
        self.store.reschedule(cluster_id, version, due_at, ownership).await
    }

    async fn due(
        &self,
        now: Timestamp,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        // Whose turn it is becomes due, and is claimed like everything else.
        self.store.call_turns(self.tuning.max_rotations, now, push_until).await?;
        self.store.due(now, self.tuning.batch, push_until, taker).await
    }

    async fn orphans(
        &self,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.store.orphans(self.tuning.batch, push_until, taker).await
    }
}
