//! A desk over the real machine, without signer, database or actors. It keeps its own log of what it was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::test::TestRequest;
use actix_web::web;
use async_trait::async_trait;
use secrecy::SecretString;
use tokio::sync::watch;
use uuid::Uuid;

use super::fixtures::{Noon, Seen, call_at, edge};
use crate::actors::audit;
use crate::crypto::AuditKey;
use crate::http::edge::Edge;
use crate::http::handlers::break_glass::{
    BreakGlass, Bundle, Desk, DeskError, DeskRules, Done, Lifetimes, ListOf, Listed, Offer, Opened,
};
use crate::http::handlers::{Backend, Repeats, handlers};
use crate::ids::{CallToken, ClusterId, CredentialId, RevocationId};
use crate::state::break_glass::{
    self, Answer, Call, ClusterRules, Command, Context, Credential, CredentialState, Event, Policy,
    Rejection, Revocation, Signer, Subject, SubmitAnswer, bundle_etag, bundle_version, decide,
};
use crate::state::shared::{Backoff, Entropy};
use crate::store::memory::MemoryStore;
use crate::store::{Commit, Cursor, IdempotencyAnswer, Page, Store};
use crate::time::{Clock, Timestamp};

/// The clusters that the file names begin so.
const KNOWN: &str = "cls";
/// Each call is over before the next begins.
const TOKEN: CallToken = CallToken(Uuid::from_u128(7));

/// What the desk knows of a cluster: the machine's state, nothing of it ever forgotten.
type Records = BTreeMap<ClusterId, break_glass::BreakGlass>;

pub struct FakeBreakGlass {
    signer: Signer,
    approval_required: bool,
    store: Arc<MemoryStore>,
    records: Mutex<Records>,
    changed: watch::Sender<u64>,
    /// Who gave which command, and why.
    told: Mutex<Vec<(String, audit::Caller)>>,
    /// Whose kubeconfig was handed out to whom.
    opened: Mutex<Vec<(CredentialId, String)>>,
    listed: Mutex<Vec<ListOf>>,
}

/// An application with a desk in it.
pub struct Counter {
    pub edge: web::Data<Edge>,
    pub fake: Arc<FakeBreakGlass>,
    backend: Backend,
}

impl Counter {
    pub fn new(signer: Signer, approval_required: bool, wait: Duration) -> Self {
        let store = Arc::new(MemoryStore::default());
        let fake = Arc::new(FakeBreakGlass {
            signer,
            approval_required,
            store: store.clone(),
            records: Mutex::default(),
            changed: watch::Sender::default(),
            told: Mutex::default(),
            opened: Mutex::default(),
            listed: Mutex::default(),
        });
        let day = Duration::from_secs(24 * 3600);
        let key = AuditKey::from_bytes(&[7; 32]).unwrap();
        let backend = Backend::default();
        backend.set_desk(Desk {
            break_glass: fake.clone(),
            rules: DeskRules { lifetimes: Lifetimes { default: day, longest: day }, wait },
            store,
            clock: Arc::new(Noon),
            repeats: Repeats::new(&key, wait),
        });
        Self { edge: edge(), fake, backend }
    }

    pub async fn call(&self, request: TestRequest) -> Seen {
        let seen = call_at(&self.edge, handlers(self.backend.clone()), request).await;
        // To the SDK an empty error is a success, and any other type a fault of the network.
        if seen.path.starts_with("/api/") && seen.status != 204 {
            assert_eq!(seen.header("content-type"), "application/json", "{}", seen.body);
            assert!(seen.json().is_object(), "{}", seen.body);
        }
        seen
    }
}

impl FakeBreakGlass {
    /// The signer is given the request.
    pub fn begin(&self, id: &str) {
        let subject = Subject::Credential(id.parse().unwrap());
        self.drive(id, &Command::Announce { subject, call: Call::Submit, token: TOKEN });
    }

    /// The signer has signed, and where no API server can be asked that is all.
    pub fn issue(&self, id: &str) {
        if self.state_of(id) == CredentialState::Accepted {
            self.begin(id);
        }
        let subject = Subject::Credential(id.parse().unwrap());
        let not_after = Noon.now().plus(Duration::from_secs(3600));
        let answer = Answer::Submit(SubmitAnswer::Signed { not_after });
        self.drive(id, &Command::Answer { subject, token: TOKEN, answer });
        assert_eq!(self.state_of(id), CredentialState::Active);
    }

    /// It has come to its end.
    pub fn expire(&self, id: &str) {
        let credential_id = id.parse().unwrap();
        self.change(id, |record| {
            vec![Event::CredentialExpired { credential_id, at: record.created_at }]
        });
    }

    /// The cluster's API servers run with what the bundle is now.
    pub fn confirm_bundle(&self, cluster: &str) {
        let version = self.records.lock().unwrap()[&cluster.parse().unwrap()].bundle_version;
        self.run(&cluster.parse().unwrap(), &Command::ConfirmBundle { version }).unwrap();
    }

    fn drive(&self, id: &str, command: &Command) {
        let cluster_id = self.cluster_of(id);
        self.run(&cluster_id, command).unwrap();
    }

    fn cluster_of(&self, id: &str) -> ClusterId {
        let id = id.parse().unwrap();
        let records = self.records.lock().unwrap();
        let mut owners = records.iter().filter(|(_, record)| record.credential(id).is_some());
        owners.next().unwrap().0.clone()
    }

    fn change(&self, id: &str, events: impl FnOnce(&break_glass::BreakGlass) -> Vec<Event>) {
        let cluster_id = self.cluster_of(id);
        let mut records = self.records.lock().unwrap();
        let before = records.remove(&cluster_id).unwrap();
        let after = events(&before).iter().fold(Some(before), break_glass::apply);
        records.extend(after.map(|after| (cluster_id, after)));
    }

    /// Runs a command as the machine has it; answers how many revocations ended with it.
    fn run(&self, cluster_id: &ClusterId, command: &Command) -> Result<usize, Rejection> {
        let ended = |record: Option<&break_glass::BreakGlass>| {
            let revocations = record.map_or(&[][..], |record| &record.revocations[..]);
            revocations.iter().filter(|revocation| !revocation.is_running()).count()
        };
        let mut records = self.records.lock().unwrap();
        let before = records.get(cluster_id);
        let context = Context {
            now: Noon.now(),
            policy: &self.policy(),
            rules: &ClusterRules { signer: self.signer, endpoints: Vec::new() },
            entropy: Entropy::from_seed(records.len() as u128),
            time_is_certain: true,
        };
        let events = decide(before, command, &context)?;
        let after = events.iter().fold(before.cloned(), break_glass::apply);
        let settled = ended(after.as_ref()) - ended(before);
        records.extend(after.map(|after| (cluster_id.clone(), after)));
        drop(records);
        self.changed.send_modify(|n| *n += 1);
        Ok(settled)
    }

    /// Makes it older than the time at which that was written down.
    pub fn forget_creation(&self, id: &str) {
        let id = id.parse().unwrap();
        let mut records = self.records.lock().unwrap();
        for credential in records.values_mut().flat_map(|record| &mut record.credentials) {
            if credential.id == id {
                credential.created_at = None;
            }
        }
    }

    pub fn told(&self) -> Vec<(String, audit::Caller)> {
        self.told.lock().unwrap().clone()
    }

    pub fn opened_by(&self) -> Vec<(CredentialId, String)> {
        self.opened.lock().unwrap().clone()
    }

    pub fn last_list(&self) -> ListOf {
        self.listed.lock().unwrap().last().cloned().unwrap()
    }

    pub fn state_of(&self, id: &str) -> CredentialState {
        self.find(id.parse().unwrap()).unwrap().state
    }

    fn find(&self, id: CredentialId) -> Option<Credential> {
        let records = self.records.lock().unwrap();
        records.values().find_map(|record| record.credential(id).cloned())
    }

    fn policy(&self) -> Policy {
        let minute = Duration::from_secs(60);
        Policy {
            approval_required: self.approval_required,
            issue_deadline: minute * 10,
            probe_interval: minute,
            probe_successes: 2,
            call_timeout: minute,
            retry: Backoff { initial: minute, factor: 2.0, max: minute, jitter: 0.0 },
            denied_after: minute,
            failed_after: minute,
            history_after: minute,
        }
    }

    /// Remembers the answer in a commit of its own: the memory store has no break-glass.
    async fn remember(&self, answer: Option<IdempotencyAnswer>) {
        let Some(answer) = answer else { return };
        let cluster_id: ClusterId = format!("answer-{}", answer.holder).parse().unwrap();
        let mut commit = Commit::new(&cluster_id, 0, None, None, Noon.now());
        commit.idempotency = Some(answer);
        self.store.commit(commit).await.unwrap();
    }
}

#[async_trait]
impl BreakGlass for FakeBreakGlass {
    fn offer(&self, cluster_id: &ClusterId) -> Option<Offer> {
        let known = cluster_id.as_str().starts_with(KNOWN);
        known.then_some(Offer { revokes_one: self.signer.revokes_one() })
    }

    async fn list(&self, cluster_id: &ClusterId, of: &ListOf) -> Result<Listed, DeskError> {
        self.listed.lock().unwrap().push(of.clone());
        if of.search.as_deref() == Some("colour = 'blue'") {
            let reason = "has an unknown field at 1: colour".to_owned();
            return Err(DeskError::Query { parameter: "search", reason });
        }
        let records = self.records.lock().unwrap();
        let all: Vec<Credential> =
            records.get(cluster_id).map(|record| record.credentials.clone()).unwrap_or_default();
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let total = all.len() as u64;
        let items = all.into_iter().skip(number(of.offset));
        let items = items.take(of.limit.map_or(usize::MAX, number)).collect();
        Ok(Listed { items, total })
    }

    async fn credential(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
    ) -> Result<Option<Credential>, DeskError> {
        Ok(self.find(id).filter(|_| self.cluster_of(&id.to_string()) == *cluster_id))
    }

    async fn opened(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
        caller: audit::Caller,
    ) -> Result<Option<Opened>, DeskError> {
        let Some(credential) = self.credential(cluster_id, id).await? else { return Ok(None) };
        let usable = credential.state == CredentialState::Active;
        if usable {
            self.opened.lock().unwrap().push((id, caller.actor));
        }
        let kubeconfig = usable.then(|| SecretString::from("apiVersion: v1"));
        Ok(Some(Opened { credential, kubeconfig }))
    }

    async fn settled(&self, _: &ClusterId, id: CredentialId) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            match self.find(id).map(|credential| credential.state) {
                Some(CredentialState::Accepted | CredentialState::Issuing { .. }) => {}
                Some(_) | None => return,
            }
            changed.changed().await.unwrap();
        }
    }

    async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<Done, DeskError> {
        self.told.lock().unwrap().push((command.as_ref().to_owned(), caller));
        let settled = self.run(cluster_id, &command)?;
        self.remember(answer).await;
        Ok(Done { settled })
    }

    async fn revocations(
        &self,
        cluster_id: &ClusterId,
        _: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, DeskError> {
        let records = self.records.lock().unwrap();
        let all = records.get(cluster_id).map(|record| record.revocations.clone());
        let all = all.unwrap_or_default();
        let total_count = Some(all.len() as u64);
        Ok(Page {
            items: all.into_iter().rev().take(limit as usize).collect(),
            next: None,
            total_count,
        })
    }

    async fn revocation(
        &self,
        cluster_id: &ClusterId,
        id: RevocationId,
    ) -> Result<Option<Revocation>, DeskError> {
        let records = self.records.lock().unwrap();
        Ok(records.get(cluster_id).and_then(|record| record.revocation(id).cloned()))
    }

    async fn bundle(&self, cluster_id: &ClusterId, _: audit::Caller) -> Result<Bundle, DeskError> {
        let records = self.records.lock().unwrap();
        let version = records.get(cluster_id).map_or(0, |record| record.bundle_version);
        let pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        Ok(Bundle { pem, etag: bundle_etag(cluster_id, version) })
    }

    fn bundle_version(&self, cluster_id: &ClusterId, etag: &str) -> Option<u64> {
        bundle_version(cluster_id, etag)
    }
}

/// A time that clients send and get.
pub fn later(seconds: u64) -> String {
    let at: Timestamp = Noon.now().plus(Duration::from_secs(seconds));
    at.to_seconds_text()
}
