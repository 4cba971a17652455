//! One cluster's break-glass credentials, by commands and answers, stored step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::{CallToken, ClusterId, CredentialId, RevocationId};
use hyperfleet_credentials::state::break_glass::{
    Answer, BreakGlass, Call, CheckAnswer, ClusterRules, CollectAnswer, Command, Context,
    Credential, EndorseAnswer, EndpointSeen, MakeAnswer, Policy, ProbeAnswer, Rejection,
    RotateAnswer, Signer, SubmitAnswer, Verdict, apply, decide, due_at, effects,
};
use hyperfleet_credentials::state::shared::{Backoff, Entropy};
use hyperfleet_credentials::store::SealedSecret;
use hyperfleet_credentials::store::break_glass::{BreakGlassCommit, BreakGlassStore, KeyPurpose};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn policy() -> Policy {
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
pub(super) struct Script {
    pub(super) store: Arc<dyn BreakGlassStore>,
    pub(super) cluster_id: ClusterId,
    pub(super) record: Option<BreakGlass>,
    pub(super) version: u64,
    pub(super) now: Timestamp,
    pub(super) policy: Policy,
    pub(super) rules: ClusterRules,
    pub(super) seed: u64,
    /// The latest row of everything that ever was.
    pub(super) rows: BTreeMap<CredentialId, Credential>,
}

pub(super) fn key(key_id: &str, text: &str) -> SealedSecret {
    SealedSecret { key_id: key_id.to_owned(), bytes: text.as_bytes().to_vec() }
}

impl Script {
    pub(super) fn new(
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

    pub(super) fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        let seed = u128::from(self.random()) << 64 | u128::from(self.random());
        Entropy::from_seed(seed).uuid(self.now)
    }

    pub(super) fn decide(&mut self, command: &Command) -> Result<Option<BreakGlass>, Rejection> {
        let entropy = Entropy::from_seed(u128::from(self.random()));
        let (now, time_is_certain) = (self.now, true);
        let context =
            Context { now, policy: &self.policy, rules: &self.rules, entropy, time_is_certain };
        let events = decide(self.record.as_ref(), command, &context)?;
        Ok(events.iter().fold(self.record.clone(), apply))
    }

    pub(super) async fn tell(&mut self, command: &Command) -> Result<(), Rejection> {
        self.tell_with(command, Vec::new()).await
    }

    pub(super) async fn tell_with(
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

    pub(super) async fn request(&mut self, username: &str) -> CredentialId {
        let credential_id = CredentialId(self.uuid());
        let command = self.request_command(credential_id, Some(username));
        self.tell(&command).await.unwrap();
        credential_id
    }

    pub(super) fn request_command(
        &self,
        credential_id: CredentialId,
        username: Option<&str>,
    ) -> Command {
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

    pub(super) async fn revoke_all(&mut self) {
        let command = self.revoke_all_command();
        self.tell(&command).await.unwrap();
    }

    pub(super) fn revoke_all_command(&mut self) -> Command {
        let (cluster_id, revocation_id) = (self.cluster_id.clone(), RevocationId(self.uuid()));
        Command::RevokeAll { cluster_id, revocation_id, by: "alice".to_owned(), reason: None }
    }

    /// Announces one due call and answers it.
    pub(super) async fn call(
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

    pub(super) async fn sign(&mut self, id: CredentialId) {
        let signed = Answer::Submit(SubmitAnswer::Signed { not_after: self.now.plus(DAY) });
        let keys = vec![
            (id.0, KeyPurpose::Credential, key("k1", "credential")),
            (id.0, KeyPurpose::Probe, key("k1", "probe")),
        ];
        self.call(Call::Submit, signed, keys).await;
    }

    /// Any command that may come now.
    pub(super) fn any(&mut self) -> Command {
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

    pub(super) fn answer(&mut self, call: Call) -> Answer {
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
