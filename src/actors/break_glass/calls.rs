//! One announced call to a signer or to API servers, and what its outcome means in the machine's words.
//!
//! A panic in a signer's code and a call that outlives its time become ordinary outcomes here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use secrecy::SecretString;
use tracing::Instrument;
use uuid::Uuid;

use super::step::{AnnouncedCall, Delivered, Tools, aad};
use crate::actors::log::{self, Cause};
use crate::failpoints::Point;
use crate::ids::{AuthorityId, CallToken, CredentialId, RevocationId};
use crate::signers::{
    AuthorityIntent, AuthorityKind as Kind, CallContext, CheckOutcome, Cluster, CollectOutcome,
    Draft, EndorseOutcome, Endpoint, Fence, Identity, Intent, MakeOutcome, ProbeOutcome,
    RotateOutcome, Rotation, Signer, SubmitOutcome, Trouble,
};
use crate::state::break_glass::{
    Answer, Authority, AuthorityKind, BreakGlass, Call, CheckAnswer, CollectAnswer, Credential,
    EndorseAnswer, EndpointSeen, MakeAnswer, ProbeAnswer, RotateAnswer, Signer as SignerName,
    Subject, SubmitAnswer, Verdict,
};
use crate::state::shared::Failure;
use crate::store::break_glass::{BreakGlassStore, CertificateKind, KeyPurpose, Material};
use crate::time::Timestamp;

/// A control lives for so long; it is renewed at half of it.
const CONTROL_LIFE: Duration = Duration::from_secs(2 * 24 * 3600);
/// A placeholder signs nothing and is replaced by nobody.
const PLACEHOLDER_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What a cluster's calls need besides the state.
pub struct ConfiguredCluster {
    /// Who signs.
    pub signer: Arc<dyn Signer>,
    /// What the signer has to know.
    pub cluster: Cluster,
    /// The certificates' organisation.
    pub group: String,
    /// The API servers that can be asked.
    pub endpoints: Vec<Endpoint>,
    /// How long one question to an API server may take.
    pub probe_timeout: Duration,
}

/// The outcome of a call, to be told to the machine.
#[derive(Clone)]
pub struct Finished {
    /// For what it was made.
    pub subject: Subject,
    /// The token it was announced with.
    pub token: CallToken,
    /// What it said.
    pub answer: Answer,
    /// What was made with it.
    pub delivered: Delivered,
    /// What it was made for.
    pub cause: Cause,
    /// How long it took.
    pub took: Duration,
}

/// Asks the database whether the announcement is still current.
struct StoredFence {
    store: Arc<dyn BreakGlassStore>,
    subject: Subject,
    token: CallToken,
}

#[async_trait]
impl Fence for StoredFence {
    async fn is_current(&self) -> bool {
        // Not knowing is no reason to act.
        self.store.is_current_break_glass(self.subject, self.token).await.unwrap_or(false)
    }
}

/// Makes the call. Never panics, never lasts longer than the calls' timeout.
pub async fn make(
    tools: &Tools,
    configured: &ConfiguredCluster,
    announced: AnnouncedCall,
) -> Finished {
    let AnnouncedCall { subject, call, token, announced_at, record, cause } = announced;
    let fence = Arc::new(StoredFence { store: tools.store.clone(), subject, token });
    let deadline = announced_at + tools.policy.call_timeout;
    let context = CallContext { deadline, fence };
    let work = Work { tools, configured, record: &record, context };
    let began = Instant::now();
    let left = deadline.saturating_duration_since(began);
    let span = log::span(&record.cluster_id, &cause);
    let run = tokio::time::timeout(left, work.watched(subject, call).instrument(span));
    let (answer, delivered) = match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Ok(done)) => done,
        Ok(Err(_elapsed)) => nothing(Answer::failed(call, failure(&Trouble::timeout()))),
        Err(_panic) => {
            tools.deps.metrics.panic("call");
            nothing(Answer::lost(call, "the call ended by a fault of this service"))
        }
    };
    Finished { subject, token, answer, delivered, cause, took: began.elapsed() }
}

/// What the signer has to be told of a credential.
#[must_use]
pub fn intent(configured: &ConfiguredCluster, credential: &Credential, now: Timestamp) -> Intent {
    Intent {
        cluster: configured.cluster.clone(),
        id: credential.id.0,
        username: credential.username.clone(),
        // A control has no rights.
        group: (!credential.control).then(|| configured.group.clone()),
        now,
        not_after: credential.expires_at,
        signing_request: credential.signing_request.clone(),
    }
}

type Done = (Answer, Delivered);

fn nothing(answer: Answer) -> Done {
    (answer, Delivered::default())
}

/// Trouble on our side is nobody's attempt.
fn own_fault(message: &str) -> Failure {
    Failure { message: message.to_owned(), retry_after: None, blocked: true }
}

fn failure(trouble: &Trouble) -> Failure {
    let retry_after = trouble.pause();
    let blocked = trouble.kind.blocks();
    Failure { message: trouble.message.clone(), retry_after, blocked }
}

struct Work<'a> {
    tools: &'a Tools,
    configured: &'a ConfiguredCluster,
    record: &'a BreakGlass,
    context: CallContext,
}

impl Work<'_> {
    /// Not begun by a process that does not know any more whether it is the owner.
    async fn watched(&self, subject: Subject, call: Call) -> Done {
        let deps = &self.tools.deps;
        if !deps.replica.is_live() {
            let failure = own_fault("this replica is not sure to be the owner any more");
            return nothing(Answer::failed(call, failure));
        }
        if deps.at(Point::BeforeCall, Some(call.into())).await.is_err() {
            let failure = own_fault("a failure point keeps it from being sent");
            return nothing(Answer::failed(call, failure));
        }
        let done = self.run(subject, call).await;
        if deps.at(Point::AfterCall, Some(call.into())).await.is_err() {
            return nothing(Answer::lost(call, "a failure point loses the answer"));
        }
        done
    }

    async fn run(&self, subject: Subject, call: Call) -> Done {
        let done = match (subject, call) {
            (Subject::Credential(id), Call::Submit) => self.submit(id).await,
            (Subject::Credential(id), Call::Endorse) => self.endorse(id).await.map(nothing),
            (Subject::Credential(id), Call::Collect) => self.collect(id).await,
            (Subject::Revocation(id), Call::Rotate) => self.rotate(id).await.map(nothing),
            (Subject::Revocation(id), Call::Check) => self.check(id).await.map(nothing),
            (Subject::Authority(id), Call::Make) => self.make(id).await,
            (Subject::Credential(_) | Subject::Revocation(_), Call::Probe) => {
                self.probe(subject).await.map(nothing)
            }
            (
                Subject::Credential(_) | Subject::Revocation(_) | Subject::Authority(_),
                Call::Submit
                | Call::Endorse
                | Call::Collect
                | Call::Rotate
                | Call::Check
                | Call::Make
                | Call::Probe,
            ) => Err(own_fault("a call that its subject does not have")),
        };
        done.unwrap_or_else(|failure| nothing(Answer::failed(call, failure)))
    }

    fn now(&self) -> Timestamp {
        self.tools.deps.clock.now()
    }

    fn intent(&self, id: CredentialId) -> Result<Intent, Failure> {
        let credential = self.record.credential(id);
        let credential = credential.ok_or_else(|| own_fault("the credential is gone"))?;
        Ok(intent(self.configured, credential, self.now()))
    }

    /// What was stored before the request was first given to the signer.
    async fn draft(&self, id: CredentialId) -> Result<Draft, Failure> {
        let mut texts = self.certificates(id.0).await?;
        Ok(Draft {
            private_key: self.key(id.0, KeyPurpose::Credential).await?,
            signing_request: texts.remove(&CertificateKind::SigningRequest),
        })
    }

    async fn submit(&self, id: CredentialId) -> Result<Done, Failure> {
        let (intent, draft) = (self.intent(id)?, self.draft(id).await?);
        let outcome = self.configured.signer.submit(&self.context, &intent, &draft).await;
        let mut delivered = Delivered::default();
        let answer = match outcome {
            SubmitOutcome::Submitted => SubmitAnswer::Submitted,
            SubmitOutcome::Signed(signed) => {
                let signed = *signed;
                let mut keep = |kind, pem| {
                    delivered.material.push(Material { owner: id.0, kind, pem });
                };
                keep(CertificateKind::Credential, signed.certificate.pem);
                keep(CertificateKind::Authority, signed.authority);
                keep(CertificateKind::Probe, signed.probe.certificate);
                let own = signed.private_key.map(|key| (id.0, KeyPurpose::Credential, key));
                delivered.keys.extend(own);
                delivered.keys.push((id.0, KeyPurpose::Probe, signed.probe.private_key));
                SubmitAnswer::Signed { not_after: signed.certificate.not_after }
            }
            SubmitOutcome::Refused(message) => SubmitAnswer::Refused(message),
            SubmitOutcome::Broken(message) => SubmitAnswer::Broken(message),
            SubmitOutcome::Unavailable(trouble) | SubmitOutcome::Unknown(trouble) => {
                return Err(failure(&trouble));
            }
        };
        Ok((Answer::Submit(answer), delivered))
    }

    async fn endorse(&self, id: CredentialId) -> Result<Answer, Failure> {
        let outcome = self.configured.signer.endorse(&self.context, &self.intent(id)?).await;
        Ok(Answer::Endorse(match outcome {
            EndorseOutcome::Endorsed => EndorseAnswer::Endorsed,
            EndorseOutcome::Refused(message) => EndorseAnswer::Refused(message),
            EndorseOutcome::Unavailable(trouble) | EndorseOutcome::Unknown(trouble) => {
                return Err(failure(&trouble));
            }
        }))
    }

    async fn collect(&self, id: CredentialId) -> Result<Done, Failure> {
        let (intent, draft) = (self.intent(id)?, self.draft(id).await?);
        let outcome = self.configured.signer.collect(&self.context, &intent, &draft).await;
        let mut delivered = Delivered::default();
        let answer = match outcome {
            CollectOutcome::Signed(certificate) => {
                let (owner, kind) = (id.0, CertificateKind::Credential);
                delivered.material.push(Material { owner, kind, pem: certificate.pem });
                CollectAnswer::Signed { not_after: certificate.not_after }
            }
            CollectOutcome::Pending(_what) => CollectAnswer::Pending,
            CollectOutcome::Refused(message) => CollectAnswer::Refused(message),
            CollectOutcome::Broken(message) => CollectAnswer::Broken(message),
            CollectOutcome::Unavailable(trouble) => return Err(failure(&trouble)),
        };
        Ok((Answer::Collect(answer), delivered))
    }

    fn rotation(&self, id: RevocationId) -> Result<Rotation, Failure> {
        let revocation = self.record.revocation(id);
        let revocation = revocation.ok_or_else(|| own_fault("the revocation is gone"))?;
        let cluster = self.configured.cluster.clone();
        Ok(Rotation { cluster, id: id.0, attempt: revocation.attempt })
    }

    async fn rotate(&self, id: RevocationId) -> Result<Answer, Failure> {
        let outcome = self.configured.signer.rotate(&self.context, &self.rotation(id)?).await;
        Ok(Answer::Rotate(match outcome {
            RotateOutcome::Begun => RotateAnswer::Begun,
            RotateOutcome::Broken(message) => RotateAnswer::Lost(message),
            RotateOutcome::Unavailable(trouble) | RotateOutcome::Unknown(trouble) => {
                return Err(failure(&trouble));
            }
        }))
    }

    async fn check(&self, id: RevocationId) -> Result<Answer, Failure> {
        let outcome = self.configured.signer.check(&self.context, &self.rotation(id)?).await;
        Ok(Answer::Check(match outcome {
            CheckOutcome::Running { progress } => CheckAnswer::Running { progress },
            CheckOutcome::Done { cut_off } => CheckAnswer::Done { cut_off },
            CheckOutcome::Lost(message) => CheckAnswer::Lost(message),
            CheckOutcome::Unavailable(trouble) => return Err(failure(&trouble)),
        }))
    }

    async fn make(&self, id: AuthorityId) -> Result<Done, Failure> {
        let authority = self.record.authorities.iter().find(|authority| authority.id == id);
        let authority = authority.ok_or_else(|| own_fault("the authority is gone"))?;
        let (kind, life) = match authority.kind {
            AuthorityKind::Control => (Kind::Control, CONTROL_LIFE),
            AuthorityKind::Placeholder => (Kind::Placeholder, PLACEHOLDER_LIFE),
        };
        let (now, cluster) = (self.now(), self.configured.cluster.clone());
        let not_after = now.plus(life);
        let intent = AuthorityIntent { cluster, id: id.0, kind, now, not_after };
        match self.configured.signer.make(&self.context, &intent).await {
            MakeOutcome::Made { authority, identity } => {
                let (owner, kind) = (id.0, CertificateKind::Authority);
                let mut delivered = Delivered::default();
                delivered.material.push(Material { owner, kind, pem: authority });
                if let Some(identity) = identity {
                    let kind = CertificateKind::Probe;
                    delivered.material.push(Material { owner, kind, pem: identity.certificate });
                    delivered.keys.push((owner, KeyPurpose::Probe, identity.private_key));
                }
                Ok((Answer::Make(MakeAnswer::Made { not_after }), delivered))
            }
            MakeOutcome::Unavailable(trouble) => Err(failure(&trouble)),
        }
    }

    /// Asks every API server about every login at once, so that one that hangs holds up nobody.
    async fn probe(&self, subject: Subject) -> Result<Answer, Failure> {
        let asked: Vec<&Credential> = match subject {
            Subject::Credential(id) => self.record.credential(id).into_iter().collect(),
            Subject::Revocation(id) => {
                self.record.revoked_by(id).filter(|c| c.can_be_probed()).collect()
            }
            Subject::Authority(_) => Vec::new(),
        };
        let mut logins = Vec::new();
        for credential in asked {
            logins.push(self.login(credential).await?);
        }
        let controls = match subject {
            Subject::Revocation(_) => self.controls().await?,
            Subject::Credential(_) | Subject::Authority(_) => Vec::new(),
        };
        let ask = |endpoint: &'_ Endpoint| {
            let endpoint = endpoint.clone();
            let (logins, controls) = (&logins, &controls);
            async move {
                let verdict = together(self.ask(&endpoint, logins).await);
                let control = any(self.ask(&endpoint, controls).await);
                EndpointSeen { endpoint: endpoint.url, verdict, control }
            }
        };
        let seen = join_all(self.configured.endpoints.iter().map(ask)).await;
        Ok(Answer::Probe(ProbeAnswer::Seen(seen)))
    }

    async fn ask(&self, endpoint: &Endpoint, logins: &[Identity]) -> Vec<ProbeOutcome> {
        let signer = &self.configured.signer;
        let deadline = self.context.deadline.min(Instant::now() + self.configured.probe_timeout);
        let context = CallContext { deadline, ..self.context.clone() };
        join_all(logins.iter().map(|login| signer.probe(&context, endpoint, login))).await
    }

    /// The login by which an API server is asked about a credential: its probe, or where there is none, itself.
    async fn login(&self, credential: &Credential) -> Result<Identity, Failure> {
        let (kind, purpose) = match credential.signer {
            SignerName::LocalCa => (CertificateKind::Probe, KeyPurpose::Probe),
            SignerName::KubernetesCsr => (CertificateKind::Credential, KeyPurpose::Credential),
        };
        self.identity(credential.id.0, kind, purpose).await
    }

    async fn controls(&self) -> Result<Vec<Identity>, Failure> {
        let made = |authority: &&Authority| {
            let is = authority.kind == AuthorityKind::Control && authority.made_at.is_some();
            is && !authority.dropped
        };
        let mut controls = Vec::new();
        for authority in self.record.authorities.iter().filter(made) {
            let (kind, purpose) = (CertificateKind::Probe, KeyPurpose::Probe);
            controls.push(self.identity(authority.id.0, kind, purpose).await?);
        }
        let own = |credential: &&Credential| {
            credential.control
                && credential.issued_at.is_some()
                && credential.state.revocation().is_none()
        };
        for credential in self.record.live().filter(own) {
            controls.push(self.login(credential).await?);
        }
        Ok(controls)
    }

    async fn identity(
        &self,
        owner: Uuid,
        kind: CertificateKind,
        purpose: KeyPurpose,
    ) -> Result<Identity, Failure> {
        let certificate = self.certificates(owner).await?.remove(&kind);
        let private_key = self.key(owner, purpose).await?;
        match (certificate, private_key) {
            (Some(certificate), Some(private_key)) => Ok(Identity { certificate, private_key }),
            (Some(_) | None, _) => Err(own_fault("a login is missing from the database")),
        }
    }

    async fn certificates(
        &self,
        owner: Uuid,
    ) -> Result<std::collections::BTreeMap<CertificateKind, String>, Failure> {
        let found = self.tools.store.certificates(owner).await;
        found.map_err(|_| own_fault("the database does not answer"))
    }

    async fn key(&self, owner: Uuid, purpose: KeyPurpose) -> Result<Option<SecretString>, Failure> {
        let stored = self.tools.store.sealed_key(owner, purpose).await;
        let sealed = stored.map_err(|_| own_fault("the database does not answer"))?;
        let Some(sealed) = sealed else { return Ok(None) };
        let opened = self.tools.deps.keyring.get().open_secret(&aad(owner, purpose), &sealed.bytes);
        opened.map(Some).map_err(|error| own_fault(&format!("a stored private key: {error}")))
    }
}

/// Rejected when each of them is, accepted when any is. About nobody nothing is said.
fn together(outcomes: Vec<ProbeOutcome>) -> Verdict {
    let mut verdict = Verdict::Unknown("there is nothing to ask about".to_owned());
    let mut all_rejected = !outcomes.is_empty();
    for outcome in outcomes {
        match outcome {
            ProbeOutcome::Accepted { .. } => return Verdict::Accepted,
            ProbeOutcome::Rejected => {}
            ProbeOutcome::Unknown { reason } => {
                all_rejected = false;
                verdict = Verdict::Unknown(reason);
            }
        }
    }
    if all_rejected { Verdict::Rejected } else { verdict }
}

/// A control that is accepted is enough.
fn any(outcomes: Vec<ProbeOutcome>) -> Verdict {
    if outcomes.is_empty() {
        return Verdict::Unknown("there is no control yet".to_owned());
    }
    together(outcomes)
}

#[cfg(test)]
mod tests;
