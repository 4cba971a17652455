use std::sync::Mutex;

use super::super::step::{Drafts, Request, Step, step};
use super::super::testing;
use super::*;
use crate::actors::audit::Caller;
use crate::ids::ClusterId;
use crate::signers::local_ca::LocalCa;
use crate::state::break_glass::{ClusterRules, Command, StateName};
use crate::store::MemoryStore;
use crate::time::Clock;

struct MovedClock(Mutex<Timestamp>);

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

struct Nothing;

impl Drafts for Nothing {
    fn draft(&self, _: &Credential) -> Result<Delivered, String> {
        Ok(Delivered::default())
    }
}

struct World {
    tools: Tools,
    clock: Arc<MovedClock>,
    configured: ConfiguredCluster,
    rules: ClusterRules,
    cluster_id: ClusterId,
    _keys: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let clock = Arc::new(MovedClock(Mutex::new(crate::time::SystemClock.now())));
        let store = Arc::new(MemoryStore::new());
        let tools = testing::tools(keys.path(), &store, clock.clone());
        let cluster_id: ClusterId = "cls-a".parse().unwrap();
        let configured = ConfiguredCluster {
            signer: Arc::new(LocalCa::new()),
            cluster: Cluster { cluster_id: cluster_id.clone(), namespace: None },
            group: "system:masters".to_owned(),
            endpoints: Vec::new(),
            probe_timeout: Duration::from_secs(5),
        };
        let rules = ClusterRules { signer: SignerName::LocalCa, endpoints: Vec::new() };
        Self { tools, clock, configured, rules, cluster_id, _keys: keys }
    }

    async fn tell(&self, command: &Command, delivered: &Delivered) -> Step {
        let request = Request {
            command,
            rules: &self.rules,
            delivered,
            drafts: &Nothing,
            caller: &Caller::service("test"),
            answer: None,
        };
        step(&self.tools, &self.cluster_id, None, &request).await.unwrap()
    }

    /// Runs a command and every call that follows from it.
    async fn run(&self, command: &Command) -> BreakGlass {
        let mut done = self.tell(command, &Delivered::default()).await;
        while let Some((call, _flight)) = done.calls.pop() {
            let Finished { subject, token, answer, delivered, .. } =
                make(&self.tools, &self.configured, call).await;
            done = self.tell(&Command::Answer { subject, token, answer }, &delivered).await;
        }
        done.working.record.unwrap()
    }

    async fn request(&self) -> (CredentialId, BreakGlass) {
        let credential_id = CredentialId(Uuid::from_u128(7));
        let command = Command::Request {
            cluster_id: self.cluster_id.clone(),
            credential_id,
            username: Some("anna".to_owned()),
            expires_at: self.clock.now().plus(Duration::from_secs(3600)),
            signing_request: None,
            by: "alice".to_owned(),
            reason: None,
        };
        (credential_id, self.run(&command).await)
    }
}

#[tokio::test]
async fn the_embedded_signer_issues_a_credential_whose_keys_are_stored_sealed() {
    let world = World::new();
    let (id, record) = world.request().await;
    assert_eq!(record.credential(id).unwrap().state.name(), StateName::Active);
    let texts = world.tools.store.certificates(id.0).await.unwrap();
    for kind in [CertificateKind::Credential, CertificateKind::Authority, CertificateKind::Probe] {
        assert!(texts[&kind].contains("BEGIN CERTIFICATE"), "{kind}");
    }
    for purpose in [KeyPurpose::Credential, KeyPurpose::Probe] {
        let sealed = world.tools.store.sealed_key(id.0, purpose).await.unwrap().unwrap();
        let opened =
            world.tools.deps.keyring.get().open(&aad(id.0, purpose), &sealed.bytes).unwrap();
        assert!(opened.windows(11).any(|part| part == b"PRIVATE KEY"), "{purpose}");
    }
    let intent = intent(&world.configured, record.credential(id).unwrap(), world.clock.now());
    assert_eq!(intent.group.as_deref(), Some("system:masters"));
}

#[tokio::test]
async fn a_bundle_that_is_wanted_gets_its_placeholder() {
    let world = World::new();
    let cluster_id = world.cluster_id.clone();
    let record = world.run(&Command::WantBundle { cluster_id }).await;
    let trusted = record.trusted();
    assert_eq!(trusted.len(), 1);
    for owner in trusted {
        let texts = world.tools.store.certificates(owner).await.unwrap();
        assert!(texts[&CertificateKind::Authority].contains("BEGIN CERTIFICATE"));
        assert_eq!(world.tools.store.sealed_key(owner, KeyPurpose::Probe).await, Ok(None));
    }
}

#[tokio::test]
async fn an_overtaken_call_signs_nothing_that_is_stored() {
    let world = World::new();
    let credential_id = CredentialId(Uuid::from_u128(7));
    let command = Command::Request {
        cluster_id: world.cluster_id.clone(),
        credential_id,
        username: None,
        expires_at: world.clock.now().plus(Duration::from_secs(3600)),
        signing_request: None,
        by: "alice".to_owned(),
        reason: None,
    };
    let mut asked = world.tell(&command, &Delivered::default()).await;
    let (call, _flight) = asked.calls.pop().unwrap();
    let (revocation_id, by) = (RevocationId(Uuid::from_u128(9)), "bob".to_owned());
    let cluster_id = world.cluster_id.clone();
    let revoke = Command::RevokeAll { cluster_id, revocation_id, by, reason: None };
    world.tell(&revoke, &Delivered::default()).await;
    let Finished { subject, token, answer, delivered, .. } =
        make(&world.tools, &world.configured, call).await;
    world.tell(&Command::Answer { subject, token, answer }, &delivered).await;
    assert!(world.tools.store.certificates(credential_id.0).await.unwrap().is_empty());
}

#[test]
fn no_answer_is_never_a_rejection() {
    let accepted = || ProbeOutcome::Accepted { name: "anna".to_owned() };
    let unknown = || ProbeOutcome::Unknown { reason: "no answer".to_owned() };
    let is = |verdict: Verdict, outcomes| assert_eq!(together(outcomes), verdict);
    is(Verdict::Rejected, vec![ProbeOutcome::Rejected, ProbeOutcome::Rejected]);
    is(Verdict::Unknown("no answer".to_owned()), vec![ProbeOutcome::Rejected, unknown()]);
    is(Verdict::Accepted, vec![ProbeOutcome::Rejected, accepted(), unknown()]);
    assert!(matches!(together(Vec::new()), Verdict::Unknown(_)));
    assert!(matches!(any(Vec::new()), Verdict::Unknown(_)));
}
