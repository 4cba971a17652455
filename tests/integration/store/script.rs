//! Histories for the store to keep: the real machine, told random but plausible things. What registries would
//! say is drawn by lot; that it makes sense is the machine's business and tested there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::actors::audit::{Caller, rows};
use hyperfleet_credentials::actors::step::Working;
use hyperfleet_credentials::ids::{AccountId, CallToken, ClusterId, Generation, RotationId};
use hyperfleet_credentials::state::pull_secret::{
    Account, Answer, Backoff, Call, Change, Command, Context, CreateAnswer, Entropy, Event,
    Evidence, EvidenceSource, EvidenceSubject, Failure, LookupAnswer, OnDeadline, Ownership,
    Policy, PullSecret, RegistryPolicy, RevokeAnswer, RotationReason, ScheduleChange, VerifyAnswer,
    apply, decide, due_at, effects,
};
use hyperfleet_credentials::store::{
    Commit, Loaded, OwnedBy, SealedSecret, Store, StoreError, StuckAfter, Turn, gone_how,
};
use hyperfleet_credentials::time::Timestamp;
use hyperfleet_credentials::window::Window;
use uuid::Uuid;

use super::replicas::replica;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
/// Of both kinds of credential.
pub const STUCK_AFTER: StuckAfter = StuckAfter { pull_secrets: HOUR, break_glass: HOUR };

pub fn start() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

pub fn policy() -> Policy {
    let registry = RegistryPolicy {
        enabled: true,
        prefix: "hyp".to_owned(),
        timeout: Duration::from_secs(10),
        settle_time: 10 * MINUTE,
        own_secret: false,
    };
    let registries = ["harbor", "quay"].map(|id| (id.parse().unwrap(), registry.clone()));
    Policy {
        interval: Some(90 * 24 * HOUR),
        spread: 0.1,
        window: None,
        drift_interval: Some(24 * HOUR),
        reissue: true,
        min_overlap: 2 * HOUR,
        grace_period: 24 * HOUR,
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
        registries: BTreeMap::from(registries),
    }
}

/// One cluster's history. Knows what was committed, so that it can be compared with what is read.
pub struct Script {
    pub cluster_id: ClusterId,
    pub policy: Policy,
    pub now: Timestamp,
    /// The committed state, not compacted: what the last step left.
    pub last: Option<PullSecret>,
    pub version: u64,
    pub last_generation: Generation,
    pub ownership: OwnedBy,
    /// Lets a registry refuse, lose answers, block.
    pub trouble: bool,
    /// Whether a rotation may begin.
    pub may_start: bool,
    /// What the next commits do with the cluster's turn.
    pub turn: Option<Turn>,
    /// Owners come and go.
    pub owners: bool,
    /// Every call fails, for as long as it takes to be given up.
    down: bool,
    seed: u128,
}

impl Script {
    pub fn new(cluster_id: &str, seed: u128) -> Self {
        Self {
            cluster_id: cluster_id.parse().unwrap(),
            policy: policy(),
            now: start(),
            last: None,
            version: 0,
            last_generation: Generation::NONE,
            ownership: OwnedBy::default(),
            trouble: true,
            may_start: true,
            turn: None,
            owners: false,
            down: false,
            // Scripts of different clusters must not draw the same ids.
            seed: cluster_id.bytes().fold(seed.wrapping_add(7), |hash: u128, byte| {
                // Wide, so that a neighbour's name and a neighbouring seed do not cancel out.
                hash.wrapping_mul(0x1000_0000_01b3).wrapping_add(u128::from(byte))
            }),
        }
    }

    /// The state as a reader has to see it.
    pub fn state(&self) -> Option<PullSecret> {
        self.last.clone().map(PullSecret::compact)
    }

    pub fn loaded(&self) -> Loaded {
        let (version, last_generation) = (self.version, self.last_generation);
        Loaded { record: self.state(), version, last_generation, ownership: self.ownership }
    }

    fn draw(&mut self) -> u128 {
        self.seed =
            self.seed.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.seed >> 64
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draw() >> 3).unwrap_or(0) % end.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn uuid(&mut self) -> Uuid {
        let seed = self.draw() << 64 | self.draw();
        Entropy::from_seed(seed).uuid(self.now)
    }

    /// What the command does to the state, without storing it.
    pub fn decide(&mut self, command: &Command) -> Option<(Vec<Event>, Option<PullSecret>)> {
        let before = self.state();
        let entropy = Entropy::from_seed(self.draw() << 64 | self.draw());
        let context = Context {
            now: self.now,
            policy: &self.policy,
            entropy,
            last_generation: self.last_generation,
            may_start: self.may_start,
            time_is_trusted: true,
            restored_at: None,
        };
        let events = decide(before.as_ref(), command, &context).ok()?;
        let after = events.iter().fold(before, apply);
        Some((events, after))
    }

    /// One step: decides, and commits what follows to each store. False when nothing followed.
    pub async fn command(&mut self, stores: &[Arc<dyn Store>], command: &Command) -> bool {
        let Some((events, after)) = self.decide(command) else { return false };
        if events.is_empty() {
            return false;
        }
        let before = self.state();
        let working = Working {
            record: before.clone(),
            version: self.version,
            last_generation: self.last_generation,
            ownership: self.ownership,
        };
        let owner = self.ownership.owner.filter(|_| !self.owners || self.chance(75));
        let owner = if self.owners && self.chance(25) { Some(replica(2)) } else { owner };
        let caller =
            Caller { actor: "system".to_owned(), reason: None, request_id: None, trace_id: None };
        let new = |account: &Account| account.created_at.is_some();
        let known = |id| before.as_ref().and_then(|record| record.account(id)).is_some_and(new);
        let made = after.iter().flat_map(|record| &record.accounts).filter(|a| new(a));
        let made = made.filter(|account| !known(account.id));
        let commit = Commit {
            ownership: self.ownership,
            owner,
            due_at: after.as_ref().and_then(|record| due_at(record, &self.policy)),
            gone_how: gone_how(&events),
            turn: self.turn,
            secrets: made.map(|account| (account.id, sealed(account.id, "k1"))).collect(),
            audit: rows(&self.cluster_id, &working, after.as_ref(), &events, &caller, self.now),
            ..Commit::new(&self.cluster_id, self.version, before.as_ref(), after.as_ref(), self.now)
        };
        for store in stores {
            assert_eq!(store.commit(commit.clone()).await, Ok(self.version + 1), "{command:?}");
        }
        self.version += 1;
        if let Some(record) = &after {
            self.last_generation = self.last_generation.max(record.last_generation);
        }
        let passed = self.ownership.passed_to(owner);
        self.ownership = if after.is_some() { passed } else { OwnedBy::default() };
        self.last = after;
        true
    }

    /// Time passes, then something happens.
    pub async fn step(&mut self, stores: &[Arc<dyn Store>]) {
        let pause = [1, 5, 60, 300, 3600, 7200, 90_000][self.below(7)];
        let micros = u64::try_from(self.below(1_000_000)).unwrap();
        self.now = self.now.plus(Duration::from_secs(pause)).plus(Duration::from_micros(micros));
        self.command(stores, &Command::Tick).await;
        if self.chance(3) {
            self.down = !self.down;
        }
        if self.chance(75) {
            self.work(stores).await;
            return;
        }
        let command = self.any_command();
        self.command(stores, &command).await;
    }

    /// Makes every call that is due, and has it answered.
    pub async fn work(&mut self, stores: &[Arc<dyn Store>]) {
        let due = self.state().map(|record| effects(&record, self.now)).unwrap_or_default();
        let now = self.now;
        for effect in due.into_iter().filter(|effect| effect.due <= now) {
            let token = CallToken(self.uuid());
            let (account_id, call) = (effect.account_id, effect.call);
            if !self.command(stores, &Command::Announce { account_id, call, token }).await {
                continue;
            }
            if self.trouble && self.chance(5) {
                continue;
            }
            let answer = self.answer(account_id, call);
            self.command(stores, &Command::Answer { account_id, token, answer }).await;
        }
    }

    /// A healthy registry works until nothing is due.
    pub async fn settle(&mut self, stores: &[Arc<dyn Store>]) {
        let healthy = std::mem::replace(&mut self.trouble, false);
        for _ in 0..12 {
            self.work(stores).await;
            self.command(stores, &Command::Tick).await;
        }
        self.trouble = healthy;
    }

    fn answer(&mut self, account_id: AccountId, call: Call) -> Answer {
        let lot = match (self.trouble, self.down) {
            (false, _) => 0,
            (true, false) => self.below(100),
            (true, true) => 89,
        };
        let failure = Failure {
            message: "registry says 503".to_owned(),
            retry_after: None,
            blocked: lot.is_multiple_of(2),
        };
        let username = format!("org+{account_id}");
        let remote_id = Some("42".to_owned());
        match call {
            Call::Create => Answer::Create(match lot {
                0..70 => CreateAnswer::Created { remote_id, username },
                70..76 => CreateAnswer::AlreadyExists,
                76..80 => CreateAnswer::Refused("no room".to_owned()),
                80..90 => CreateAnswer::NotApplied(failure),
                _ => CreateAnswer::Unknown(failure),
            }),
            Call::Lookup => Answer::Lookup(match lot {
                0..40 => LookupAnswer::Absent,
                40..80 => LookupAnswer::Present {
                    remote_id,
                    username,
                    ownership: Ownership::ThisIntent,
                    adoptable: lot.is_multiple_of(2),
                },
                _ => LookupAnswer::Failed(failure),
            }),
            Call::Verify => Answer::Verify(match lot {
                0..80 => VerifyAnswer::Valid,
                80..90 => VerifyAnswer::Invalid,
                _ => VerifyAnswer::Failed(failure),
            }),
            Call::Revoke => Answer::Revoke(match lot {
                0..70 => RevokeAnswer::Done,
                70..80 => RevokeAnswer::AlreadyGone,
                80..88 => RevokeAnswer::Refused("protected".to_owned()),
                _ => RevokeAnswer::Failed(failure),
            }),
        }
    }

    pub fn rotate(&mut self, reason: RotationReason, force_immediate: bool) -> Command {
        Command::Rotate { rotation_id: RotationId(self.uuid()), reason, force_immediate }
    }

    pub fn issue(&self) -> Command {
        Command::Issue { cluster_id: self.cluster_id.clone(), registries: None }
    }

    fn any_command(&mut self) -> Command {
        let rotation = self.last.as_ref().and_then(|record| record.rotation());
        let running = rotation.map(|rotation| rotation.id);
        let rotation_id = running.unwrap_or(RotationId(Uuid::nil()));
        match self.below(19) {
            0..3 => self.issue(),
            16 => self.partly(),
            17 => Command::Reschedule(Box::new(self.reschedule())),
            18 => {
                let cluster_id = self.cluster_id.clone();
                let registries = Some(vec!["quay".parse().unwrap()]);
                Command::Issue { cluster_id, registries }
            }
            3..5 => self.rotate(RotationReason::Manual, false),
            5 => self.rotate(RotationReason::Compromise, false),
            6 => self.rotate(RotationReason::Scheduled, true),
            7 => Command::Complete { rotation_id },
            8 => Command::Extend { rotation_id, by: HOUR },
            9 => Command::Rollback { rotation_id },
            10 => Command::Cancel { rotation_id },
            11 if self.chance(40) => Command::Revoke,
            12 => Command::Quarantine { retry_at: self.now.plus(HOUR) },
            13 => Command::TakeOver,
            _ => self.observe(),
        }
    }

    /// Harbor comes or goes.
    fn partly(&mut self) -> Command {
        let harbor = vec!["harbor".parse().unwrap()];
        let (added, removed) =
            if self.chance(50) { (harbor, Vec::new()) } else { (Vec::new(), harbor) };
        Command::RotatePartly { rotation_id: RotationId(self.uuid()), added, removed }
    }

    fn reschedule(&mut self) -> ScheduleChange {
        let next_at = Change::To(self.now.plus(30 * HOUR));
        let window = Window::parse("15 2 * * MON-FRI", 90 * MINUTE).unwrap();
        ScheduleChange {
            enabled: if self.chance(30) { Change::To(false) } else { Change::To(true) },
            next_at: if self.chance(50) { next_at } else { Change::Clear },
            window: if self.chance(50) { Change::To(window) } else { Change::Clear },
        }
    }

    fn observe(&mut self) -> Command {
        let accounts = self.last.as_ref().map(|record| record.accounts.as_slice());
        let ids: Vec<_> = accounts.unwrap_or_default().iter().map(|account| account.id).collect();
        let adapter = self.chance(30) || ids.is_empty();
        let subject = if adapter {
            EvidenceSubject::Generation(self.last_generation)
        } else {
            EvidenceSubject::Account(ids[self.below(ids.len())])
        };
        Command::Observe(Evidence {
            source: if adapter { EvidenceSource::Adapter } else { EvidenceSource::Heartbeat },
            consumer: format!("pool-{}", self.below(4)),
            subject,
            observed_at: self.now,
        })
    }
}

pub fn sealed(id: AccountId, key_id: &str) -> SealedSecret {
    SealedSecret { key_id: key_id.to_owned(), bytes: format!("{key_id}/{id}").into_bytes() }
}

/// A cluster with a served generation.
pub async fn served(store: &Arc<dyn Store>, cluster_id: &str) -> Script {
    let stores = [Arc::clone(store)];
    let mut script = Script::new(cluster_id, 1);
    assert!(script.command(&stores, &script.issue()).await);
    script.settle(&stores).await;
    assert_eq!(script.last.as_ref().map(PullSecret::generation), Some(Generation(1)));
    script
}

/// The error of a commit that must not succeed.
pub async fn refused(store: &Arc<dyn Store>, commit: Commit<'_>) -> StoreError {
    store.commit(commit).await.unwrap_err()
}
