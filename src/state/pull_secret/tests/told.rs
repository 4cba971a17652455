//! Builders for told tests: a cluster whose calls the test answers one by one, in words of the product.

use std::time::Duration;

use uuid::Uuid;

use super::super::*;
use super::world::{HOUR, policy};
use crate::ids::{AccountId, CallToken, Generation, RegistryId, RotationId};
use crate::time::Timestamp;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

pub type Answered = Result<Vec<Event>, Rejection>;

/// One cluster's pull secret, told step by step.
#[derive(Clone)]
pub struct Told {
    pub now: Timestamp,
    pub policy: Policy,
    pub state: Option<PullSecret>,
    pub may_start: bool,
    pub restored_at: Option<Timestamp>,
    pub time_is_trusted: bool,
    pub last_generation: Generation,
    /// Every event so far.
    pub events: Vec<Event>,
    seed: u128,
}

impl Told {
    pub fn with(registries: &[&str]) -> Self {
        let mut policy = policy();
        for id in registries {
            let rules = RegistryPolicy {
                enabled: true,
                prefix: "hyp".to_owned(),
                timeout: Duration::from_secs(10),
                settle_time: 10 * MINUTE,
                own_secret: false,
            };
            policy.registries.insert(id.parse().unwrap(), rules);
        }
        Self {
            now: Timestamp::from_micros(1_800_000_000_000_000),
            policy,
            state: None,
            may_start: true,
            restored_at: None,
            time_is_trusted: true,
            last_generation: Generation::NONE,
            events: Vec::new(),
            seed: 7,
        }
    }

    pub fn new() -> Self {
        Self::with(&["quay"])
    }

    pub fn context(&mut self) -> Context<'_> {
        self.seed += 1;
        Context {
            now: self.now,
            policy: &self.policy,
            entropy: Entropy::from_seed(self.seed),
            last_generation: self.last_generation,
            may_start: self.may_start,
            restored_at: self.restored_at,
            time_is_trusted: self.time_is_trusted,
        }
    }

    pub fn tell(&mut self, command: &Command) -> Answered {
        let before = self.state.clone();
        let events = decide(before.as_ref(), command, &self.context())?;
        let after = events.iter().fold(before, apply);
        if let Some(record) = &after {
            self.last_generation = record.last_generation;
        }
        self.state = after.map(PullSecret::compact);
        self.events.extend(events.iter().cloned());
        Ok(events)
    }

    // What people ask for.

    pub fn issue(&mut self) -> Answered {
        self.tell(&Command::Issue { cluster_id: "cls-told".parse().unwrap(), registries: None })
    }

    pub fn issue_at(&mut self, registries: &[&str]) -> Answered {
        let registries = registries.iter().map(|id| id.parse().unwrap()).collect();
        let cluster_id = "cls-told".parse().unwrap();
        self.tell(&Command::Issue { cluster_id, registries: Some(registries) })
    }

    /// The set grows and shrinks, by names of registries that the policy has.
    pub fn rotate_partly(&mut self, added: &[&str], removed: &[&str]) -> Answered {
        let ids = |names: &[&str]| names.iter().map(|id| id.parse().unwrap()).collect();
        let (added, removed) = (ids(added), ids(removed));
        let rotation_id = RotationId(self.uuid());
        self.tell(&Command::RotatePartly { rotation_id, added, removed })
    }

    pub fn reschedule(&mut self, change: ScheduleChange) -> Answered {
        self.tell(&Command::Reschedule(Box::new(change)))
    }

    pub fn delete(&mut self) -> Answered {
        self.tell(&Command::Revoke)
    }

    pub fn rotate(&mut self) -> Answered {
        self.rotate_for(RotationReason::Manual, false)
    }

    pub fn compromise(&mut self) -> Answered {
        self.rotate_for(RotationReason::Compromise, false)
    }

    pub fn rotate_for(&mut self, reason: RotationReason, force_immediate: bool) -> Answered {
        let rotation_id = RotationId(self.uuid());
        self.tell(&Command::Rotate { rotation_id, reason, force_immediate })
    }

    pub fn complete(&mut self) -> Answered {
        self.tell(&Command::Complete { rotation_id: self.rotation_id() })
    }

    pub fn extend(&mut self, by: Duration) -> Answered {
        self.tell(&Command::Extend { rotation_id: self.rotation_id(), by })
    }

    pub fn rollback(&mut self) -> Answered {
        self.tell(&Command::Rollback { rotation_id: self.rotation_id() })
    }

    pub fn cancel(&mut self) -> Answered {
        self.tell(&Command::Cancel { rotation_id: self.rotation_id() })
    }

    pub fn pass(&mut self, time: Duration) -> Vec<Event> {
        self.now = self.now.plus(time);
        self.tell(&Command::Tick).unwrap()
    }

    // Who is seen.

    pub fn heartbeat(&mut self, consumer: &str, generation: u32) -> Answered {
        let account = self.account(generation).id;
        self.seen(EvidenceSource::Heartbeat, consumer, EvidenceSubject::Account(account))
    }

    pub fn registry_saw(&mut self, generation: u32) -> Answered {
        let account = self.account(generation).id;
        self.seen(EvidenceSource::Registry, "quay", EvidenceSubject::Account(account))
    }

    pub fn confirm(&mut self, generation: u32) -> Answered {
        let subject = EvidenceSubject::Generation(Generation(generation));
        self.seen(EvidenceSource::Adapter, "adapter", subject)
    }

    pub fn seen(
        &mut self,
        source: EvidenceSource,
        consumer: &str,
        subject: EvidenceSubject,
    ) -> Answered {
        self.seen_at(source, consumer, subject, self.now)
    }

    pub fn seen_at(
        &mut self,
        source: EvidenceSource,
        consumer: &str,
        subject: EvidenceSubject,
        observed_at: Timestamp,
    ) -> Answered {
        let consumer = consumer.to_owned();
        self.tell(&Command::Observe(Evidence { source, consumer, subject, observed_at }))
    }

    // Calls.

    /// Announces the one call of this kind that is due.
    pub fn announce(&mut self, call: Call) -> (AccountId, CallToken) {
        self.announce_where(call, |_| true)
    }

    pub fn announce_at(&mut self, registry: &str, call: Call) -> (AccountId, CallToken) {
        self.announce_where(call, |effect| effect.registry_id.as_str() == registry)
    }

    fn announce_where(
        &mut self,
        call: Call,
        is: impl Fn(&Effect) -> bool,
    ) -> (AccountId, CallToken) {
        let wanted = self.due();
        let effect = wanted
            .iter()
            .find(|effect| effect.call == call && is(effect))
            .unwrap_or_else(|| panic!("{call} is not due: {wanted:?} of {:#?}", self.state));
        let (account_id, token) = (effect.account_id, CallToken(self.uuid()));
        self.tell(&Command::Announce { account_id, call, token }).unwrap();
        (account_id, token)
    }

    pub fn answer(
        &mut self,
        (account_id, token): (AccountId, CallToken),
        answer: Answer,
    ) -> Answered {
        self.tell(&Command::Answer { account_id, token, answer })
    }

    /// Announces a call and answers it at once.
    pub fn call(&mut self, answer: Answer) -> Vec<Event> {
        let running = self.announce(answer.call());
        self.answer(running, answer).unwrap()
    }

    pub fn call_at(&mut self, registry: &str, answer: Answer) -> Vec<Event> {
        let running = self.announce_at(registry, answer.call());
        self.answer(running, answer).unwrap()
    }

    /// Every due call succeeds, until none is due.
    pub fn work(&mut self) {
        for _ in 0..100 {
            let Some(effect) = self.due().into_iter().next() else { return };
            let answer = match effect.call {
                Call::Create => created(),
                Call::Lookup => Answer::Lookup(LookupAnswer::Absent),
                Call::Verify => Answer::Verify(VerifyAnswer::Valid),
                Call::Revoke => Answer::Revoke(RevokeAnswer::Done),
            };
            let (account_id, token) = (effect.account_id, CallToken(self.uuid()));
            self.tell(&Command::Announce { account_id, call: effect.call, token }).unwrap();
            self.answer((account_id, token), answer).unwrap();
        }
        panic!("work without end: {:#?}", self.state);
    }

    pub fn due(&self) -> Vec<Effect> {
        let mut effects = self.state.as_ref().map_or(Vec::new(), |r| effects(r, self.now));
        effects.retain(|effect| effect.due <= self.now);
        effects
    }

    pub fn wants(&self, call: Call) -> bool {
        self.due().iter().any(|effect| effect.call == call)
    }

    // How far it is.

    pub fn record(&self) -> &PullSecret {
        self.state.as_ref().expect("there is a record")
    }

    pub fn name(&self) -> StateName {
        self.record().state.name()
    }

    pub fn phase(&self) -> &'static str {
        self.record().rotation().map_or("no rotation", |rotation| rotation.phase.name())
    }

    pub fn rotation_id(&self) -> RotationId {
        let running = self.state.as_ref().and_then(PullSecret::rotation);
        running.map_or(RotationId(Uuid::nil()), |rotation| rotation.id)
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        self.record().rotation().and_then(Rotation::deadline)
    }

    pub fn served(&self) -> u32 {
        self.record().generation().0
    }

    /// The first account of a generation that is not gone.
    pub fn account(&self, generation: u32) -> &Account {
        let born = |account: &&Account| account.born_generation == Generation(generation);
        self.record().accounts.iter().find(born).expect("an account of that generation")
    }

    /// Accounts of a generation by phase.
    pub fn phases(&self, generation: u32) -> Vec<AccountPhase> {
        let born = |account: &&Account| account.born_generation == Generation(generation);
        self.record().accounts.iter().filter(born).map(|account| account.phase).collect()
    }

    pub fn due_at(&self) -> Option<Timestamp> {
        due_at(self.record(), &self.policy)
    }

    /// How the last rotation ended.
    pub fn ended(&self) -> Option<&End> {
        self.events.iter().rev().find_map(|event| match event {
            Event::RotationEnded { end, .. } => Some(end),
            _ => None,
        })
    }

    pub fn uuid(&mut self) -> Uuid {
        let now = self.now;
        self.context().entropy.uuid(now)
    }

    /// The account that is served at a registry.
    pub fn served_at(&self, registry: &str) -> &Account {
        let served = |account: &&Account| {
            account.phase == AccountPhase::Serving && account.registry_id.as_str() == registry
        };
        self.record().accounts.iter().find(served).expect("an account served there")
    }

    pub fn present(&mut self, consumer: &str, account: AccountId) -> Answered {
        self.seen(EvidenceSource::Heartbeat, consumer, EvidenceSubject::Account(account))
    }

    // Places where stories begin.

    /// Served at quay, and rhit may be added.
    pub fn at_quay() -> Self {
        let mut told = Self::with(&["quay", "rhit"]);
        told.issue_at(&["quay"]).unwrap();
        told.work();
        told
    }

    /// Served at quay and rhit; every account is verified daily, dead ones are made anew.
    pub fn watched() -> Self {
        let mut told = Self::with(&["quay", "rhit"]);
        told.policy.drift_interval = Some(DAY);
        told.policy.reissue = true;
        told.issue().unwrap();
        told.work();
        told
    }

    /// Quay's account is found dead twice.
    pub fn dies_at_quay(&mut self) -> Vec<Event> {
        self.pass(DAY);
        self.call_at("quay", invalid());
        self.pass(MINUTE);
        self.call_at("quay", invalid())
    }

    pub fn active() -> Self {
        let mut told = Self::new();
        told.issue().unwrap();
        told.work();
        assert_eq!(told.name(), StateName::Active);
        told
    }

    /// Generation 1 was in use when generation 2 was put into service.
    pub fn dual() -> Self {
        Self::active().rotated()
    }

    pub fn rotated(mut self) -> Self {
        self.rotate().unwrap();
        self.work();
        assert_eq!(self.phase(), "dual_credential_period");
        self
    }

    /// A rollback has put generation 1 back into service.
    pub fn rolling_back() -> Self {
        let mut told = Self::dual();
        told.rollback().unwrap();
        told.work();
        assert_eq!(told.phase(), "rolling_back");
        told
    }

    /// The first create's answer was lost.
    pub fn lost_create() -> Self {
        let mut told = Self::new();
        told.issue().unwrap();
        told.call(Answer::lost(Call::Create, "reset"));
        told
    }
}

pub fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Into::into).collect()
}

pub fn created() -> Answer {
    Answer::Create(CreateAnswer::Created { remote_id: None, username: "org+robot".to_owned() })
}

pub fn present(ownership: Ownership, adoptable: bool) -> Answer {
    let username = "org+robot".to_owned();
    Answer::Lookup(LookupAnswer::Present { remote_id: None, username, ownership, adoptable })
}

pub fn valid() -> Answer {
    Answer::Verify(VerifyAnswer::Valid)
}

pub fn invalid() -> Answer {
    Answer::Verify(VerifyAnswer::Invalid)
}

pub fn gone() -> Answer {
    Answer::Revoke(RevokeAnswer::AlreadyGone)
}

pub fn deleted() -> Answer {
    Answer::Revoke(RevokeAnswer::Done)
}

pub fn not_deletable() -> Answer {
    Answer::Revoke(RevokeAnswer::Refused("a mirror".to_owned()))
}

pub fn refused() -> Answer {
    Answer::Create(CreateAnswer::Refused("quota".to_owned()))
}

pub fn failure(blocked: bool) -> Failure {
    Failure { message: "trouble".to_owned(), retry_after: None, blocked }
}

pub fn registry(id: &str) -> RegistryId {
    id.parse().unwrap()
}

/// One hour and the margin for sightings that were not stored again.
pub const QUIET_AND_MARGIN: Duration = HOUR.saturating_add(Duration::from_secs(300));
