//! What differs between the kinds of credentials, and what their steps have in common.
//!
//! Shards, actors, their supervision, the scheduler and the hand-over to other replicas are the same for all kinds;
//! they know a kind by this trait only. A value of it is what the steps of that kind work with.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use super::audit::Caller;
use super::deps::Deps;
use super::log::Cause;
use super::replica::Flight;
use crate::ids::{ClusterId, ReplicaId};
use crate::store::{Claimed, IdempotencyAnswer, OwnedBy, StoreError};
use crate::time::Timestamp;

/// One kind of credential.
pub trait Kind: Send + Sync + Sized + 'static {
    /// What can be asked of one, or told to it.
    type Command: Debug + Send + 'static;
    /// What happens to one.
    type Event: Debug + Send + 'static;
    /// What an actor keeps between commands, as it stands in the database.
    type Working: Debug + Clone + Send + Sync + Unpin + 'static;
    /// A call that was announced.
    type Call: Send + 'static;
    /// The outcome of a call.
    type Finished: Clone + Send + 'static;
    /// Secrets and texts that come with an outcome and are stored with it.
    type Delivered: Default + Send + 'static;
    /// Where calls may have to queue.
    type Place: Clone + Eq + Hash + Send + Unpin + 'static;
    /// A turn there.
    type Permit: Send + 'static;
    /// Why a step did nothing.
    type Error: std::error::Error + From<StoreError> + Send + 'static;

    /// What the actors of all kinds are given.
    fn deps(&self) -> &Deps;

    /// Time has passed.
    fn tick() -> Self::Command;
    /// Nobody will answer the calls that are open.
    fn take_over() -> Self::Command;
    /// The credential's own code fails again and again.
    fn quarantine(retry_at: Timestamp) -> Self::Command;

    /// Runs one command in one transaction.
    fn step(
        tools: Arc<Self>,
        cluster_id: ClusterId,
        working: Option<Self::Working>,
        ask: Ask<Self>,
    ) -> impl Future<Output = Result<Step<Self>, Self::Error>>;
    /// Makes a call. Never panics, and ends.
    fn make(
        tools: Arc<Self>,
        cluster_id: ClusterId,
        call: Self::Call,
    ) -> impl Future<Output = Self::Finished>;
    /// What the machine is told of an outcome.
    fn told(finished: Self::Finished) -> Ask<Self>;
    /// Waits for a turn; none where there is no such place (any more).
    fn turn(tools: Arc<Self>, place: Self::Place) -> impl Future<Output = Option<Self::Permit>>;

    /// The machine said no: nothing has changed.
    fn is_refusal(error: &Self::Error) -> bool;
    /// An outcome will never be taken.
    fn is_late(error: &Self::Error) -> bool;
    /// Tells of one.
    fn late(cluster_id: &ClusterId, finished: &Self::Finished);

    /// Reads what an actor works on.
    fn load(
        &self,
        cluster_id: &ClusterId,
    ) -> impl Future<Output = Result<Self::Working, StoreError>>;
    /// The version of its row, where there is one.
    fn stored_version(
        &self,
        cluster_id: &ClusterId,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>>;
    /// The same of what an actor keeps.
    fn version(working: &Self::Working) -> Option<u64>;
    /// Who may run its effects.
    fn ownership(working: &Self::Working) -> OwnedBy;
    /// Somebody else may from now on.
    fn pass(working: &mut Self::Working, ownership: OwnedBy);
    /// When it wants to be looked at again.
    fn due_at(&self, working: &Self::Working) -> Option<Timestamp>;
    /// Stores a due time, for this version and epoch.
    fn reschedule(
        &self,
        cluster_id: &ClusterId,
        version: u64,
        due_at: Option<Timestamp>,
        ownership: OwnedBy,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Takes what is due.
    fn due(
        &self,
        now: Timestamp,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send;
    /// Takes what the dead have left behind.
    fn orphans(
        &self,
        push_until: Timestamp,
        taker: ReplicaId,
    ) -> impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send;
}

/// A command and what comes with it.
pub struct Ask<K: Kind> {
    /// The command.
    pub command: K::Command,
    /// Who asks.
    pub caller: Caller,
    /// Somebody waits for it.
    pub attended: bool,
    /// What came with an outcome.
    pub delivered: K::Delivered,
    /// Turns that were waited for.
    pub permits: Vec<(K::Place, K::Permit)>,
    /// The answer that a repetition of the request gets, committed with the step.
    pub answer: Option<IdempotencyAnswer>,
}

impl<K: Kind> Ask<K> {
    /// A command alone.
    #[must_use]
    pub fn new(command: K::Command, caller: Caller) -> Self {
        let (delivered, permits) = (K::Delivered::default(), Vec::new());
        Self { command, caller, attended: false, delivered, permits, answer: None }
    }
}

/// What a step did.
pub struct Step<K: Kind> {
    /// The state now.
    pub working: K::Working,
    /// What happened; empty when the command was already fulfilled.
    pub events: Vec<K::Event>,
    /// The calls to make. Each flight ends when the call's outcome is stored, or will never be.
    pub calls: Vec<(K::Call, Flight)>,
    /// Places that are full for the moment: wait for a turn, then step again.
    pub crowded: Vec<K::Place>,
    /// What the step was made for.
    pub cause: Cause,
}
