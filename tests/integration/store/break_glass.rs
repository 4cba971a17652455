//! Break-glass credentials: what every backend keeps, finds, lists and lets pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::{CallToken, ClusterId, CredentialId, ReplicaId, RevocationId};
use hyperfleet_credentials::state::break_glass::{
    Answer, BreakGlass, Call, CheckAnswer, ClusterRules, CollectAnswer, Command, Context,
    Credential, EndorseAnswer, EndpointSeen, MakeAnswer, Policy, ProbeAnswer, Rejection,
    RotateAnswer, Signer, StateName, Subject, SubmitAnswer, Surface, Verdict, apply, decide,
    due_at, effects, removable_at,
};
use hyperfleet_credentials::state::shared::{Backoff, Entropy};
use hyperfleet_credentials::store::break_glass::{
    BreakGlassCommit, BreakGlassPurge, BreakGlassStore, CertificateKind, CredentialQuery,
    KeyPurpose, Material,
};
use hyperfleet_credentials::store::search::{parse_order, parse_search};
use hyperfleet_credentials::store::{
    MemoryStore, OwnedBy, PgStore, SealedSecret, SqliteStore, Store as _, StoreError,
};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

use super::backends::{migrated_database, url};
use super::replicas::replica;

macro_rules! conforms {
    ($($name:ident),+ $(,)?) => {
        mod over_memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(std::sync::Arc::new(super::MemoryStore::new())).await;
            })+
        }
        mod over_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(super::sqlite(&dir).await).await;
            })+
        }
        mod over_postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::postgres().await).await;
            })+
        }
    };
}

conforms!(
    every_step_comes_back_as_it_was,
    a_lost_race_writes_nothing,
    lists_find_what_the_search_says_in_the_order_that_was_asked_for,
    keys_go_as_soon_as_nothing_needs_them_and_are_sealed_anew,
    what_has_ended_passes_by_the_machines_rule,
    revocations_are_listed_newest_first,
    a_cluster_is_due_once,
    an_owner_that_changed_guards_every_write,
    what_is_in_trouble_for_long_is_counted,
);

async fn sqlite(dir: &tempfile::TempDir) -> Arc<dyn BreakGlassStore> {
    let store = SqliteStore::open(&url(dir), 2).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

async fn postgres() -> Arc<dyn BreakGlassStore> {
    Arc::new(PgStore::open(&migrated_database().await, 4).await.unwrap())
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn policy() -> Policy {
    let retry = Backoff { initial: MINUTE / 12, factor: 2.0, max: 60 * MINUTE, jitter: 0.2 };
    Policy {
        approval_required: false,
        issue_deadline: 10 * MINUTE,
        probe_interval: MINUTE / 6,
        probe_successes: 2,
        call_timeout: MINUTE / 6,
        retry,
        denied_after: 2 * DAY,
        failed_after: 3 * DAY,
        history_after: 90 * DAY,
    }
}

/// One cluster, stored step by step.
struct Script {
    store: Arc<dyn BreakGlassStore>,
    cluster_id: ClusterId,
    record: Option<BreakGlass>,
    version: u64,
    now: Timestamp,
    policy: Policy,
    rules: ClusterRules,
    seed: u64,
    /// The latest row of everything that ever was.
    rows: BTreeMap<CredentialId, Credential>,
}

fn key(key_id: &str, text: &str) -> SealedSecret {
    SealedSecret { key_id: key_id.to_owned(), bytes: text.as_bytes().to_vec() }
}

impl Script {
    fn new(
        store: &Arc<dyn BreakGlassStore>,
        cluster: &str,
        signer: Signer,
        endpoints: &[&str],
    ) -> Self {
        Self {
            store: Arc::clone(store),
            cluster_id: cluster.parse().unwrap(),
            record: None,
            version: 0,
            now: Timestamp::from_micros(1_800_000_000_000_000),
            policy: policy(),
            rules: ClusterRules {
                signer,
                endpoints: endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
            },
            seed: cluster.bytes().fold(1, |seed, byte| seed * 31 + u64::from(byte)),
            rows: BTreeMap::new(),
        }
    }

    fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    fn uuid(&mut self) -> Uuid {
        let seed = u128::from(self.random()) << 64 | u128::from(self.random());
        Entropy::from_seed(seed).uuid(self.now)
    }

    fn decide(&mut self, command: &Command) -> Result<Option<BreakGlass>, Rejection> {
        let entropy = Entropy::from_seed(u128::from(self.random()));
        let (now, time_is_certain) = (self.now, true);
        let context =
            Context { now, policy: &self.policy, rules: &self.rules, entropy, time_is_certain };
        let events = decide(self.record.as_ref(), command, &context)?;
        Ok(events.iter().fold(self.record.clone(), apply))
    }

    async fn tell(&mut self, command: &Command) -> Result<(), Rejection> {
        self.tell_with(command, Vec::new()).await
    }

    async fn tell_with(
        &mut self,
        command: &Command,
        keys: Vec<(Uuid, KeyPurpose, SealedSecret)>,
    ) -> Result<(), Rejection> {
        let after = self.decide(command)?;
        let Some(after) = after.filter(|after| self.record.as_ref() != Some(after)) else {
            return Ok(());
        };
        let commit = BreakGlassCommit {
            due_at: due_at(&after, &self.policy, &self.rules),
            keys,
            ..BreakGlassCommit::new(
                &self.cluster_id,
                self.version,
                self.record.as_ref(),
                &after,
                self.now,
            )
        };
        self.version = self.store.commit_break_glass(commit).await.unwrap();
        for credential in &after.credentials {
            self.rows.insert(credential.id, credential.clone());
        }
        let mut after = after.compact();
        after.credentials.sort_by_key(|credential| credential.id);
        after.revocations.sort_by_key(|revocation| revocation.id);
        after.authorities.sort_by_key(|authority| authority.id);
        self.record = Some(after);
        Ok(())
    }

    async fn request(&mut self, username: &str) -> CredentialId {
        let credential_id = CredentialId(self.uuid());
        let command = self.request_command(credential_id, Some(username));
        self.tell(&command).await.unwrap();
        credential_id
    }

    fn request_command(&self, credential_id: CredentialId, username: Option<&str>) -> Command {
        Command::Request {
            cluster_id: self.cluster_id.clone(),
            credential_id,
            username: username.map(str::to_owned),
            expires_at: self.now.plus(DAY),
            signing_request: None,
            by: "alice".to_owned(),
            reason: Some("incident 7".to_owned()),
        }
    }

    async fn revoke_all(&mut self) {
        let command = self.revoke_all_command();
        self.tell(&command).await.unwrap();
    }

    fn revoke_all_command(&mut self) -> Command {
        let (cluster_id, revocation_id) = (self.cluster_id.clone(), RevocationId(self.uuid()));
        Command::RevokeAll { cluster_id, revocation_id, by: "alice".to_owned(), reason: None }
    }

    /// Announces one due call and answers it.
    async fn call(
        &mut self,
        call: Call,
        answer: Answer,
        keys: Vec<(Uuid, KeyPurpose, SealedSecret)>,
    ) {
        let wanted = effects(self.record.as_ref().unwrap(), self.now);
        let subject = wanted.iter().find(|effect| effect.call == call).unwrap().subject;
        let token = CallToken(self.uuid());
        self.tell(&Command::Announce { subject, call, token }).await.unwrap();
        self.tell_with(&Command::Answer { subject, token, answer }, keys).await.unwrap();
    }

    async fn sign(&mut self, id: CredentialId) {
        let signed = Answer::Submit(SubmitAnswer::Signed { not_after: self.now.plus(DAY) });
        let keys = vec![
            (id.0, KeyPurpose::Credential, key("k1", "credential")),
            (id.0, KeyPurpose::Probe, key("k1", "probe")),
        ];
        self.call(Call::Submit, signed, keys).await;
    }

    /// Any command that may come now.
    fn any(&mut self) -> Command {
        let record = self.record.clone();
        let known = record.as_ref().map_or(&[][..], |record| record.credentials.as_slice());
        let pick = usize::try_from(self.random()).unwrap();
        let some = known.get(pick % known.len().max(1)).map(|credential| credential.id);
        let credential_id = some.unwrap_or(CredentialId(self.uuid()));
        let version = record.as_ref().map_or(0, |record| record.bundle_version);
        match self.random() % 24 {
            0..3 => {
                let id = CredentialId(self.uuid());
                self.request_command(id, None)
            }
            3 => Command::Approve { credential_id, by: "bob".to_owned() },
            4 => Command::Deny { credential_id, by: "bob".to_owned(), reason: None },
            5 => self.revoke_all_command(),
            6 => {
                let revocation_id = RevocationId(self.uuid());
                let by = "alice".to_owned();
                Command::RevokeOne { credential_id, revocation_id, by, reason: None }
            }
            7 => Command::WantBundle { cluster_id: self.cluster_id.clone() },
            8 => Command::ConfirmBundle { version },
            9 => Command::TakeOver,
            10 if pick.is_multiple_of(8) => Command::Quarantine { retry_at: self.now.plus(MINUTE) },
            10 => {
                self.now = self.now.plus(MINUTE);
                Command::Tick
            }
            11..17 => {
                let wanted = record.as_ref().map(|record| effects(record, self.now));
                let due = |effect: &hyperfleet_credentials::state::break_glass::Effect| {
                    effect.due <= self.now
                };
                match wanted.unwrap_or_default().into_iter().find(due) {
                    Some(effect) => {
                        let token = CallToken(self.uuid());
                        Command::Announce { subject: effect.subject, call: effect.call, token }
                    }
                    None => Command::Tick,
                }
            }
            17..23 => {
                let running = record.as_ref().and_then(|record| record.calls().next());
                match running {
                    Some((subject, running)) => {
                        let (token, answer) = (running.token, self.answer(running.call));
                        Command::Answer { subject, token, answer }
                    }
                    None => Command::Tick,
                }
            }
            _ => {
                let far = [MINUTE / 60, MINUTE, 10 * MINUTE, DAY][pick % 4];
                self.now = self.now.plus(far);
                Command::Tick
            }
        }
    }

    fn answer(&mut self, call: Call) -> Answer {
        let pick = self.random();
        let not_after = self.now.plus(DAY);
        if pick.is_multiple_of(5) {
            return Answer::lost(call, "lost");
        }
        let verdict = if pick.is_multiple_of(3) { Verdict::Accepted } else { Verdict::Rejected };
        match call {
            Call::Submit if self.rules.signer == Signer::KubernetesCsr => {
                Answer::Submit(SubmitAnswer::Submitted)
            }
            Call::Submit => Answer::Submit(SubmitAnswer::Signed { not_after }),
            Call::Endorse => Answer::Endorse(EndorseAnswer::Endorsed),
            Call::Collect => Answer::Collect(CollectAnswer::Signed { not_after }),
            Call::Probe => {
                let control = Verdict::Accepted;
                let seen = self.rules.endpoints.iter().map(|endpoint| EndpointSeen {
                    endpoint: endpoint.clone(),
                    verdict: verdict.clone(),
                    control: control.clone(),
                });
                Answer::Probe(ProbeAnswer::Seen(seen.collect()))
            }
            Call::Rotate => Answer::Rotate(RotateAnswer::Begun),
            Call::Check if pick.is_multiple_of(4) => {
                Answer::Check(CheckAnswer::Running { progress: "TrustedBundle".to_owned() })
            }
            Call::Check => Answer::Check(CheckAnswer::Done { cut_off: Some(self.now) }),
            Call::Make => Answer::Make(MakeAnswer::Made { not_after: self.now.plus(2 * DAY) }),
        }
    }
}

async fn every_step_comes_back_as_it_was(store: Arc<dyn BreakGlassStore>) {
    let scripts = [
        ("cls-a", Signer::LocalCa, &["https://api-0:6443"][..], false),
        ("cls-b", Signer::KubernetesCsr, &[][..], true),
        ("cls-c", Signer::KubernetesCsr, &["https://api-0:6443", "https://api-1:6443"][..], false),
    ];
    for (cluster, signer, endpoints, approval) in scripts {
        let mut script = Script::new(&store, cluster, signer, endpoints);
        script.policy.approval_required = approval;
        for _ in 0..300 {
            let command = script.any();
            let _ = script.tell(&command).await;
            let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
            assert_eq!(loaded.version, script.version);
            assert_eq!(loaded.record, script.record, "{command:?}");
        }
        for (id, row) in script.rows.iter().filter(|(_, row)| !row.control) {
            let found = store.credential(&script.cluster_id, *id).await.unwrap();
            assert_eq!(found.as_ref(), Some(row));
        }
        assert!(script.rows.len() > 3, "{cluster}: hardly anything happened");
        // Only open calls are current.
        let calls: Vec<_> = script.record.as_ref().unwrap().calls().collect();
        for (subject, running) in calls {
            assert!(store.is_current_break_glass(subject, running.token).await.unwrap());
            let other = CallToken(script.uuid());
            assert!(!store.is_current_break_glass(subject, other).await.unwrap());
        }
    }
}

async fn a_lost_race_writes_nothing(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let mut other = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let id = CredentialId(other.uuid());
    let command = other.request_command(id, Some("bert"));
    let after = other.decide(&command).unwrap().unwrap();
    for expected in [0, 7] {
        let mut commit =
            BreakGlassCommit::new(&other.cluster_id, expected, None, &after, other.now);
        commit.keys = vec![(Uuid::from_u128(1), KeyPurpose::Probe, key("k1", "lost"))];
        assert_eq!(store.commit_break_glass(commit).await, Err(StoreError::Conflict));
    }
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!((loaded.version, loaded.record), (1, script.record));
    assert_eq!(store.sealed_key(Uuid::from_u128(1), KeyPurpose::Probe).await, Ok(None));
}

async fn lists_find_what_the_search_says_in_the_order_that_was_asked_for(
    store: Arc<dyn BreakGlassStore>,
) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    for name in ["anna", "Bert", "b_rt", "b%rt", "x[1]", "zoe*", "o'hara"] {
        script.now = script.now.plus(MINUTE / 60);
        let id = script.request(name).await;
        if name.len() == 4 {
            script.sign(id).await;
        }
    }
    // One of another cluster, which no list of this one shows.
    Script::new(&store, "cls-b", Signer::LocalCa, &[]).request("anna").await;
    let list = async |search: &str, order: &str, offset: u64, limit: Option<u32>| {
        let surface = Surface::ClustersMgmt;
        let search = parse_search(search, surface).unwrap();
        let order = parse_order(order).unwrap();
        let cluster_id = script.cluster_id.clone();
        let query = CredentialQuery { cluster_id, surface, search, order, offset, limit };
        let list = store.list_credentials(&query).await.unwrap();
        let names: Vec<String> = list.items.iter().map(|item| item.username.clone()).collect();
        (names, list.total)
    };
    let (all, total) = list("", "", 0, None).await;
    assert_eq!((all.len(), total), (7, 7));
    assert_eq!(all[0], "anna", "in the order in which they were asked for");
    let (names, total) = list("", "username desc", 2, Some(2)).await;
    assert_eq!((names, total), (vec!["o'hara".to_owned(), "b_rt".to_owned()], 7));
    assert_eq!(list("", "", 100, Some(10)).await, (vec![], 7), "past the end");
    let (names, _) = list("status='issued'", "status, username", 0, None).await;
    assert_eq!(names, ["Bert", "anna", "b%rt", "b_rt", "x[1]", "zoe*"]);
    // Every search finds what its own rule says.
    for text in [
        "username = 'anna' or username = 'Bert'",
        "username like 'b_rt'",
        "username like 'B%'",
        "username like '%[1]'",
        "username like 'zoe*'",
        "username like 'b%rt'",
        "username = 'o''hara'",
        "username not in ('anna', 'Bert')",
        "not (username = 'anna' and status = 'issued')",
        "status != 'issued'",
        "status in ('issued', 'created')",
        "id like '%a%'",
        "id = 'nothing'",
        "id != 'nothing'",
        "username like '\\%'",
        "username like '%?%'",
    ] {
        let search = parse_search(text, Surface::ClustersMgmt).unwrap().unwrap();
        let mut expected: Vec<&Credential> =
            script.rows.values().filter(|row| search.matches(row)).collect();
        expected.sort_by_key(|row| row.id);
        let expected: Vec<String> = expected.iter().map(|row| row.username.clone()).collect();
        let (names, total) = list(text, "id", 0, None).await;
        assert_eq!(total, u64::try_from(expected.len()).unwrap(), "{text}");
        assert_eq!(names, expected, "{text}");
    }
    for order in
        ["creation_timestamp desc", "expiration_timestamp", "revocation_timestamp desc, id"]
    {
        assert_eq!(list("", order, 0, None).await.1, 7, "{order}");
    }
}

async fn keys_go_as_soon_as_nothing_needs_them_and_are_sealed_anew(
    store: Arc<dyn BreakGlassStore>,
) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let id = script.request("anna").await;
    script.sign(id).await;
    let census = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(key, rows)| ((*key).to_owned(), *rows)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k1", 2)])));
    let mut after = None;
    while let [old] = &store.break_glass_sealed_otherwise("k2", after, 1).await.unwrap()[..] {
        let new = key("k2", "anew");
        assert_eq!(store.break_glass_reseal(old, &new).await, Ok(true));
        assert_eq!(store.break_glass_reseal(old, &new).await, Ok(false), "it is another one now");
        after = Some((old.owner, old.purpose));
    }
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k2", 2)])));
    assert_eq!(store.sealed_key(id.0, KeyPurpose::Probe).await, Ok(Some(key("k2", "anew"))));
    script.revoke_all().await;
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k2", 2)])), "not proved yet");
    let version = script.record.as_ref().unwrap().bundle_version;
    script.tell(&Command::ConfirmBundle { version }).await.unwrap();
    assert_eq!(script.rows[&id].state.name(), StateName::Revoked);
    assert_eq!(store.break_glass_key_census().await, Ok(BTreeMap::new()));
}

async fn what_has_ended_passes_by_the_machines_rule(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.policy.approval_required = true;
    for round in 0..3 {
        let by = "bob".to_owned();
        let credential_id = script.request(&format!("denied-{round}")).await;
        script.now = script.now.plus(DAY / 3);
        script.tell(&Command::Deny { credential_id, by: by.clone(), reason: None }).await.unwrap();
        let credential_id = script.request(&format!("failed-{round}")).await;
        script.tell(&Command::Approve { credential_id, by: by.clone() }).await.unwrap();
        script.now = script.now.plus(11 * MINUTE);
        script.tell(&Command::Tick).await.unwrap();
    }
    let live = script.request("live").await;
    // From before it was written down.
    let mut old = script.record.clone().unwrap();
    let mut ancient = script.rows.values().next().unwrap().clone();
    ancient.id = CredentialId(script.uuid());
    ancient.created_at = None;
    old.credentials.push(ancient.clone());
    let commit = BreakGlassCommit {
        material: vec![Material {
            owner: ancient.id.0,
            kind: CertificateKind::Credential,
            pem: "pem".to_owned(),
        }],
        ..BreakGlassCommit::new(
            &script.cluster_id,
            script.version,
            script.record.as_ref(),
            &old,
            script.now,
        )
    };
    store.commit_break_glass(commit).await.unwrap();
    script.rows.insert(ancient.id, ancient.clone());
    let start = script.now;
    for hour in 0..120 {
        let now = start.plus(Duration::from_secs(3600 * hour));
        let policy = &script.policy;
        let before = BreakGlassPurge {
            denied_before: now.minus(policy.denied_after),
            failed_before: now.minus(policy.failed_after),
            history_before: now.minus(policy.history_after),
            batch: 100,
        };
        store.purge_break_glass(before).await.unwrap();
        for (id, row) in &script.rows {
            let gone = store.credential(&script.cluster_id, *id).await.unwrap().is_none();
            let may_go = removable_at(row, policy).is_some_and(|at| at <= now);
            assert_eq!(gone, may_go, "{row:?}");
        }
    }
    let left = |id| store.credential(&script.cluster_id, id);
    assert!(left(live).await.unwrap().is_some() && left(ancient.id).await.unwrap().is_some());
    assert_eq!(store.certificates(ancient.id.0).await.unwrap().len(), 1);
}

async fn revocations_are_listed_newest_first(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    for _ in 0..5 {
        script.now = script.now.plus(MINUTE);
        script.revoke_all().await;
    }
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list_revocations(&script.cluster_id, cursor.as_ref(), 2).await.unwrap();
        assert_eq!(page.total_count, Some(5));
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 5);
    assert!(all.windows(2).all(|pair| pair[0].created_at > pair[1].created_at));
    let found = store.revocation(&script.cluster_id, all[3].id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&all[3]));
    let elsewhere = "cls-b".parse().unwrap();
    assert_eq!(store.revocation(&elsewhere, all[3].id).await, Ok(None));
    let before = BreakGlassPurge {
        denied_before: Timestamp::EPOCH,
        failed_before: Timestamp::EPOCH,
        history_before: all[2].created_at,
        batch: 2,
    };
    assert_eq!(store.purge_break_glass(before).await, Ok(2), "the batch");
    assert_eq!(store.purge_break_glass(before).await, Ok(1));
}

/// What this replica owns, as an actor of it would write.
async fn commit_as(
    script: &Script,
    ownership: OwnedBy,
    owner: Option<ReplicaId>,
) -> Result<u64, StoreError> {
    let (id, version, state) = (&script.cluster_id, script.version, script.record.as_ref());
    let after = state.unwrap();
    let commit = BreakGlassCommit::new(id, version, state, after, script.now);
    script.store.commit_break_glass(BreakGlassCommit { ownership, owner, ..commit }).await
}

async fn an_owner_that_changed_guards_every_write(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let later = script.now.plus(MINUTE);
    let taken = store.break_glass_due(script.now, 10, later, replica(1)).await.unwrap();
    let owned = taken[0].ownership;
    assert_eq!(commit_as(&script, OwnedBy::default(), None).await, Err(StoreError::Conflict));
    script.version = commit_as(&script, owned, owned.owner).await.unwrap();
    // Nobody has a row: what is owned was left behind.
    let over = store.break_glass_orphans(10, later, replica(2)).await.unwrap();
    assert_eq!((over[0].from, over[0].version), (Some(replica(1)), script.version));
    assert_eq!(over[0].ownership, OwnedBy { owner: Some(replica(2)), epoch: 2 });
    assert_eq!(commit_as(&script, owned, owned.owner).await, Err(StoreError::Conflict));
    script.version = commit_as(&script, over[0].ownership, None).await.unwrap();
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.ownership, OwnedBy { owner: None, epoch: 2 });
    assert_eq!(store.break_glass_orphans(10, later, replica(3)).await, Ok(vec![]), "nobody's");
}

async fn what_is_in_trouble_for_long_is_counted(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let id = script.request("anna").await;
    assert_eq!(store.stuck_break_glass(script.now).await, Ok(0));
    let (subject, token) = (Subject::Credential(id), CallToken(script.uuid()));
    let announce = Command::Announce { subject, call: Call::Submit, token };
    script.tell(&announce).await.unwrap();
    let answer = Answer::lost(Call::Submit, "nobody answers");
    script.tell(&Command::Answer { subject, token, answer }).await.unwrap();
    assert_eq!(store.stuck_break_glass(script.now).await, Ok(1));
    assert_eq!(store.stuck_break_glass(script.now.minus(MINUTE)).await, Ok(0), "not yet");
}

async fn a_cluster_is_due_once(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let (now, later) = (script.now, script.now.plus(MINUTE));
    let due = store.break_glass_due(now, 10, later, replica(1)).await.unwrap();
    let owned = OwnedBy { owner: Some(replica(1)), epoch: 1 };
    assert_eq!((&due[0].cluster_id, due[0].version), (&script.cluster_id, script.version));
    assert_eq!((due[0].ownership, due[0].from), (owned, None));
    assert_eq!(store.break_glass_due(now, 10, later, replica(1)).await, Ok(vec![]));
    let again = store.break_glass_due(later, 10, later, replica(1)).await.unwrap();
    assert_eq!((again.len(), again[0].ownership), (1, owned), "its owner goes on");
    let free = OwnedBy { owner: None, ..owned };
    let set = |version, ownership| {
        store.reschedule_break_glass(&script.cluster_id, version, Some(now), ownership)
    };
    assert_eq!(set(script.version + 1, free).await, Ok(false));
    assert_eq!(set(script.version, OwnedBy::default()).await, Ok(false), "an owner before it");
    assert_eq!(set(script.version, free).await, Ok(true));
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.ownership, free);
    let version = store.break_glass_version(&script.cluster_id).await;
    assert_eq!(version, Ok(Some(script.version)));
    assert_eq!(store.break_glass_version(&"cls-none".parse().unwrap()).await, Ok(None));
    let due = store.break_glass_due(now, 10, later, replica(1)).await.unwrap();
    assert_eq!(due[0].ownership.epoch, 2, "given back and taken again");
    let counts = store.credential_counts().await.unwrap();
    assert_eq!(counts.get("accepted"), Some(&1));
}
