//! The judge: what has to be true after every step, from the outside's own record and from the events.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::outside::Outside;
use crate::ids::{CallToken, CredentialId, RevocationId};

#[derive(Debug, Default)]
pub struct Judge {
    /// The latest row of everything that ever was.
    pub rows: BTreeMap<CredentialId, Credential>,
    /// Asked to be revoked: never a working credential from then on.
    doomed: BTreeSet<CredentialId>,
    signed: BTreeSet<CredentialId>,
    ended_revocations: BTreeSet<RevocationId>,
    tokens: BTreeSet<CallToken>,
    open: BTreeMap<Subject, Call>,
    bundles: u64,
    confirmed: u64,
}

impl Judge {
    /// One event, with the state before it.
    pub fn note(
        &mut self,
        event: &Event,
        before: Option<&BreakGlass>,
        outside: &Outside,
        now: Timestamp,
    ) {
        if let (Some(call), Some(subject)) = (event.outcome_of(), event.subject()) {
            assert_eq!(self.open.remove(&subject), Some(call), "an outcome of no call: {event:?}");
        }
        match event {
            Event::CallAnnounced { subject, call, token, .. } => {
                assert!(self.tokens.insert(*token), "a token was used twice");
                assert_eq!(self.open.insert(*subject, *call), None, "two calls on one subject");
                let record = before.expect("a record");
                if *call == Call::Submit && record.fence().is_some() {
                    let Subject::Credential(id) = subject else { panic!("{event:?}") };
                    let control = record.credential(*id).is_some_and(|c| c.control);
                    assert!(control, "a request was submitted during a revocation");
                }
            }
            Event::CertificateSigned { credential_id, .. } => {
                assert!(self.signed.insert(*credential_id), "signed twice: {credential_id}");
                assert!(!self.doomed.contains(credential_id), "signed after its revocation");
            }
            Event::CredentialIssued { credential_id, .. } => {
                assert!(!self.doomed.contains(credential_id), "issued after its revocation");
                let row = before.and_then(|r| r.credential(*credential_id)).expect("a credential");
                assert!(row.certificate.is_some(), "issued without a certificate");
            }
            Event::CredentialRequested { credential } => {
                let record = before.expect("a record");
                assert!(
                    record.fence().is_none() || credential.control,
                    "asked for during a revocation"
                );
                let taken = record.live().any(|c| c.username == credential.username);
                assert!(!taken, "a name was given twice");
            }
            Event::RevocationRequested { credentials, .. } => self.doomed.extend(credentials),
            Event::CredentialRevoked { credential_id, revocation_id, .. } => {
                let record = before.expect("a record");
                let row = record.credential(*credential_id).expect("a credential");
                assert!(self.doomed.contains(credential_id), "revoked without being asked to");
                self.proved(record, (*revocation_id, row), outside, now);
            }
            Event::RevocationCompleted { revocation_id, .. } => {
                assert!(self.ended_revocations.insert(*revocation_id), "ended twice");
            }
            Event::CredentialApproved { credential_id, by, .. } => {
                let row = before.and_then(|r| r.credential(*credential_id)).expect("a credential");
                assert_ne!(row.requested_by, *by, "approved by the one who asked");
            }
            _ => {}
        }
    }

    /// "Revoked" is what every API server says, or an adapter has confirmed.
    fn proved(
        &self,
        record: &BreakGlass,
        (revocation_id, row): (RevocationId, &Credential),
        outside: &Outside,
        now: Timestamp,
    ) {
        if row.certificate.is_none() {
            return;
        }
        // Nobody could be asked, because every key was its requester's own: the signer's word has to do.
        let asked = record.revocation(revocation_id).is_some_and(|r| !r.endpoints.is_empty());
        if row.signer == Signer::KubernetesCsr && !row.can_be_probed() && !asked {
            return;
        }
        for (name, server) in &outside.servers {
            assert!(!outside.lets_in(server, row, now), "{name} lets in what is revoked");
        }
        if outside.servers.is_empty() && row.signer == Signer::LocalCa {
            assert!(self.confirmed > 0, "nobody has confirmed anything");
            assert!(!record.trusted().contains(&row.id.0), "still trusted");
        }
    }

    pub fn confirm(&mut self, version: u64) {
        self.confirmed = self.confirmed.max(version);
    }

    /// The end of a step, before the record is compacted.
    pub fn step(&mut self, record: &BreakGlass, events: &[Event], now: Timestamp) {
        for (index, event) in events.iter().enumerate() {
            assert!(!events[..index].contains(event), "twice in one step: {event:?}");
        }
        let calls: BTreeMap<Subject, Call> = record.calls().map(|(s, c)| (s, c.call)).collect();
        assert_eq!(calls, self.open, "calls and audit agree");
        let mut once = BTreeSet::new();
        for effect in effects(record, now) {
            assert!(!self.open.contains_key(&effect.subject), "wanted while one is running");
            assert!(once.insert(effect.subject), "two calls wanted for one subject");
        }
        assert!(record.bundle_version >= self.bundles, "a version of the bundle was used twice");
        self.bundles = record.bundle_version;
        for row in &record.credentials {
            if let Some(old) = self.rows.get(&row.id).filter(|old| old.state.name().is_ended()) {
                assert_eq!(old.state, row.state, "what has ended came back");
            }
            let works = row.state == CredentialState::Active;
            assert!(!(works && self.doomed.contains(&row.id)), "revoked, and it works");
            self.rows.insert(row.id, row.clone());
        }
        let people = record.live().filter(|c| !c.control && c.signer == Signer::LocalCa);
        assert!(people.count() <= 64);
    }
}
