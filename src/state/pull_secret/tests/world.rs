//! A simulated world around the machine: a store that survives crashes, registries that are slow, refuse,
//! lose answers or apply late, consumers that fetch and present what they hold, and a judge that looks at
//! the registries' own record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::super::*;
use super::registry::{Flavour, Late, SimRegistry};
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId, RotationId};
use crate::time::Timestamp;

pub const HOUR: Duration = Duration::from_secs(3600);

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Fine,
    AppliedAnswerLost,
    NeverApplied,
    AppliedLate,
    NotApplied,
    Blocked,
    Refused,
    TakenByOther,
    StaleInvalid,
}

#[derive(Debug, Clone)]
struct InFlight {
    account_id: AccountId,
    registry_id: RegistryId,
    name: String,
    call: Call,
    token: CallToken,
    announced_at: Timestamp,
    secret: Option<u64>,
}

/// Somebody in the cluster who holds a document.
#[derive(Debug, Clone, Default)]
struct Holder {
    accounts: Vec<AccountId>,
    /// Its last heartbeat that was accepted.
    seen_at: Option<Timestamp>,
}

pub struct World {
    pub now: Timestamp,
    pub policy: Policy,
    pub state: Option<PullSecret>,
    pub registries: BTreeMap<RegistryId, SimRegistry>,
    pub cluster_id: ClusterId,
    pub story: Vec<String>,
    last_generation: Generation,
    secrets: BTreeMap<AccountId, u64>,
    rows: BTreeMap<String, Account>,
    flight: Vec<InFlight>,
    holders: Vec<Holder>,
    seed: u128,
    last_read: Generation,
    /// Set while the invariants about what consumers hold are excused by an operator or a policy.
    excused: BTreeSet<AccountId>,
    compromised: bool,
    ended_slots: BTreeSet<Timestamp>,
    ended_rotations: BTreeSet<RotationId>,
    open_calls: BTreeSet<CallToken>,
    ever_served: BTreeSet<AccountId>,
}

pub fn policy() -> Policy {
    Policy {
        interval: None,
        spread: 0.1,
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
            story: Vec::new(),
            last_generation: Generation::NONE,
            secrets: BTreeMap::new(),
            rows: BTreeMap::new(),
            flight: Vec::new(),
            holders: vec![Holder::default(); 3],
            seed,
            last_read: Generation::NONE,
            excused: BTreeSet::new(),
            compromised: false,
            ended_slots: BTreeSet::new(),
            ended_rotations: BTreeSet::new(),
            open_calls: BTreeSet::new(),
            ever_served: BTreeSet::new(),
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
            may_start: true,
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
        let before = self.state.clone();
        let context = self.context();
        let events = decide(before.as_ref(), command, &context)?;
        assert!(events.len() < 100, "a step that does not end: {events:?}");
        self.story.push(format!("{} {command:?} -> {events:?}", self.now));
        let mut state = before;
        for event in &events {
            self.note(event, secret, state.as_ref());
            state = apply(state, event);
        }
        if let Some(record) = &state {
            self.last_generation = self.last_generation.max(record.last_generation);
            for account in &record.accounts {
                self.rows.insert(account.name.to_string(), account.clone());
                if account.phase == AccountPhase::Serving {
                    self.ever_served.insert(account.id);
                }
            }
            for rotation in &record.ended {
                assert!(self.ended_rotations.insert(rotation.id), "a rotation ended twice");
                let completed = rotation.status() == RotationStatus::Completed;
                if let (true, Some(slot)) = (completed, rotation.slot) {
                    assert!(self.ended_slots.insert(slot), "a slot completed twice");
                }
            }
        }
        self.state = state.map(PullSecret::compact);
        self.judge();
        Ok(events)
    }

    /// Bookkeeping of what the store keeps beside the record, and of what excuses a deletion.
    fn note(&mut self, event: &Event, secret: Option<u64>, state: Option<&PullSecret>) {
        match event {
            Event::AccountCreated { account_id, .. } => {
                if let Some(secret) = secret {
                    self.secrets.insert(*account_id, secret);
                }
            }
            Event::CallAnnounced { token, .. } => {
                assert!(self.open_calls.insert(*token), "a token was used twice");
            }
            Event::RevocationRequested { .. } => self.excuse(state, |_| true),
            Event::RetirementDecided { why, .. } => match why {
                RetireReason::Adopted => {}
                RetireReason::Operator | RetireReason::Deadline | RetireReason::Forced => {
                    self.excuse(state, |phase| phase == AccountPhase::Retiring);
                }
            },
            Event::RotationRequested { rotation } => {
                self.compromised |= rotation.reason == RotationReason::Compromise;
            }
            Event::AccountGone { account_id, how: GoneHow::Deleted, .. } => {
                let name = self.rows.values().find(|row| row.id == *account_id).unwrap();
                let registry = &self.registries[&name.registry_id];
                assert!(!registry.live.contains_key(name.name.as_str()), "gone, but it lives");
            }
            _ => {}
        }
    }

    /// DELETE excuses every account; a retirement without proof only what is no longer served.
    fn excuse(&mut self, state: Option<&PullSecret>, is: impl Fn(AccountPhase) -> bool) {
        let accounts = state.iter().flat_map(|record| &record.accounts);
        self.excused.extend(accounts.filter(|account| is(account.phase)).map(|account| account.id));
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
        assert!(
            !self.flight.iter().any(|other| other.name == name
                && self.open_calls.contains(&other.token)
                && other.token != token
                && self
                    .state
                    .as_ref()
                    .unwrap()
                    .account(other.account_id)
                    .unwrap()
                    .call
                    .is_some_and(|running| running.token == other.token)),
            "two calls on one name"
        );
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
        let (answer, secret) = self.answer(&call, fate, late_at, stale);
        self.open_calls.remove(&call.token);
        let command = Command::Answer { account_id: call.account_id, token: call.token, answer };
        match self.commit(&command, secret) {
            Ok(_) | Err(Rejection::NotCurrent | Rejection::NoRecord) => {}
            Err(other) => panic!("an outcome was refused: {other}"),
        }
    }

    fn answer(
        &mut self,
        call: &InFlight,
        fate: Fate,
        late_at: Timestamp,
        stale: bool,
    ) -> (Answer, Option<u64>) {
        let now = self.now;
        let failure =
            |blocked| Failure { message: format!("{fate:?}"), retry_after: None, blocked };
        let registry = self.registries.get_mut(&call.registry_id).unwrap();
        registry.apply_late(now);
        let chosen = call.secret.filter(|_| registry.flavour == Flavour::Chosen);
        match call.call {
            Call::Create => {
                if fate == Fate::TakenByOther {
                    registry.put_foreign(&call.name);
                }
                let unknown = CreateAnswer::Unknown(failure(false));
                let answer = match fate {
                    Fate::NotApplied => CreateAnswer::NotApplied(failure(false)),
                    Fate::Blocked => CreateAnswer::NotApplied(failure(true)),
                    Fate::Refused => CreateAnswer::Refused("quota".to_owned()),
                    Fate::NeverApplied => unknown,
                    Fate::AppliedLate => {
                        if !stale {
                            registry.late.push(Late::Create {
                                at: late_at,
                                name: call.name.clone(),
                                chosen,
                            });
                        }
                        unknown
                    }
                    _ if stale => unknown,
                    Fate::AppliedAnswerLost => {
                        let _ = registry.create(&call.name, chosen);
                        unknown
                    }
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid => {
                        match registry.create(&call.name, chosen) {
                            Some(secret) => {
                                let username = format!("org+{}", call.name);
                                let answer = CreateAnswer::Created { remote_id: None, username };
                                return (Answer::Create(answer), Some(secret));
                            }
                            None => CreateAnswer::AlreadyExists,
                        }
                    }
                };
                (Answer::Create(answer), None)
            }
            Call::Lookup => {
                let answer = match (fate, registry.live.get(&call.name)) {
                    (Fate::Fine | Fate::TakenByOther, Some(found)) => {
                        let readable = registry.flavour == Flavour::Readable;
                        let chosen = registry.flavour == Flavour::Chosen;
                        let ownership = match (registry.flavour, found.foreign) {
                            (Flavour::Chosen, _) => Ownership::NoMarker,
                            (_, true) => Ownership::Foreign,
                            (_, false) => Ownership::ThisIntent,
                        };
                        let answer = LookupAnswer::Present {
                            remote_id: None,
                            username: format!("org+{}", call.name),
                            ownership,
                            adoptable: readable || chosen,
                        };
                        let secret = found.secret;
                        let secret = if readable { Some(secret) } else { call.secret };
                        return (Answer::Lookup(answer), secret);
                    }
                    (Fate::Fine | Fate::TakenByOther, None) => LookupAnswer::Absent,
                    (Fate::Blocked, _) => LookupAnswer::Failed(failure(true)),
                    _ => LookupAnswer::Failed(failure(false)),
                };
                (Answer::Lookup(answer), None)
            }
            Call::Verify => {
                let works = registry
                    .live
                    .get(&call.name)
                    .is_some_and(|found| Some(found.secret) == call.secret);
                let answer = match fate {
                    Fate::Fine | Fate::TakenByOther if works => VerifyAnswer::Valid,
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid => VerifyAnswer::Invalid,
                    Fate::Refused => VerifyAnswer::CannotPull,
                    Fate::Blocked => VerifyAnswer::Failed(failure(true)),
                    _ => VerifyAnswer::Failed(failure(false)),
                };
                (Answer::Verify(answer), None)
            }
            Call::Revoke => {
                let answer = match fate {
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid => {
                        if registry.revoke(&call.name, now) {
                            RevokeAnswer::Done
                        } else {
                            RevokeAnswer::AlreadyGone
                        }
                    }
                    Fate::AppliedAnswerLost => {
                        let _ = registry.revoke(&call.name, now);
                        RevokeAnswer::Failed(failure(false))
                    }
                    Fate::AppliedLate => {
                        registry.late.push(Late::Revoke { at: late_at, name: call.name.clone() });
                        RevokeAnswer::Failed(failure(false))
                    }
                    Fate::Refused => RevokeAnswer::Refused("mirror".to_owned()),
                    Fate::Blocked => RevokeAnswer::Failed(failure(true)),
                    Fate::NeverApplied | Fate::NotApplied => RevokeAnswer::Failed(failure(false)),
                };
                (Answer::Revoke(answer), None)
            }
        }
    }

    /// kill -9: calls in flight may or may not still be applied, nobody hears their answers.
    pub fn crash(&mut self, applied: impl Fn(usize) -> Fate) {
        let flight = std::mem::take(&mut self.flight);
        self.open_calls.clear();
        for (index, call) in flight.into_iter().enumerate() {
            let settle = self.policy.registry(&call.registry_id).settle_time;
            let late_at = call.announced_at.plus(settle.mul_f64(0.9)).max(self.now);
            let stale = call.announced_at.plus(settle) <= self.now;
            let _ = self.answer(&call, applied(index), late_at, stale);
        }
        let _ = self.command(&Command::TakeOver);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        let now = self.now;
        self.registries.values_mut().for_each(|registry| registry.apply_late(now));
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
        let rolled_back = matches!(
            record.rotation().map(|rotation| &rotation.phase),
            Some(RotationPhase::RollingBack { .. } | RotationPhase::RemovingNew { .. })
        );
        if !rolled_back && !self.story.iter().any(|line| line.contains("RollbackRequested")) {
            assert!(served.generation >= self.last_read, "an older generation after a newer one");
        }
        self.last_read = served.generation;
        self.holders[holder].accounts = accounts;
    }

    /// The holder presents one of the accounts it holds.
    pub fn heartbeat(&mut self, holder: usize) {
        let Some(account_id) = self.holders[holder].accounts.first().copied() else { return };
        let evidence = Evidence {
            source: EvidenceSource::Heartbeat,
            consumer: format!("pool-{holder}"),
            subject: EvidenceSubject::Account(account_id),
            observed_at: self.now,
        };
        if self.command(&Command::Observe(evidence)).is_ok() {
            self.holders[holder].seen_at = Some(self.now);
        }
    }

    pub fn rotation_id(&self) -> RotationId {
        let running = self.state.as_ref().and_then(PullSecret::rotation);
        running.map_or(RotationId(Uuid::nil()), |rotation| rotation.id)
    }

    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// The invariants, from the registries' own record.
    fn judge(&mut self) {
        for (registry_id, registry) in &self.registries {
            let mut generations = BTreeSet::new();
            for (name, live) in &registry.live {
                if live.foreign {
                    continue;
                }
                let row = self.rows.get(name).unwrap_or_else(|| panic!("{name} has no row"));
                assert_ne!(row.phase, AccountPhase::Gone, "{name} lives though it is gone");
                let known = self.state.as_ref().is_some_and(|r| r.account(row.id).is_some());
                assert!(known, "{name} lives and no row names it");
                if !matches!(row.phase, AccountPhase::Burnt | AccountPhase::Residue) {
                    generations.insert(row.born_generation);
                }
            }
            if !self.compromised {
                assert!(generations.len() <= 2, "{registry_id}: {generations:?} live");
            }
            for (name, count) in &registry.creations {
                assert!(*count <= 1, "{name} was created {count} times");
            }
        }
        self.judge_served();
        self.judge_deletions();
    }

    fn judge_served(&self) {
        let Some(record) = &self.state else { return };
        if record.served().is_none() {
            return;
        }
        for id in &record.registries {
            let serving: Vec<_> = record
                .accounts
                .iter()
                .filter(|a| a.phase == AccountPhase::Serving && a.registry_id == *id)
                .collect();
            assert_eq!(serving.len(), 1, "one served account per registry");
            let found = self.registries[id].live.get(serving[0].name.as_str());
            let works = found.is_some_and(|f| Some(&f.secret) == self.secrets.get(&serving[0].id));
            assert!(works, "what GET returns does not work at {id}");
        }
    }

    /// No credential that a known consumer holds is deleted, unless an operator or a policy said so.
    fn judge_deletions(&mut self) {
        let ttl = self.policy.consumer_ttl;
        for registry in self.registries.values_mut() {
            for (at, name) in registry.deletions.drain(..) {
                let row = &self.rows[&name];
                if self.excused.contains(&row.id) || !self.ever_served.contains(&row.id) {
                    continue;
                }
                for holder in &self.holders {
                    let known = holder.seen_at.is_some_and(|seen| at.since(seen) < ttl);
                    assert!(
                        !(known && holder.accounts.contains(&row.id)),
                        "{name} was deleted under a consumer that holds it"
                    );
                }
            }
        }
    }
}
