//! Which calls a state wants, and when it wants to be looked at again. Derived from the stored state and
//! nothing else, so a restart needs no path of its own.

use super::model::{
    Authority, BreakGlass, Call, Credential, CredentialState, EndpointProgress, IssueStep,
    Revocation, RevocationState, Signer, Subject,
};
use super::policy::{ClusterRules, Policy};
use crate::time::Timestamp;

/// One call that the state wants. It is announced before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// For what.
    pub subject: Subject,
    /// Which call.
    pub call: Call,
    /// How often it has failed.
    pub attempt: u32,
    /// Not before this.
    pub due: Timestamp,
}

/// The wanted calls, at most one per subject and none for a subject whose call is running, those of the
/// future included.
#[must_use]
pub fn effects(record: &BreakGlass, now: Timestamp) -> Vec<Effect> {
    if record.quarantine.is_some_and(|quarantine| quarantine.retry_at > now) {
        return Vec::new();
    }
    let credentials = record.credentials.iter().filter_map(credential);
    let revocations = record.revocations.iter().filter_map(|r| revocation(record, r));
    let authorities = record.authorities.iter().filter_map(authority);
    credentials.chain(revocations).chain(authorities).collect()
}

fn credential(credential: &Credential) -> Option<Effect> {
    if credential.call.is_some() {
        return None;
    }
    let call = match credential.state {
        CredentialState::Accepted => Call::Submit,
        CredentialState::Issuing { step } => match step {
            IssueStep::Submitting => Call::Submit,
            IssueStep::Endorsing => Call::Endorse,
            IssueStep::Collecting => Call::Collect,
            IssueStep::Probing => {
                if all_proved(&credential.endpoints) {
                    return None;
                }
                Call::Probe
            }
        },
        CredentialState::Requested
        | CredentialState::Active
        | CredentialState::AwaitingRevocation { .. }
        | CredentialState::Revoking { .. }
        | CredentialState::Revoked { .. }
        | CredentialState::Denied
        | CredentialState::Failed
        | CredentialState::Expired => return None,
    };
    let subject = Subject::Credential(credential.id);
    let attempt = credential.trouble.attempts;
    Some(Effect { subject, call, attempt, due: credential.next_attempt_at })
}

fn revocation(record: &BreakGlass, revocation: &Revocation) -> Option<Effect> {
    if revocation.call.is_some() {
        return None;
    }
    let call = match revocation.state {
        // A call for a credential that is still running might be applied after the rotation.
        RevocationState::Pending => {
            let running = record.revoked_by(revocation.id).any(|c| c.call.is_some());
            if running || revocation.signer == Signer::LocalCa {
                return None;
            }
            Call::Rotate
        }
        RevocationState::Rotating => Call::Check,
        RevocationState::Proving => {
            if all_proved(&revocation.endpoints) || !record.has_control(revocation.signer) {
                return None;
            }
            Call::Probe
        }
        RevocationState::Completed | RevocationState::Superseded => return None,
    };
    let subject = Subject::Revocation(revocation.id);
    let attempt = revocation.trouble.attempts;
    Some(Effect { subject, call, attempt, due: revocation.next_attempt_at })
}

fn authority(authority: &Authority) -> Option<Effect> {
    if authority.call.is_some() || authority.made_at.is_some() || authority.dropped {
        return None;
    }
    Some(Effect {
        subject: Subject::Authority(authority.id),
        call: Call::Make,
        attempt: authority.trouble.attempts,
        due: authority.next_attempt_at,
    })
}

impl BreakGlass {
    /// Whether there is something that API servers have to accept. The embedded signer's comes by itself.
    pub(super) fn has_control(&self, signer: Signer) -> bool {
        match signer {
            Signer::LocalCa => true,
            Signer::KubernetesCsr => self.credentials.iter().any(|credential| {
                credential.control && credential.state == CredentialState::Active
            }),
        }
    }
}

/// True also where nobody has to be asked.
pub(super) fn all_proved(endpoints: &[EndpointProgress]) -> bool {
    endpoints.iter().all(|endpoint| endpoint.proved_at.is_some())
}

/// The earliest time at which something is to be done without anybody asking.
#[must_use]
pub fn due_at(record: &BreakGlass, policy: &Policy, rules: &ClusterRules) -> Option<Timestamp> {
    if let Some(quarantine) = record.quarantine {
        return Some(quarantine.retry_at);
    }
    let running = record.calls().map(|(_, call)| call.at.plus(policy.call_lost_after()));
    let wanted = effects(record, Timestamp::EPOCH).into_iter().map(|effect| effect.due);
    let ends = record.credentials.iter().filter_map(|credential| credential.ends_at(policy));
    let authorities = record.authorities.iter().filter_map(Authority::drops_at);
    let control = record.control_due_at(rules);
    running.chain(wanted).chain(ends).chain(authorities).chain(control).min()
}

impl Credential {
    /// When it ends by time alone.
    pub(super) fn ends_at(&self, policy: &Policy) -> Option<Timestamp> {
        match self.state {
            CredentialState::Requested | CredentialState::Active => Some(self.expires_at),
            CredentialState::Accepted | CredentialState::Issuing { .. } => {
                self.accepted_at.map(|at| at.plus(policy.issue_deadline))
            }
            CredentialState::AwaitingRevocation { .. }
            | CredentialState::Revoking { .. }
            | CredentialState::Revoked { .. }
            | CredentialState::Denied
            | CredentialState::Failed
            | CredentialState::Expired => None,
        }
    }
}

impl Authority {
    /// When it leaves; a call that is running for it comes first.
    pub(super) fn drops_at(&self) -> Option<Timestamp> {
        self.not_after.filter(|_| !self.dropped && self.call.is_none())
    }
}
