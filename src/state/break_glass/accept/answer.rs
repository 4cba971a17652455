//! `Answer`: a call ended.

use super::super::model::{
    Announcement, BreakGlass, Call, Certificate, Credential, CredentialState, IssueStep,
    Revocation, RevocationState, Subject,
};
use super::super::{
    Answer, CheckAnswer, CollectAnswer, Context, EndorseAnswer, Event, MakeAnswer, Policy,
    ProbeAnswer, Rejection, RotateAnswer, SubmitAnswer,
};
use super::probe;
use crate::ids::{AuthorityId, CallToken, CredentialId, RevocationId};
use crate::state::shared::{Failure, Trouble};
use crate::time::Timestamp;

/// An outcome is accepted only while its token is current.
pub(super) fn answer(
    record: &BreakGlass,
    subject: Subject,
    token: CallToken,
    answer: &Answer,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let running = record.call_of(subject).ok_or(Rejection::NotCurrent)?;
    if running.token != token || running.call != answer.call() {
        return Err(Rejection::NotCurrent);
    }
    Ok(outcome(record, subject, running, answer, context))
}

/// Nobody will answer the calls of the owner before: each is closed.
pub(super) fn take_over(state: Option<&BreakGlass>, context: &mut Context<'_>) -> Vec<Event> {
    let Some(record) = state else { return Vec::new() };
    record
        .calls()
        .flat_map(|(subject, running)| {
            outcome(record, subject, running, &Answer::died(running.call), context)
        })
        .collect()
}

/// What an answer means for its subject. One that was made for a state that is no longer only frees the
/// subject for the next call.
pub(in super::super) fn outcome(
    record: &BreakGlass,
    subject: Subject,
    running: Announcement,
    answer: &Answer,
    context: &mut Context<'_>,
) -> Vec<Event> {
    if !is_awaited(record, subject, running) {
        return vec![ended(subject, running.call, context)];
    }
    let told = Told { record, subject, running, context };
    match (subject, answer) {
        (Subject::Credential(id), Answer::Submit(answer)) => told.submit(id, answer),
        (Subject::Credential(id), Answer::Endorse(answer)) => told.endorse(id, answer),
        (Subject::Credential(id), Answer::Collect(answer)) => told.collect(id, answer),
        (Subject::Credential(_) | Subject::Revocation(_), Answer::Probe(answer)) => {
            told.probe(answer)
        }
        (Subject::Revocation(id), Answer::Rotate(answer)) => told.rotate(id, answer),
        (Subject::Revocation(id), Answer::Check(answer)) => told.check(id, answer),
        (Subject::Authority(id), Answer::Make(answer)) => told.make(id, answer),
        (Subject::Credential(_), Answer::Rotate(_) | Answer::Check(_) | Answer::Make(_))
        | (
            Subject::Revocation(_),
            Answer::Submit(_) | Answer::Endorse(_) | Answer::Collect(_) | Answer::Make(_),
        )
        | (
            Subject::Authority(_),
            Answer::Submit(_)
            | Answer::Endorse(_)
            | Answer::Collect(_)
            | Answer::Probe(_)
            | Answer::Rotate(_)
            | Answer::Check(_),
        ) => vec![ended(subject, answer.call(), told.context)],
    }
}

const fn ended(subject: Subject, call: Call, context: &Context<'_>) -> Event {
    Event::CallEnded { subject, call, at: context.now }
}

/// Whether the state is still the one that the call was made for.
fn is_awaited(record: &BreakGlass, subject: Subject, running: Announcement) -> bool {
    match subject {
        Subject::Credential(id) => record.credential(id).is_some_and(|c| awaits(c, running.call)),
        Subject::Revocation(id) => {
            record.revocation(id).is_some_and(|r| revocation_awaits(r, running.call))
        }
        Subject::Authority(id) => {
            let wanted = |a: &&super::super::Authority| a.id == id && a.made_at.is_none();
            record.authorities.iter().find(wanted).is_some_and(|authority| !authority.dropped)
        }
    }
}

fn awaits(credential: &Credential, call: Call) -> bool {
    let step = match credential.state {
        CredentialState::Issuing { step } => step,
        CredentialState::Requested
        | CredentialState::Accepted
        | CredentialState::Active
        | CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => return false,
    };
    match step {
        IssueStep::Submitting => call == Call::Submit,
        IssueStep::Endorsing => call == Call::Endorse,
        IssueStep::Collecting => call == Call::Collect,
        IssueStep::Probing => call == Call::Probe,
    }
}

fn revocation_awaits(revocation: &Revocation, call: Call) -> bool {
    match revocation.state {
        RevocationState::Pending => call == Call::Rotate,
        RevocationState::Rotating => call == Call::Check,
        RevocationState::Proving => call == Call::Probe,
        RevocationState::Completed | RevocationState::Superseded => false,
    }
}

struct Told<'a, 'c> {
    record: &'a BreakGlass,
    subject: Subject,
    running: Announcement,
    context: &'a mut Context<'c>,
}

impl Told<'_, '_> {
    fn submit(self, credential_id: CredentialId, answer: &SubmitAnswer) -> Vec<Event> {
        let at = self.context.now;
        match answer {
            SubmitAnswer::Submitted => vec![Event::RequestSubmitted { credential_id, at }],
            SubmitAnswer::Signed { not_after } => self.signed(credential_id, *not_after),
            SubmitAnswer::Refused(message) => self.denied(credential_id, message),
            SubmitAnswer::Broken(message) => self.broken(credential_id, message),
            SubmitAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn endorse(self, credential_id: CredentialId, answer: &EndorseAnswer) -> Vec<Event> {
        let at = self.context.now;
        match answer {
            EndorseAnswer::Endorsed => vec![Event::RequestEndorsed { credential_id, at }],
            EndorseAnswer::Refused(message) => self.denied(credential_id, message),
            EndorseAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn collect(self, credential_id: CredentialId, answer: &CollectAnswer) -> Vec<Event> {
        match answer {
            CollectAnswer::Signed { not_after } => self.signed(credential_id, *not_after),
            CollectAnswer::Pending => {
                let next_attempt_at = self.context.now.plus(Policy::COLLECT_INTERVAL);
                vec![Event::CertificateAwaited { credential_id, next_attempt_at }]
            }
            CollectAnswer::Refused(message) => self.denied(credential_id, message),
            CollectAnswer::Broken(message) => self.broken(credential_id, message),
            CollectAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn signed(self, credential_id: CredentialId, not_after: Timestamp) -> Vec<Event> {
        let certificate = Certificate { not_after, signed_at: self.context.now };
        vec![
            ended(self.subject, self.running.call, self.context),
            Event::CertificateSigned { credential_id, certificate },
        ]
    }

    fn denied(self, credential_id: CredentialId, message: &str) -> Vec<Event> {
        let (message, at) = (message.to_owned(), self.context.now);
        vec![
            ended(self.subject, self.running.call, self.context),
            Event::CredentialDenied { credential_id, by: None, message, at },
        ]
    }

    fn broken(self, credential_id: CredentialId, message: &str) -> Vec<Event> {
        let (message, at) = (message.to_owned(), self.context.now);
        vec![
            ended(self.subject, self.running.call, self.context),
            Event::CredentialFailed { credential_id, message, at },
        ]
    }

    fn probe(self, answer: &ProbeAnswer) -> Vec<Event> {
        match answer {
            ProbeAnswer::Seen(seen) => {
                probe::seen(self.record, self.subject, seen, self.context).into_iter().collect()
            }
            ProbeAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn rotate(self, revocation_id: RevocationId, answer: &RotateAnswer) -> Vec<Event> {
        let at = self.context.now;
        match answer {
            RotateAnswer::Begun => vec![Event::RotationBegun { revocation_id, at }],
            RotateAnswer::Lost(message) => self.lost(revocation_id, message),
            RotateAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn check(self, revocation_id: RevocationId, answer: &CheckAnswer) -> Vec<Event> {
        let at = self.context.now;
        match answer {
            CheckAnswer::Running { progress } => vec![Event::RotationWatched {
                revocation_id,
                progress: progress.clone(),
                next_attempt_at: at.plus(Policy::CHECK_INTERVAL),
            }],
            CheckAnswer::Done { cut_off } => {
                let done = Event::RotationDone { revocation_id, cut_off: *cut_off, at };
                let revocation = self.record.revocation(revocation_id);
                let proving = revocation.map(|revocation| {
                    super::super::advance::proving(self.record, revocation, self.context)
                });
                [done].into_iter().chain(proving).collect()
            }
            CheckAnswer::Lost(message) => self.lost(revocation_id, message),
            CheckAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn lost(self, revocation_id: RevocationId, message: &str) -> Vec<Event> {
        let pause = self.context.policy.retry.delay(1, &mut self.context.entropy);
        let next_attempt_at = self.context.now.plus(pause);
        let message = message.to_owned();
        vec![
            ended(self.subject, self.running.call, self.context),
            Event::RotationLost { revocation_id, message, next_attempt_at },
        ]
    }

    fn make(self, authority_id: AuthorityId, answer: &MakeAnswer) -> Vec<Event> {
        let at = self.context.now;
        match answer {
            MakeAnswer::Made { not_after } => {
                vec![Event::AuthorityMade { authority_id, not_after: *not_after, at }]
            }
            MakeAnswer::Failed(failure) => vec![self.failed(failure)],
        }
    }

    fn failed(self, failure: &Failure) -> Event {
        let context = self.context;
        let trouble = self.record.trouble_of(self.subject);
        let (now, retry) = (context.now, &context.policy.retry);
        let (trouble, mut next_attempt_at) =
            trouble.after(failure, now, retry, &mut context.entropy);
        // A signer's rotation and API servers are asked at a fixed pace, however long it takes.
        match self.running.call {
            Call::Probe => next_attempt_at = now.plus(context.policy.probe_interval),
            Call::Check => next_attempt_at = now.plus(Policy::CHECK_INTERVAL),
            Call::Submit | Call::Endorse | Call::Collect | Call::Rotate | Call::Make => {}
        }
        let (subject, call) = (self.subject, self.running.call);
        Event::CallFailed { subject, call, trouble, next_attempt_at }
    }
}

impl BreakGlass {
    pub(in super::super) fn trouble_of(&self, subject: Subject) -> Trouble {
        let trouble = match subject {
            Subject::Credential(id) => self.credential(id).map(|c| &c.trouble),
            Subject::Revocation(id) => self.revocation(id).map(|r| &r.trouble),
            Subject::Authority(id) => {
                self.authorities.iter().find(|authority| authority.id == id).map(|a| &a.trouble)
            }
        };
        trouble.cloned().unwrap_or_default()
    }
}
