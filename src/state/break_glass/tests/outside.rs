//! A simulated outside: a signer and API servers that are slow, lose answers, reload late; and their own record
//! of the truth.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::super::*;
use super::told::{DAY, HOUR, MINUTE, silent};
use crate::ids::{CredentialId, RevocationId};

/// What the signer of one cluster really did.
#[derive(Debug, Default)]
pub struct Outside {
    /// Which authority the signer that has one for all signs with.
    pub epoch: u32,
    pub requests: BTreeMap<CredentialId, Request>,
    pub rotations: BTreeMap<(RevocationId, u32), Rotation>,
    pub servers: BTreeMap<String, Server>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Request {
    pub endorsed: bool,
    /// Signed by which authority, and until when.
    pub signed: Option<(u32, Timestamp)>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Rotation {
    steps: u32,
    hopeless: bool,
    done: bool,
}

#[derive(Debug, Default, Clone)]
pub struct Server {
    /// The authorities (by owner) of the bundle that it has loaded.
    pub loaded: BTreeSet<Uuid>,
    /// Authorities of the common signer before this one are not trusted.
    pub epoch: u32,
    pub down: bool,
    /// It rejects everything, whatever it has loaded.
    pub deaf: bool,
}

impl Outside {
    pub fn new(endpoints: &[String]) -> Self {
        let servers = endpoints.iter().map(|name| (name.clone(), Server::default())).collect();
        Self { servers, ..Self::default() }
    }

    /// The truth, whoever asks: whether this server lets the credential in.
    pub fn lets_in(&self, server: &Server, credential: &Credential, now: Timestamp) -> bool {
        let Some(certificate) = credential.certificate else { return false };
        if certificate.not_after <= now {
            return false;
        }
        match credential.signer {
            Signer::LocalCa => server.loaded.contains(&credential.id.0),
            Signer::KubernetesCsr => {
                let request = self.requests.get(&credential.id);
                let signed = request.and_then(|request| request.signed);
                signed.is_some_and(|(epoch, _)| epoch >= server.epoch)
            }
        }
    }

    /// Makes a call; `choice` decides how it goes.
    pub fn perform(
        &mut self,
        record: &BreakGlass,
        (subject, call): (Subject, Call),
        now: Timestamp,
        choice: u16,
    ) -> Answer {
        let not_after = now.plus(DAY);
        match (call, subject) {
            (Call::Submit, Subject::Credential(id)) => {
                let signer = record.credential(id).map(|credential| credential.signer);
                match (signer, choice % 16) {
                    (_, 0) => Answer::Submit(SubmitAnswer::Refused("no".to_owned())),
                    (_, 1) => Answer::Submit(SubmitAnswer::Broken("no".to_owned())),
                    (Some(Signer::LocalCa), _) => {
                        Answer::Submit(SubmitAnswer::Signed { not_after })
                    }
                    (Some(Signer::KubernetesCsr) | None, _) => {
                        self.requests.entry(id).or_default();
                        Answer::Submit(SubmitAnswer::Submitted)
                    }
                }
            }
            (Call::Endorse, Subject::Credential(id)) => {
                self.requests.entry(id).or_default().endorsed = true;
                Answer::Endorse(EndorseAnswer::Endorsed)
            }
            (Call::Collect, Subject::Credential(id)) => self.collect(id, not_after, choice),
            (Call::Rotate, Subject::Revocation(id)) => {
                let attempt = record.revocation(id).map_or(1, |revocation| revocation.attempt);
                let hopeless = choice.is_multiple_of(5);
                let fresh = Rotation { hopeless, ..Rotation::default() };
                self.rotations.entry((id, attempt)).or_insert(fresh);
                Answer::Rotate(RotateAnswer::Begun)
            }
            (Call::Check, Subject::Revocation(id)) => {
                let attempt = record.revocation(id).map_or(1, |revocation| revocation.attempt);
                self.check((id, attempt), now)
            }
            (Call::Probe, subject) => self.probe(record, subject, now),
            (Call::Make, _) => Answer::Make(MakeAnswer::Made { not_after: now.plus(2 * DAY) }),
            (call, _) => Answer::lost(call, "a call on the wrong subject"),
        }
    }

    fn collect(&mut self, id: CredentialId, not_after: Timestamp, choice: u16) -> Answer {
        let epoch = self.epoch;
        let request = self.requests.entry(id).or_default();
        if !request.endorsed || choice.is_multiple_of(3) {
            return Answer::Collect(CollectAnswer::Pending);
        }
        let (_, not_after) = *request.signed.get_or_insert((epoch, not_after));
        Answer::Collect(CollectAnswer::Signed { not_after })
    }

    fn check(&mut self, of: (RevocationId, u32), now: Timestamp) -> Answer {
        let Some(rotation) = self.rotations.get_mut(&of) else {
            return Answer::Check(CheckAnswer::Lost("it is missing".to_owned()));
        };
        rotation.steps += 1;
        if rotation.hopeless && rotation.steps > 2 {
            return Answer::Check(CheckAnswer::Lost("it ran out of time".to_owned()));
        }
        if rotation.hopeless || rotation.steps < 3 {
            let progress = "LeafCertificatesRegenerated".to_owned();
            return Answer::Check(CheckAnswer::Running { progress });
        }
        if !std::mem::replace(&mut rotation.done, true) {
            self.epoch += 1;
        }
        Answer::Check(CheckAnswer::Done { cut_off: Some(now) })
    }

    fn probe(&self, record: &BreakGlass, subject: Subject, now: Timestamp) -> Answer {
        let asked: Vec<&Credential> = match subject {
            Subject::Credential(id) => record.credential(id).into_iter().collect(),
            Subject::Revocation(id) => {
                record.revoked_by(id).filter(|c| c.can_be_probed()).collect()
            }
            Subject::Authority(_) => Vec::new(),
        };
        let say = |server: &Server, lets_in: bool| match (server.down, server.deaf, lets_in) {
            (true, _, _) => silent(),
            (false, false, true) => Verdict::Accepted,
            (false, true, _) | (false, false, false) => Verdict::Rejected,
        };
        let control = |server: &Server| {
            let own = record.authorities.iter().any(|authority| {
                let valid = authority.not_after.is_some_and(|end| end > now);
                valid && server.loaded.contains(&authority.id.0)
            });
            let controls = record.credentials.iter().filter(|credential| credential.control);
            own || controls.into_iter().any(|c| self.lets_in(server, c, now))
        };
        let seen = self.servers.iter().map(|(endpoint, server)| EndpointSeen {
            endpoint: endpoint.clone(),
            verdict: say(server, asked.iter().any(|c| self.lets_in(server, c, now))),
            control: say(server, control(server)),
        });
        Answer::Probe(ProbeAnswer::Seen(seen.collect()))
    }

    /// A server reads the bundle that is published now, and learns which authority is trusted.
    pub fn reload(&mut self, which: usize, record: Option<&BreakGlass>) {
        let epoch = self.epoch;
        let count = self.servers.len().max(1);
        if let Some(server) = self.servers.values_mut().nth(which % count) {
            server.loaded = record.map(BreakGlass::trusted).unwrap_or_default();
            server.epoch = epoch;
        }
    }

    pub fn heal(&mut self, record: Option<&BreakGlass>) {
        for rotation in self.rotations.values_mut().filter(|rotation| !rotation.done) {
            rotation.steps += 1;
        }
        for which in 0..self.servers.len() {
            self.reload(which, record);
        }
        for server in self.servers.values_mut() {
            (server.down, server.deaf) = (false, false);
        }
    }
}

/// How far a clock may jump, either way.
pub const JUMPS: [std::time::Duration; 4] =
    [MINUTE, HOUR, DAY, std::time::Duration::from_secs(40 * 24 * 3600)];
