use std::time::Duration;

use super::super::testing;
use super::*;
use crate::ids::{CredentialId, RevocationId};
use crate::state::break_glass::{Signer, StateName, SubmitAnswer};
use crate::store::break_glass::CertificateKind;
use crate::store::{AuditEvent, MemoryStore, Store as _};
use crate::time::Clock;

const MINUTE: Duration = Duration::from_secs(60);
const ME: ReplicaId = ReplicaId(Uuid::from_u128(1));

struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }
}

/// Drafts for a signer that needs a request.
struct Requests;

impl Drafts for Requests {
    fn draft(&self, credential: &Credential) -> Result<Delivered, String> {
        let (owner, kind) = (credential.id.0, CertificateKind::SigningRequest);
        let pem = format!("request of {}", credential.username);
        let key = SecretString::from("drafted key");
        Ok(Delivered {
            material: vec![Material { owner, kind, pem }],
            keys: vec![(owner, KeyPurpose::Credential, key)],
        })
    }
}

/// A signer that signs at once needs none.
struct Nothing;

impl Drafts for Nothing {
    fn draft(&self, _: &Credential) -> Result<Delivered, String> {
        Ok(Delivered::default())
    }
}

struct NoRandomBytes;

impl Drafts for NoRandomBytes {
    fn draft(&self, _: &Credential) -> Result<Delivered, String> {
        Err("there are no random bytes".to_owned())
    }
}

struct World {
    tools: Tools,
    store: Arc<MemoryStore>,
    rules: ClusterRules,
    cluster_id: ClusterId,
    caller: Caller,
    keys: tempfile::TempDir,
}

impl World {
    fn new(signer: Signer) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new());
        let tools = testing::tools(keys.path(), &store, Arc::new(StoppedClock));
        let reason = Some("incident 7".to_owned());
        let caller = Caller { actor: "alice".to_owned(), reason, ..Caller::service("test") };
        let rules = ClusterRules { signer, endpoints: Vec::new() };
        let cluster_id = "cls-a".parse().unwrap();
        Self { tools, store, rules, cluster_id, caller, keys }
    }

    async fn tell(
        &self,
        command: &Command,
        delivered: &Delivered,
        drafts: &dyn Drafts,
    ) -> Result<Step, StepError> {
        self.step(None, command, delivered, drafts).await
    }

    async fn step(
        &self,
        working: Option<LoadedBreakGlass>,
        command: &Command,
        delivered: &Delivered,
        drafts: &dyn Drafts,
    ) -> Result<Step, StepError> {
        let request = Request {
            command,
            rules: &self.rules,
            delivered,
            drafts,
            caller: &self.caller,
            answer: None,
        };
        step(&self.tools, &self.cluster_id, working, &request).await
    }

    /// Another process over the same database; whatever the one before had under way is lost.
    fn start_again(&mut self) {
        self.tools = testing::tools(self.keys.path(), &self.store, Arc::new(StoppedClock));
    }

    async fn request(&self, drafts: &dyn Drafts) -> (CredentialId, Step) {
        let credential_id = CredentialId(Uuid::from_u128(7));
        let command = Command::Request {
            cluster_id: self.cluster_id.clone(),
            credential_id,
            username: Some("anna".to_owned()),
            expires_at: StoppedClock.now().plus(Duration::from_secs(86400)),
            signing_request: None,
            by: "alice".to_owned(),
            reason: None,
        };
        (credential_id, self.tell(&command, &Delivered::default(), drafts).await.unwrap())
    }

    async fn audit(&self) -> Vec<AuditEvent> {
        self.store.walk_audit(&audit::stream(&self.cluster_id), 0, 100).await.unwrap()
    }
}

fn signed() -> Answer {
    let not_after = StoppedClock.now().plus(Duration::from_secs(86400));
    Answer::Submit(SubmitAnswer::Signed { not_after })
}

fn delivery(owner: Uuid) -> Delivered {
    let pem = "certificate".to_owned();
    Delivered {
        material: vec![Material { owner, kind: CertificateKind::Credential, pem }],
        keys: vec![(owner, KeyPurpose::Credential, SecretString::from("the key"))],
    }
}

#[tokio::test]
async fn what_is_due_is_announced_with_the_commit_and_what_was_made_is_sealed_for_its_owner() {
    let world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let [(call, _)] = &asked.calls[..] else { panic!("{:?}", asked.calls) };
    assert_eq!(call.call, Call::Submit);
    let subject = Subject::Credential(id);
    assert!(world.store.is_current_break_glass(subject, call.token).await.unwrap());
    let command = Command::Answer { subject, token: call.token, answer: signed() };
    let done = world.tell(&command, &delivery(id.0), &Nothing).await.unwrap();
    let record = done.working.record.unwrap();
    assert_eq!(record.credential(id).unwrap().state.name(), StateName::Active);
    let sealed = world.store.sealed_key(id.0, KeyPurpose::Credential).await.unwrap().unwrap();
    assert!(!sealed.bytes.windows(7).any(|part| part == b"the key"));
    let ring = world.tools.deps.keyring.get();
    assert!(ring.open_secret(&aad(id.0, KeyPurpose::Credential), &sealed.bytes).is_ok());
    for other in [aad(id.0, KeyPurpose::Probe), aad(Uuid::from_u128(8), KeyPurpose::Credential)] {
        assert!(ring.open_secret(&other, &sealed.bytes).is_err(), "it is sealed for its use");
    }
    assert_eq!(world.store.certificates(id.0).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_audit_pairs_each_call_with_its_outcome_and_knows_who_asked_and_why() {
    let world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    let command = Command::Answer { subject, token, answer: signed() };
    world.tell(&command, &delivery(id.0), &Nothing).await.unwrap();
    let rows = world.audit().await;
    let of = |action: &str| rows.iter().find(|event| event.row.action == action).unwrap();
    let asked = of("credential_requested");
    assert_eq!(asked.row.actor, "alice");
    assert_eq!(asked.row.reason.as_deref(), Some("incident 7"));
    assert_eq!(asked.row.account.as_deref(), Some("anna"));
    let (intent, outcome) = (of("call_announced"), of("call_answered"));
    assert_eq!(intent.row.detail["token"], outcome.row.detail["token"]);
    assert_eq!(outcome.row.detail["outcome"], "certificate_signed");
    assert_eq!(of("credential_issued").row.detail["credential_id"], id.to_string());
    assert!(!format!("{rows:?}").contains("the key"));
}

#[tokio::test]
async fn a_draft_is_stored_with_its_announcement_and_made_once() {
    let world = World::new(Signer::KubernetesCsr);
    let (id, asked) = world.request(&Requests).await;
    let stored = world.store.certificates(id.0).await.unwrap();
    assert_eq!(stored[&CertificateKind::SigningRequest], "request of anna");
    let key = world.store.sealed_key(id.0, KeyPurpose::Credential).await.unwrap();
    assert!(key.is_some());
    // The answer is lost, the request is given again: it is the same one.
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    let command = Command::Answer { subject, token, answer: Answer::died(Call::Submit) };
    let again = world.tell(&command, &Delivered::default(), &Requests).await.unwrap();
    assert_eq!(again.calls.len(), 1, "{:?}", again.events);
    assert_eq!(world.store.sealed_key(id.0, KeyPurpose::Credential).await.unwrap(), key);
}

#[tokio::test]
async fn without_a_draft_nothing_is_announced_and_the_request_waits() {
    let world = World::new(Signer::KubernetesCsr);
    let (id, asked) = world.request(&NoRandomBytes).await;
    assert!(asked.calls.is_empty());
    let record = asked.working.record.unwrap();
    let trouble = &record.credential(id).unwrap().trouble;
    assert_eq!(trouble.last_error.as_deref(), Some("there are no random bytes"));
    let due =
        world.store.break_glass_due(StoppedClock.now().plus(MINUTE), 9, StoppedClock.now(), ME);
    assert_eq!(due.await.unwrap().len(), 1, "it is tried again");
}

#[tokio::test]
async fn what_comes_after_a_revocation_is_not_stored() {
    let world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let revoke = Command::RevokeAll {
        cluster_id: world.cluster_id.clone(),
        revocation_id: RevocationId(Uuid::from_u128(9)),
        by: "alice".to_owned(),
        reason: None,
    };
    world.tell(&revoke, &Delivered::default(), &Nothing).await.unwrap();
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    let command = Command::Answer { subject, token, answer: signed() };
    let late = world.tell(&command, &delivery(id.0), &Nothing).await;
    assert!(late.is_ok(), "{late:?}");
    assert_eq!(world.store.sealed_key(id.0, KeyPurpose::Credential).await, Ok(None));
    assert!(world.store.certificates(id.0).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_process_that_stops_announces_nothing() {
    let mut world = World::new(Signer::LocalCa);
    world.tools.deps.activity.stop();
    let (_, asked) = world.request(&Nothing).await;
    assert!(asked.calls.is_empty());
    world.start_again();
    let tick = world.tell(&Command::Tick, &Delivered::default(), &Nothing).await.unwrap();
    assert_eq!(tick.calls.len(), 1, "what is due is found again");
}

#[tokio::test]
async fn whoever_has_a_call_under_way_owns_it_and_another_process_waits_until_that_is_dead() {
    let mut world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let (before, first) = (asked.working.ownership, world.tools.deps.replica.id);
    assert_eq!((before.owner, before.epoch), (Some(first), 1));
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    world.start_again();
    let seen = world.tell(&Command::Tick, &Delivered::default(), &Nothing).await.unwrap();
    assert!(seen.calls.is_empty() && seen.events.is_empty(), "{:?}", seen.events);
    assert!(world.store.is_current_break_glass(subject, token).await.unwrap());
    // Nobody has a row here, so whatever is owned was left behind.
    let (me, later) = (world.tools.deps.replica.id, StoppedClock.now().plus(MINUTE));
    let taken = world.store.break_glass_orphans(9, later, me).await.unwrap();
    assert_eq!((taken[0].from, taken[0].ownership.epoch), (Some(first), 2));
    let over = world.tell(&Command::TakeOver, &Delivered::default(), &Nothing).await.unwrap();
    assert!(!world.store.is_current_break_glass(subject, token).await.unwrap());
    assert_eq!(over.calls.len(), 1, "the request is given once more");
    let command = Command::Answer { subject, token, answer: signed() };
    let late = world.tell(&command, &delivery(id.0), &Nothing).await;
    assert!(matches!(late, Err(StepError::Rejected(Rejection::NotCurrent))), "{late:?}");
    assert_eq!(world.store.sealed_key(id.0, KeyPurpose::Credential).await, Ok(None));
    let rows = world.audit().await;
    let closed = rows.iter().find(|event| event.row.action == "call_answered").unwrap();
    assert_eq!(closed.row.actor, "service:takeover");
}

#[tokio::test]
async fn what_an_actor_remembers_is_not_believed_when_somebody_else_has_written() {
    let world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let old = asked.working.clone();
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    let command = Command::Answer { subject, token, answer: signed() };
    world.tell(&command, &delivery(id.0), &Nothing).await.unwrap();
    let again = world.step(Some(old), &command, &Delivered::default(), &Nothing).await;
    assert!(matches!(again, Err(StepError::Rejected(Rejection::NotCurrent))), "{again:?}");
}

#[tokio::test]
async fn what_became_of_a_credential_is_counted() {
    let world = World::new(Signer::LocalCa);
    let (id, asked) = world.request(&Nothing).await;
    let (subject, token) = (Subject::Credential(id), asked.calls[0].0.token);
    let command = Command::Answer { subject, token, answer: signed() };
    world.tell(&command, &delivery(id.0), &Nothing).await.unwrap();
    let text = world.tools.deps.metrics.encode().unwrap();
    let issued = text.lines().find(|line| line.contains("outcome=\"issued\"")).unwrap();
    assert!(issued.ends_with(" 1"), "{issued}");
    let counted = "hyperfleet_credentials_break_glass_issue_duration_seconds_count";
    let counted = text.lines().find(|line| line.starts_with(counted)).unwrap();
    assert!(counted.ends_with(" 1"), "{counted}");
}
