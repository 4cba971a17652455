//! The judge: the invariants of `DESIGN` section 6, from the registries' own record and from the events.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::registry::SimRegistry;
use super::world::{HOUR, World};
use crate::ids::{AccountId, CallToken, Generation, RegistryId, RotationId};
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub struct Judge {
    /// The last row of every account that ever was.
    rows: BTreeMap<String, Account>,
    ever_served: BTreeSet<AccountId>,
    /// Deletions that an operator, a policy or a DELETE stands for.
    excused: BTreeSet<AccountId>,
    /// Ended by an operator's force without the registry's word.
    forced: BTreeSet<AccountId>,
    compromised: bool,
    found_dead: BTreeSet<AccountId>,
    rollback_asked: bool,
    last_read: Generation,
    ended_slots: BTreeSet<Timestamp>,
    ended_rotations: BTreeSet<RotationId>,
    tokens: BTreeSet<CallToken>,
    /// Announcements without an outcome, with the step they were made in.
    open: BTreeMap<AccountId, (Call, u64)>,
    /// The step in which the call began that last said "valid".
    valid: BTreeMap<AccountId, u64>,
    decided: u64,
    steps: u64,
}

impl Judge {
    pub fn note(
        &mut self,
        event: &Event,
        before: Option<&PullSecret>,
        registries: &BTreeMap<RegistryId, SimRegistry>,
    ) {
        self.pair(event);
        match event {
            Event::RevocationRequested { .. } => self.excuse(before, |_| true),
            Event::RetirementDecided { why, .. } => {
                self.decided = self.steps;
                match why {
                    RetireReason::Adopted => {}
                    RetireReason::Operator | RetireReason::Deadline | RetireReason::Forced => {
                        self.excuse(before, |phase| phase == AccountPhase::Retiring);
                    }
                }
            }
            Event::DeletionDecided { account_id, at } => {
                let record = before.expect("a record");
                let account = record.account(*account_id).expect("an account");
                let rotating = record.rotation().is_some();
                self.excuse_crowd(record, account, *at);
                if rotating && account.phase.is_handed_out() {
                    self.served_was_verified(record);
                }
            }
            Event::DriftFound { account_id, .. } => {
                self.found_dead.insert(*account_id);
            }
            Event::RollbackRequested { .. } => self.rollback_asked = true,
            Event::RotationRequested { rotation } => {
                self.compromised |= rotation.reason == RotationReason::Compromise;
                // Where too many live, it is the decision to delete the oldest.
                self.decided = self.steps;
            }
            Event::AccountGone { account_id, how: GoneHow::Forced, .. } => {
                self.forced.insert(*account_id);
            }
            Event::AccountGone { account_id, how: GoneHow::Deleted, .. } => {
                let row = self.rows.values().find(|row| row.id == *account_id).expect("a row");
                let live = &registries[&row.registry_id].live;
                assert!(!live.contains_key(row.name.as_str()), "gone, but it lives");
            }
            Event::AccountPlanned { account } => {
                let taken = self.rows.contains_key(account.name.as_str());
                assert!(!taken, "a name was planned twice");
            }
            _ => {}
        }
    }

    /// A rotation that waits for room may delete the oldest once the deadline of the compromise before it
    /// has passed.
    fn excuse_crowd(&mut self, record: &PullSecret, account: &Account, at: Timestamp) {
        let waits = record.rotation().is_some_and(|r| r.phase == RotationPhase::Pending);
        let deadline = record.served().map(|served| served.since.plus(HOUR));
        if waits && deadline.is_some_and(|deadline| deadline <= at) {
            self.excused.insert(account.id);
        }
    }

    /// Every announcement has exactly one outcome, and no outcome comes without one.
    fn pair(&mut self, event: &Event) {
        match event {
            Event::CallAnnounced { account_id, call, token, .. } => {
                assert!(self.tokens.insert(*token), "a token was used twice");
                let open = self.open.insert(*account_id, (*call, self.steps));
                assert_eq!(open, None, "two calls on one name");
            }
            Event::CallFailed { account_id, .. }
            | Event::CallLost { account_id, .. }
            | Event::NameTaken { account_id, .. }
            | Event::AccountCreated { account_id, .. }
            | Event::AccountRefused { account_id, .. }
            | Event::AccountBurnt { account_id, .. }
            | Event::GoneUnsettled { account_id, .. }
            | Event::AccountResidue { account_id, .. } => {
                assert!(self.open.remove(account_id).is_some(), "an outcome of no call: {event:?}");
            }
            Event::AccountVerified { account_id, .. } => {
                let (_, began) = self.open.remove(account_id).expect("a call");
                self.valid.insert(*account_id, began);
            }
            Event::AccountGone { account_id, .. } => {
                self.open.remove(account_id);
            }
            _ => {}
        }
    }

    /// What was handed out is deleted by a rotation only after a login with each served account that
    /// began after the decision, told without any clock.
    fn served_was_verified(&self, record: &PullSecret) {
        for account in &record.accounts {
            if account.phase == AccountPhase::Serving {
                let verified = self.valid.get(&account.id).is_some_and(|at| *at > self.decided);
                assert!(verified, "a deletion without a verification after the decision");
            }
        }
    }

    /// DELETE excuses every account; a retirement without proof only what is no longer served.
    fn excuse(&mut self, state: Option<&PullSecret>, is: impl Fn(AccountPhase) -> bool) {
        let accounts = state.iter().flat_map(|record| &record.accounts);
        self.excused.extend(accounts.filter(|account| is(account.phase)).map(|account| account.id));
    }

    /// The end of a step, before the record is compacted.
    pub fn step(&mut self, events: &[Event], state: Option<&PullSecret>, now: Timestamp) {
        self.steps += 1;
        for (index, event) in events.iter().enumerate() {
            assert!(!events[..index].contains(event), "twice in one step: {event:?}");
        }
        let Some(record) = state else {
            assert!(self.open.is_empty(), "a record went with calls running");
            return;
        };
        for account in &record.accounts {
            let open = self.open.get(&account.id).map(|(call, _)| *call);
            assert_eq!(account.call.map(|running| running.call), open, "calls and audit agree");
            self.rows.insert(account.name.to_string(), account.clone());
            if account.phase == AccountPhase::Serving {
                self.ever_served.insert(account.id);
            }
        }
        let wanted = effects(record, now);
        let mut once = BTreeSet::new();
        for effect in &wanted {
            assert!(!self.open.contains_key(&effect.account_id), "wanted while one is running");
            assert!(once.insert(effect.account_id), "two calls wanted for one account");
        }
        for rotation in &record.ended {
            assert!(self.ended_rotations.insert(rotation.id), "a rotation ended twice");
            let completed = rotation.status() == RotationStatus::Completed;
            if let (true, Some(slot)) = (completed, rotation.slot) {
                assert!(self.ended_slots.insert(slot), "a slot completed twice");
            }
        }
    }

    /// GET answered with this generation.
    pub fn read(&mut self, generation: Generation) {
        let older = generation < self.last_read;
        assert!(!older || self.rollback_asked, "an older generation after a newer one");
        self.last_read = generation;
        self.rollback_asked &= !older;
    }
}

impl World {
    /// The invariants, from the registries' own record.
    pub(super) fn judge_registries(&mut self) {
        for (registry_id, registry) in &self.registries {
            self.judge_live(registry_id, registry);
            for (name, count) in &registry.creations {
                assert!(*count <= 1, "{name} was created {count} times");
            }
            for name in &registry.foreign {
                assert!(registry.live.contains_key(name), "{name} is foreign and was deleted");
            }
        }
        self.judge_served();
        self.judge_deletions();
    }

    fn judge_live(&self, registry_id: &RegistryId, registry: &SimRegistry) {
        let judge = &self.judge;
        let mut generations = BTreeSet::new();
        for (name, live) in &registry.live {
            if live.foreign {
                continue;
            }
            let row = judge.rows.get(name).unwrap_or_else(|| panic!("{name} has no row"));
            if judge.forced.contains(&row.id) {
                continue;
            }
            assert_ne!(row.phase, AccountPhase::Gone, "{name} lives though it is gone");
            let known = self.state.as_ref().is_some_and(|r| r.account(row.id).is_some());
            assert!(known, "{name} lives and no row names it");
            let dead = judge.found_dead.contains(&row.id);
            if !dead && !matches!(row.phase, AccountPhase::Burnt | AccountPhase::Residue) {
                generations.insert(row.born_generation);
            }
        }
        // The successor of a served account that was found dead does not wait for room.
        let most = match (judge.found_dead.is_empty(), judge.compromised) {
            (false, true) => return,
            (true, true) => 3,
            (_, false) => 2,
        };
        assert!(generations.len() <= most, "{registry_id}: {generations:?} live");
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
            let name = serving[0].name.as_str();
            let registry = &self.registries[id];
            let secret = self.secrets.get(&serving[0].id);
            let works = registry.live.get(name).is_some_and(|found| Some(&found.secret) == secret);
            assert!(works || registry.broken.contains(name), "what GET returns is dead at {id}");
            assert!(self.judge.valid.contains_key(&serving[0].id), "served and never verified");
        }
    }

    /// No credential that a known consumer holds is deleted, unless an operator or a policy said so.
    fn judge_deletions(&mut self) {
        let ttl = self.policy.consumer_ttl;
        let judge = &self.judge;
        for registry in self.registries.values_mut() {
            for (at, name) in registry.deletions.drain(..) {
                let row = &judge.rows[&name];
                if judge.excused.contains(&row.id) || !judge.ever_served.contains(&row.id) {
                    continue;
                }
                for holder in &self.holders {
                    let known = holder.seen_at.is_some_and(|seen| at.since(seen) < ttl);
                    let holds = holder.accounts.contains(&row.id);
                    assert!(!(known && holds), "{name} was deleted under a consumer");
                }
            }
        }
    }
}
