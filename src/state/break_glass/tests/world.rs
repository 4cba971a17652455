//! A simulated world around the machine: a store that survives crashes, a clock that may jump, calls that are
//! slow, get lost or come back late.

use std::time::Duration;

use uuid::Uuid;

use super::super::*;
use super::judge::Judge;
use super::outside::{JUMPS, Outside};
use super::told::{DAY, policy};
use crate::ids::{CallToken, ClusterId, CredentialId, RevocationId};

#[derive(Debug, Clone)]
struct InFlight {
    subject: Subject,
    call: Call,
    token: CallToken,
    answer: Option<Answer>,
}

pub struct World {
    pub now: Timestamp,
    pub policy: Policy,
    pub rules: ClusterRules,
    pub state: Option<BreakGlass>,
    pub outside: Outside,
    pub judge: Judge,
    pub story: Vec<(Timestamp, Command, Vec<Event>)>,
    flight: Vec<InFlight>,
    seed: u128,
    /// The latest time that the clock has shown.
    latest: Timestamp,
}

impl World {
    pub fn new(seed: u128, signer: Signer, servers: usize, approval: bool) -> Self {
        let endpoints: Vec<String> =
            (0..servers).map(|n| format!("https://api-{n}:6443")).collect();
        let outside = Outside::new(&endpoints);
        Self {
            now: Timestamp::from_micros(1_800_000_000_000_000),
            policy: Policy { approval_required: approval, ..policy() },
            rules: ClusterRules { signer, endpoints },
            state: None,
            outside,
            judge: Judge::default(),
            story: Vec::new(),
            flight: Vec::new(),
            seed,
            latest: Timestamp::EPOCH,
        }
    }

    fn entropy(&mut self) -> Entropy {
        self.seed =
            self.seed.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        Entropy::from_seed(self.seed)
    }

    fn uuid(&mut self) -> Uuid {
        let now = self.now;
        self.entropy().uuid(now)
    }

    fn cluster_id(&self) -> ClusterId {
        "cls-sim".parse().unwrap()
    }

    /// One transaction: decide, apply, store.
    pub fn command(&mut self, command: &Command) -> Result<Vec<Event>, Rejection> {
        let entropy = self.entropy();
        let (now, time_is_certain) = (self.now, true);
        let context =
            Context { now, policy: &self.policy, rules: &self.rules, entropy, time_is_certain };
        let events = decide(self.state.as_ref(), command, &context)?;
        assert!(events.len() < 300, "a step that does not end: {events:?}");
        self.story.push((self.now, command.clone(), events.clone()));
        if let Command::ConfirmBundle { version } = command {
            self.judge.confirm(*version);
        }
        let mut state = self.state.clone();
        for event in &events {
            self.judge.note(event, state.as_ref(), &self.outside, self.now);
            state = apply(state, event);
        }
        if let Some(record) = &state {
            self.judge.step(record, &events, self.now);
        }
        self.state = state.map(BreakGlass::compact);
        Ok(events)
    }

    /// Announces what is due; the calls are on their way then.
    pub fn announce(&mut self) -> bool {
        let wanted = self.state.iter().flat_map(|record| effects(record, self.now));
        let due: Vec<Effect> = wanted.filter(|effect| effect.due <= self.now).collect();
        for effect in &due {
            let (subject, call, token) = (effect.subject, effect.call, CallToken(self.uuid()));
            self.command(&Command::Announce { subject, call, token }).expect("it is wanted");
            self.flight.push(InFlight { subject, call, token, answer: None });
        }
        !due.is_empty()
    }

    /// A call on its way reaches the outside; its answer is on its way back.
    pub fn perform(&mut self, which: usize, choice: u16) {
        let waiting: Vec<usize> =
            (0..self.flight.len()).filter(|index| self.flight[*index].answer.is_none()).collect();
        let (Some(record), false) = (&self.state, waiting.is_empty()) else { return };
        let index = waiting[which % waiting.len()];
        let (subject, call) = (self.flight[index].subject, self.flight[index].call);
        // The fence: whoever is no longer current sends nothing.
        let current = record.call_of(subject).is_some_and(|c| c.token == self.flight[index].token);
        if !current {
            self.flight.remove(index);
            return;
        }
        let answer = self.outside.perform(record, (subject, call), self.now, choice);
        self.flight[index].answer = Some(answer);
    }

    /// An answer arrives, or is lost on the way.
    pub fn deliver(&mut self, which: usize, lost: bool) {
        let answered: Vec<usize> =
            (0..self.flight.len()).filter(|index| self.flight[*index].answer.is_some()).collect();
        if answered.is_empty() {
            return;
        }
        let InFlight { subject, call, token, answer } =
            self.flight.remove(answered[which % answered.len()]);
        let answer = answer.filter(|_| !lost).unwrap_or_else(|| Answer::lost(call, "lost"));
        match self.command(&Command::Answer { subject, token, answer }) {
            Ok(_) | Err(Rejection::NotCurrent) => {}
            Err(other) => panic!("an outcome was refused: {other}"),
        }
    }

    pub fn request(&mut self, choice: u16) {
        let credential_id = CredentialId(self.uuid());
        let own = self.rules.signer == Signer::LocalCa || choice.is_multiple_of(2);
        let _ = self.command(&Command::Request {
            cluster_id: self.cluster_id(),
            credential_id,
            username: choice.is_multiple_of(3).then(|| format!("name-{}", choice % 4)),
            expires_at: self.now.plus(DAY),
            signing_request: (!own).then(|| "a request".to_owned()),
            by: "alice".to_owned(),
            reason: None,
        });
    }

    pub fn revoke_all(&mut self) {
        let (cluster_id, revocation_id) = (self.cluster_id(), RevocationId(self.uuid()));
        let by = "alice".to_owned();
        let _ = self.command(&Command::RevokeAll { cluster_id, revocation_id, by, reason: None });
    }

    pub fn step(&mut self, choice: u16) {
        self.latest = self.latest.max(self.now);
        let (kind, rest) = (choice % 32, choice / 32);
        let pick = usize::from(rest);
        let some = self.state.as_ref().and_then(|record| {
            let known = &record.credentials;
            (!known.is_empty()).then(|| known[pick % known.len()].id)
        });
        match kind {
            0..3 => self.request(rest),
            3 => self.revoke_all(),
            4 => {
                let Some(credential_id) = some else { return };
                let (revocation_id, by) = (RevocationId(self.uuid()), "alice".to_owned());
                let _ = self.command(&Command::RevokeOne {
                    credential_id,
                    revocation_id,
                    by,
                    reason: None,
                });
            }
            5 => {
                let Some(credential_id) = some else { return };
                let by = if rest.is_multiple_of(2) { "alice" } else { "bob" }.to_owned();
                let command = if rest.is_multiple_of(3) {
                    Command::Deny { credential_id, by, reason: None }
                } else {
                    Command::Approve { credential_id, by }
                };
                let _ = self.command(&command);
            }
            6..12 => {
                self.announce();
            }
            12..18 => self.perform(pick, rest),
            18..23 => self.deliver(pick, rest.is_multiple_of(7)),
            23 => {
                self.now = self.now.plus(Duration::from_secs(u64::from(rest % 60) + 1));
                let _ = self.command(&Command::Tick);
            }
            24 => {
                let jump = JUMPS[pick % JUMPS.len()];
                self.now =
                    if rest.is_multiple_of(3) { self.now.minus(jump) } else { self.now.plus(jump) };
                let _ = self.command(&Command::Tick);
            }
            // The process dies: what was on its way may still be applied, nobody hears of it.
            25 => {
                if rest.is_multiple_of(2) {
                    self.perform(pick, rest);
                }
                self.flight.clear();
                let _ = self.command(&Command::TakeOver);
            }
            26 | 27 => self.outside.reload(pick, self.state.as_ref()),
            28 => {
                let count = self.outside.servers.len().max(1);
                if let Some(server) = self.outside.servers.values_mut().nth(pick % count) {
                    (server.down, server.deaf) = (rest.is_multiple_of(2), rest.is_multiple_of(3));
                }
            }
            29 => self.confirm(),
            30 => {
                let cluster_id = self.cluster_id();
                let _ = self.command(&Command::WantBundle { cluster_id });
            }
            _ => {
                let retry_at = self.now.plus(Duration::from_secs(60));
                let _ = self.command(&Command::Quarantine { retry_at });
            }
        }
    }

    fn confirm(&mut self) {
        let version = self.state.as_ref().map_or(0, |record| record.bundle_version);
        let _ = self.command(&Command::ConfirmBundle { version });
    }

    /// Everything heals, the clock too, and time goes on: whatever is running comes to its end.
    pub fn come_to_rest(&mut self) {
        self.now = self.latest.max(self.now);
        self.flight.clear();
        let _ = self.command(&Command::TakeOver);
        for round in 0..3000_u32 {
            self.outside.heal(self.state.as_ref());
            self.confirm();
            while self.announce() {
                while !self.flight.is_empty() {
                    self.perform(0, 7);
                    self.deliver(0, false);
                }
            }
            if self.is_at_rest() {
                return;
            }
            let due =
                self.state.as_ref().and_then(|record| due_at(record, &self.policy, &self.rules));
            let due = due
                .unwrap_or_else(|| panic!("nothing is due, nothing is at rest: {:?}", self.state));
            assert!(due > self.now || round == 0, "due and nothing to do: {:?}", self.state);
            self.now = self.now.max(due);
            let _ = self.command(&Command::Tick);
        }
        panic!("no rest: {:?}", self.state);
    }

    fn is_at_rest(&self) -> bool {
        let Some(record) = &self.state else { return true };
        let running = record.revocations.iter().any(Revocation::is_running);
        record.live().next().is_none() && !running && record.quarantine.is_none()
    }
}
