//! Builders for told tests: a cluster whose calls the test answers one by one, in words of the product.

use std::time::Duration;

use uuid::Uuid;

use super::super::*;
use crate::ids::{CallToken, ClusterId, CredentialId, RevocationId};
use crate::state::shared::{Backoff, Failure};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);
pub const ENDPOINT: &str = "https://api-0:6443";

pub type Answered = Result<Vec<Event>, Rejection>;

pub fn policy() -> Policy {
    Policy {
        approval_required: false,
        issue_deadline: 10 * MINUTE,
        probe_interval: Duration::from_secs(10),
        probe_successes: 2,
        call_timeout: Duration::from_secs(10),
        retry: Backoff { initial: Duration::from_secs(5), factor: 2.0, max: HOUR, jitter: 0.2 },
        denied_after: 48 * HOUR,
        failed_after: 48 * HOUR,
        history_after: 90 * DAY,
    }
}

/// One cluster's credentials, told step by step.
#[derive(Clone)]
pub struct Told {
    pub now: Timestamp,
    pub policy: Policy,
    pub rules: ClusterRules,
    pub state: Option<BreakGlass>,
    pub time_is_certain: bool,
    /// Every event so far.
    pub events: Vec<Event>,
    seed: u128,
}

impl Told {
    pub fn new(signer: Signer, endpoints: &[&str]) -> Self {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        Self {
            now: Timestamp::from_micros(1_800_000_000_000_000),
            policy: policy(),
            rules: ClusterRules { signer, endpoints },
            state: None,
            time_is_certain: true,
            events: Vec::new(),
            seed: 7,
        }
    }

    /// The embedded signer, and nobody to ask.
    pub fn blind() -> Self {
        Self::new(Signer::LocalCa, &[])
    }

    pub fn local() -> Self {
        Self::new(Signer::LocalCa, &[ENDPOINT])
    }

    pub fn csr() -> Self {
        Self::new(Signer::KubernetesCsr, &[])
    }

    pub fn cluster_id(&self) -> ClusterId {
        "cls-told".parse().unwrap()
    }

    pub fn uuid(&mut self) -> Uuid {
        self.seed += 1;
        Entropy::from_seed(self.seed).uuid(self.now)
    }

    pub fn tell(&mut self, command: &Command) -> Answered {
        self.seed += 1;
        let context = Context {
            now: self.now,
            policy: &self.policy,
            rules: &self.rules,
            entropy: Entropy::from_seed(self.seed),
            time_is_certain: self.time_is_certain,
        };
        let events = decide(self.state.as_ref(), command, &context)?;
        for event in &events {
            self.state = apply(self.state.take(), event);
        }
        self.events.extend(events.iter().cloned());
        Ok(events)
    }

    pub fn pass(&mut self, time: Duration) -> Vec<Event> {
        self.now = self.now.plus(time);
        self.tell(&Command::Tick).unwrap()
    }

    pub fn request_as(
        &mut self,
        username: Option<&str>,
        by: &str,
    ) -> Result<CredentialId, Rejection> {
        let credential_id = CredentialId(self.uuid());
        let command = Command::Request {
            cluster_id: self.cluster_id(),
            credential_id,
            username: username.map(str::to_owned),
            expires_at: self.now.plus(DAY),
            signing_request: None,
            by: by.to_owned(),
            reason: None,
        };
        self.tell(&command).map(|_| credential_id)
    }

    pub fn request(&mut self) -> CredentialId {
        self.request_as(None, "alice").unwrap()
    }

    pub fn revoke_all(&mut self) -> Answered {
        let revocation_id = RevocationId(self.uuid());
        let (cluster_id, by) = (self.cluster_id(), "alice".to_owned());
        self.tell(&Command::RevokeAll { cluster_id, revocation_id, by, reason: None })
    }

    pub fn revoke_one(&mut self, credential_id: CredentialId) -> Answered {
        let revocation_id = RevocationId(self.uuid());
        let by = "alice".to_owned();
        self.tell(&Command::RevokeOne { credential_id, revocation_id, by, reason: None })
    }

    pub fn record(&self) -> &BreakGlass {
        self.state.as_ref().unwrap()
    }

    pub fn name(&self, id: CredentialId) -> StateName {
        self.record().credential(id).unwrap().state.name()
    }

    pub fn due(&self) -> Vec<Effect> {
        let all = self.state.iter().flat_map(|record| effects(record, self.now));
        all.filter(|effect| effect.due <= self.now).collect()
    }

    pub fn announce(&mut self, call: Call) -> (Subject, CallToken) {
        let wanted = self.due().into_iter().find(|effect| effect.call == call);
        let subject = wanted.unwrap_or_else(|| panic!("{call} is not wanted")).subject;
        let token = CallToken(self.uuid());
        self.tell(&Command::Announce { subject, call, token }).unwrap();
        (subject, token)
    }

    pub fn answer(&mut self, (subject, token): (Subject, CallToken), answer: Answer) -> Answered {
        self.tell(&Command::Answer { subject, token, answer })
    }

    pub fn call(&mut self, answer: Answer) -> Vec<Event> {
        let running = self.announce(answer.call());
        self.answer(running, answer).unwrap()
    }

    /// Makes every authority that is wanted.
    pub fn make(&mut self) {
        while self.due().iter().any(|effect| effect.call == Call::Make) {
            let not_after = self.now.plus(2 * DAY);
            self.call(Answer::Make(MakeAnswer::Made { not_after }));
        }
    }

    pub fn signed(&self) -> Answer {
        Answer::Submit(SubmitAnswer::Signed { not_after: self.now.plus(DAY) })
    }

    pub fn active_blind() -> (Self, CredentialId) {
        let mut told = Self::blind();
        let id = told.request();
        let signed = told.signed();
        told.call(signed);
        assert_eq!(told.name(id), StateName::Active);
        (told, id)
    }

    pub fn active_local() -> (Self, CredentialId) {
        let mut told = Self::local();
        let id = told.request();
        told.make();
        let signed = told.signed();
        told.call(signed);
        told.call(seen(Verdict::Accepted, Verdict::Accepted));
        assert_eq!(told.name(id), StateName::Active);
        (told, id)
    }

    pub fn collecting() -> (Self, CredentialId) {
        let mut told = Self::csr();
        let id = told.request();
        told.call(Answer::Submit(SubmitAnswer::Submitted));
        told.call(Answer::Endorse(EndorseAnswer::Endorsed));
        (told, id)
    }

    pub fn active_csr() -> (Self, CredentialId) {
        let (mut told, id) = Self::collecting();
        let not_after = told.now.plus(DAY - 5 * MINUTE);
        told.call(Answer::Collect(CollectAnswer::Signed { not_after }));
        assert_eq!(told.name(id), StateName::Active);
        (told, id)
    }

    pub fn requested() -> (Self, CredentialId) {
        let mut told = Self::blind();
        told.policy.approval_required = true;
        let id = told.request();
        (told, id)
    }

    pub fn rotating() -> (Self, CredentialId) {
        let (mut told, id) = Self::active_csr();
        told.revoke_all().unwrap();
        told.call(Answer::Rotate(RotateAnswer::Begun));
        (told, id)
    }
}

pub fn seen(verdict: Verdict, control: Verdict) -> Answer {
    let endpoint = ENDPOINT.to_owned();
    Answer::Probe(ProbeAnswer::Seen(vec![EndpointSeen { endpoint, verdict, control }]))
}

pub fn silent() -> Verdict {
    Verdict::Unknown("no answer".to_owned())
}

pub fn trouble(blocked: bool) -> Failure {
    Failure { message: "trouble".to_owned(), retry_after: None, blocked }
}

pub fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(AsRef::as_ref).collect()
}
