//! A simulated world around the machine: a store that survives crashes, a clock that may go back,
//! registries that are slow, refuse, lose answers or apply late (`fates`), consumers that fetch and
//! present what they hold, and a judge that looks at the registries' own record (`judge`).

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::super::*;
use super::fates::Fate;
use super::judge::Judge;
use super::registry::{Flavour, SimRegistry};
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId, RotationId};
use crate::time::Timestamp;

pub const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
pub struct InFlight {
    pub account_id: AccountId,
    pub registry_id: RegistryId,
    pub name: String,
    pub call: Call,
    pub token: CallToken,
    pub announced_at: Timestamp,
    pub secret: Option<u64>,
}

/// Somebody in the cluster who holds a document.
#[derive(Debug, Clone, Default)]
pub struct Holder {
    pub accounts: Vec<AccountId>,
    pub generation: Generation,
    /// Its last word that was accepted.
    pub seen_at: Option<Timestamp>,
}

/// The last holder is the adapter.
pub const HOLDERS: usize = 4;
pub const ADAPTER: usize = HOLDERS - 1;

pub struct World {
    pub now: Timestamp,
    pub policy: Policy,
    pub state: Option<PullSecret>,
    pub registries: BTreeMap<RegistryId, SimRegistry>,
    pub cluster_id: ClusterId,
    pub may_start: bool,
    pub restored_at: Option<Timestamp>,
    pub time_is_trusted: bool,
    /// When a clock that jumped will have kept in step for long enough.
    doubted_until: Option<Timestamp>,
    pub story: Vec<(Timestamp, Command, Vec<Event>)>,
    pub(super) judge: Judge,
    pub(super) holders: Vec<Holder>,
    pub(super) secrets: BTreeMap<AccountId, u64>,
    last_generation: Generation,
    flight: Vec<InFlight>,
    seed: u128,
}

pub fn policy() -> Policy {
    Policy {
        interval: None,
        spread: 0.1,
        window: None,
        drift_interval: None,
        reissue: false,
        min_overlap: 24 * HOUR,
        grace_period: 7 * 24 * HOUR,
        on_deadline: OnDeadline::Hold,
        compromise_deadline: HOUR,
        quiet: HOUR,
        consumer_ttl: 48 * HOUR,
        proof: vec![EvidenceSource::Heartbeat, EvidenceSource::Registry, EvidenceSource::Adapter],
        retry: Backoff { initial: Duration::from_secs(5), factor: 2.0, max: HOUR, jitter: 0.2 },
        give_up_after: 24 * HOUR,
        denied_after: 48 * HOUR,
        failed_after: 48 * HOUR,
        history_after: 90 * 24 * HOUR,
        registries: BTreeMap::new(),
    }
}

impl World {
    pub fn new(seed: u128, flavours: &[Flavour]) -> Self {
        let mut policy = policy();
        let mut registries = BTreeMap::new();
        for (index, flavour) in flavours.iter().enumerate() {
            let id: RegistryId = format!("registry-{index}").parse().unwrap();
            let rules = RegistryPolicy {
                enabled: true,
                prefix: "hyp".to_owned(),
                timeout: Duration::from_secs(10),
                settle_time: Duration::from_secs(600),
                own_secret: *flavour == Flavour::Chosen,
            };
            policy.registries.insert(id.clone(), rules);
            registries.insert(id, SimRegistry::new(*flavour));
        }
        Self {
            now: Timestamp::from_micros(1_800_000_000_000_000),
            policy,
            state: None,
            registries,
            cluster_id: "cls-sim".parse().unwrap(),
            may_start: true,
            restored_at: None,
            time_is_trusted: true,
            doubted_until: None,
            story: Vec::new(),
            judge: Judge::default(),
            holders: vec![Holder::default(); HOLDERS],
            secrets: BTreeMap::new(),
            last_generation: Generation::NONE,
            flight: Vec::new(),
            seed,
        }
    }

    fn context(&mut self) -> Context<'_> {
        self.seed =
            self.seed.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
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

    pub fn uuid(&mut self) -> Uuid {
        let now = self.now;
        self.context().entropy.uuid(now)
    }

    /// One transaction: decide, apply, store.
    pub fn command(&mut self, command: &Command) -> Result<Vec<Event>, Rejection> {
        self.commit(command, None)
    }

    fn commit(&mut self, command: &Command, secret: Option<u64>) -> Result<Vec<Event>, Rejection> {
        let drawn_in = self.state.as_ref().and_then(|record| record.drawn_in(self.now));
        let before = drawn_in.or_else(|| self.state.clone());
        let context = self.context();
        let decided = decide(before.as_ref(), command, &context);
        assert_eq!(decided, decide(before.as_ref(), command, &context), "decide is deterministic");
        let events = decided?;
        self.story.push((self.now, command.clone(), events.clone()));
        assert!(events.len() < 100, "a step that does not end");
        let by_time = |event: &Event| match event {
            Event::Removed { .. } => true,
            Event::RetirementDecided { why, .. } => {
                matches!(why, RetireReason::Adopted | RetireReason::Deadline)
            }
            _ => false,
        };
        let doubtful = !self.time_is_trusted && events.iter().any(by_time);
        assert!(!doubtful, "by a clock that jumped: {events:?}");
        let mut state = before;
        for event in &events {
            if let (Event::AccountCreated { account_id, .. }, Some(secret)) = (event, secret) {
                self.secrets.insert(*account_id, secret);
            }
            self.judge.note(event, state.as_ref(), &self.registries);
            state = apply(state, event);
        }
        if let Some(record) = &state {
            self.last_generation = self.last_generation.max(record.last_generation);
        }
        self.judge.step(&events, state.as_ref(), self.now);
        self.state = state.map(PullSecret::compact);
        self.judge_registries();
        Ok(events)
    }

    /// Announces what is due and sends it; `crash_before_send` dies between the two.
    pub fn work(&mut self, crash_before_send: bool) {
        let Some(record) = self.state.clone() else { return };
        for effect in effects(&record, self.now) {
            if effect.due > self.now {
                continue;
            }
            let token = CallToken(self.uuid());
            let command =
                Command::Announce { account_id: effect.account_id, call: effect.call, token };
            if self.command(&command).is_err() {
                continue;
            }
            if crash_before_send {
                return;
            }
            self.send(effect.account_id, effect.call, token);
        }
    }

    fn send(&mut self, account_id: AccountId, call: Call, token: CallToken) {
        let account = self.state.as_ref().unwrap().account(account_id).unwrap().clone();
        let flavour = self.registries[&account.registry_id].flavour;
        let name = account.name.to_string();
        if call == Call::Create && flavour == Flavour::Chosen {
            // Sealed and stored before the call; every repeat sends the same one.
            let chosen = u64::from_be_bytes(account_id.0.as_bytes()[8..].try_into().unwrap());
            self.secrets.insert(account_id, chosen);
        }
        self.flight.push(InFlight {
            account_id,
            registry_id: account.registry_id,
            name,
            call,
            token,
            announced_at: self.now,
            secret: self.secrets.get(&account_id).copied(),
        });
    }

    /// Ends the call in flight at `index`.
    pub fn finish(&mut self, index: usize, fate: Fate) {
        if self.flight.is_empty() {
            return;
        }
        let call = self.flight.remove(index % self.flight.len());
        let settle = self.policy.registry(&call.registry_id).settle_time;
        let late_at = call.announced_at.plus(settle.mul_f64(0.9)).max(self.now);
        // A registry that stalls for longer than its settle time breaks the contract.
        let stale = call.announced_at.plus(settle) <= self.now;
        let running = self.state.as_ref().and_then(|r| r.account(call.account_id)?.call);
        let heard = running.is_some_and(|running| running.token == call.token);
        let (answer, secret) = self.answer(&call, fate, late_at, stale, heard);
        let command = Command::Answer { account_id: call.account_id, token: call.token, answer };
        match self.commit(&command, secret) {
            Ok(_) | Err(Rejection::NotCurrent | Rejection::NoRecord) => {}
            Err(other) => panic!("an outcome was refused: {other}"),
        }
    }

    /// kill -9: calls in flight may or may not still be applied, nobody hears their answers.
    pub fn crash(&mut self, applied: impl Fn(usize) -> Fate) {
        let flight = std::mem::take(&mut self.flight);
        for (index, call) in flight.into_iter().enumerate() {
            let settle = self.policy.registry(&call.registry_id).settle_time;
            let late_at = call.announced_at.plus(settle.mul_f64(0.9)).max(self.now);
            let stale = call.announced_at.plus(settle) <= self.now;
            let _ = self.answer(&call, applied(index), late_at, stale, false);
        }
        let _ = self.command(&Command::TakeOver);
    }

    /// Time passes and nobody looks at the record.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        let now = self.now;
        if self.doubted_until.is_some_and(|until| until <= now) {
            self.believe();
        }
        self.registries.values_mut().for_each(|registry| registry.apply_late(now));
    }

    pub fn pass(&mut self, time: Duration) {
        self.wait(time);
        let _ = self.command(&Command::Tick);
    }

    /// GET: what would be handed out now.
    pub fn fetch(&mut self, holder: usize) {
        let Some(record) = &self.state else { return };
        let Some(served) = record.served() else { return };
        let accounts: Vec<_> = record
            .accounts
            .iter()
            .filter(|account| account.phase == AccountPhase::Serving)
            .map(|account| account.id)
            .collect();
        assert_eq!(accounts.len(), record.registries.len(), "an incomplete document");
        self.judge.read(served.generation);
        self.holders[holder].accounts = accounts;
        self.holders[holder].generation = served.generation;
    }

    /// The holder presents one account after the other; the adapter confirms what it applied.
    pub fn heartbeats(&mut self, holder: usize) {
        (0..self.holders[holder].accounts.len()).for_each(|pick| self.heartbeat(holder, pick));
    }

    /// The holder presents one of the accounts it holds; the adapter confirms what it applied.
    pub fn heartbeat(&mut self, holder: usize, pick: usize) {
        let accounts = &self.holders[holder].accounts;
        let Some(account_id) = accounts.get(pick % accounts.len().max(1)).copied() else { return };
        let (source, subject) = if holder == ADAPTER {
            let generation = self.holders[holder].generation;
            (EvidenceSource::Adapter, EvidenceSubject::Generation(generation))
        } else {
            (EvidenceSource::Heartbeat, EvidenceSubject::Account(account_id))
        };
        let consumer = format!("pool-{holder}");
        let evidence = Evidence { source, consumer, subject, observed_at: self.now };
        if self.command(&Command::Observe(evidence)).is_ok() {
            // A decision to delete is final: whoever speaks up after it is too late.
            let held = &self.holders[holder].accounts;
            let record = self.state.as_ref();
            let alive = held.iter().all(|id| {
                record
                    .and_then(|record| record.account(*id))
                    .is_some_and(|account| account.phase.is_handed_out())
            });
            if alive {
                self.holders[holder].seen_at = Some(self.now);
            }
        }
    }

    /// The registry's own record tells that some account was used a while ago.
    pub fn registry_saw(&mut self, holder: usize, ago: Duration) {
        let Some(account_id) = self.holders[holder].accounts.last().copied() else { return };
        let _ = self.command(&Command::Observe(Evidence {
            source: EvidenceSource::Registry,
            consumer: "registry".to_owned(),
            subject: EvidenceSubject::Account(account_id),
            observed_at: self.now.minus(ago),
        }));
    }

    /// Somebody deletes an account behind the service's back.
    pub fn delete_behind(&mut self, choice: usize) {
        let index = choice % self.registries.len();
        let registry = self.registries.values_mut().nth(index).unwrap();
        let ours: Vec<_> =
            registry.live.iter().filter(|(_, a)| !a.foreign).map(|(n, _)| n.clone()).collect();
        if let Some(name) = ours.get(choice % ours.len().max(1)) {
            registry.live.remove(name);
            registry.broken.insert(name.clone());
        }
    }

    fn believe(&mut self) {
        self.time_is_trusted = true;
        self.doubted_until = None;
    }

    /// Waits until the clock is believed.
    pub fn wait_out_doubt(&mut self) {
        if let Some(until) = self.doubted_until {
            self.wait(until.since(self.now));
            self.believe();
        }
    }

    /// The wall clock goes ahead, and that is noticed; what is under way takes as long as before.
    pub fn jump_ahead(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.registries.values_mut().for_each(|registry| registry.shift_ahead(time));
        self.flight.iter_mut().for_each(|call| call.announced_at = call.announced_at.plus(time));
        self.time_is_trusted = false;
        self.doubted_until = Some(self.now.plus(HOUR));
        let _ = self.command(&Command::Tick);
    }

    /// The wall clock goes back; what is under way takes as long as before.
    pub fn jump_back(&mut self, time: Duration) {
        self.now = self.now.minus(time);
        self.registries.values_mut().for_each(|registry| registry.shift_back(time));
        self.flight.iter_mut().for_each(|call| call.announced_at = call.announced_at.minus(time));
        for holder in &mut self.holders {
            holder.seen_at = holder.seen_at.map(|at| at.minus(time));
        }
        let _ = self.command(&Command::Tick);
    }

    /// An operator ends residue by force.
    pub fn force_gone(&mut self) {
        let accounts = self.state.iter().flat_map(|record| &record.accounts);
        let residue: Vec<_> = accounts
            .filter(|account| account.phase == AccountPhase::Residue)
            .map(|account| account.id)
            .collect();
        for account_id in residue {
            let _ = self.command(&Command::ForceGone { account_id });
        }
    }

    pub fn rotation_id(&self) -> RotationId {
        let running = self.state.as_ref().and_then(PullSecret::rotation);
        running.map_or(RotationId(Uuid::nil()), |rotation| rotation.id)
    }

    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }
}
