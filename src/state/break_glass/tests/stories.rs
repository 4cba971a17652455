//! What people rely on, told one by one.

use super::super::*;
use super::told::*;
use crate::ids::CredentialId;

fn rejected() -> Answer {
    seen(Verdict::Rejected, Verdict::Accepted)
}

#[test]
fn without_anybody_to_ask_a_signed_credential_is_issued_and_says_what_has_to_be_loaded() {
    let (told, id) = Told::active_blind();
    let credential = told.record().credential(id).unwrap();
    let etag = bundle_etag(&told.cluster_id(), told.record().bundle_version);
    assert!(credential.message.contains(&etag), "{}", credential.message);
    assert_eq!(credential.expires_at, credential.certificate.unwrap().not_after);
    assert!(told.record().trusted().contains(&id.0));
}

#[test]
fn with_api_servers_to_ask_it_is_issued_when_all_accept_it() {
    let mut told = Told::new(Signer::LocalCa, &[ENDPOINT, "https://api-1:6443"]);
    let id = told.request();
    told.make();
    let signed = told.signed();
    told.call(signed);
    told.call(seen(Verdict::Accepted, Verdict::Accepted));
    assert_eq!(told.name(id), StateName::Issuing, "one of two");
    told.pass(10 * MINUTE / 60);
    let other = EndpointSeen {
        endpoint: "https://api-1:6443".to_owned(),
        verdict: Verdict::Accepted,
        control: silent(),
    };
    told.call(Answer::Probe(ProbeAnswer::Seen(vec![other])));
    assert_eq!(told.name(id), StateName::Active);
}

#[test]
fn a_request_that_nobody_answers_fails_at_its_deadline_and_leaves_the_bundle() {
    let mut told = Told::local();
    let id = told.request();
    told.make();
    let signed = told.signed();
    told.call(signed);
    assert!(told.record().trusted().contains(&id.0));
    let version = told.record().bundle_version;
    told.call(seen(silent(), silent()));
    told.pass(10 * MINUTE);
    assert_eq!(told.name(id), StateName::Failed);
    assert!(!told.record().trusted().contains(&id.0));
    assert_eq!(told.record().bundle_version, version + 1);
    assert!(told.record().credential(id).unwrap().message.contains("no answer"));
}

#[test]
fn a_revocation_is_proved_by_rejections_in_a_row_beside_an_accepted_control() {
    let (mut told, id) = Told::active_local();
    told.revoke_all().unwrap();
    assert_eq!(told.name(id), StateName::Revoking);
    let step = |told: &mut Told, answer: Answer| {
        told.call(answer);
        told.pass(MINUTE / 6);
        told.name(id)
    };
    assert_eq!(step(&mut told, rejected()), StateName::Revoking);
    // Each of these begins the row again.
    for nothing in [
        seen(silent(), Verdict::Accepted),
        seen(Verdict::Rejected, Verdict::Rejected),
        seen(Verdict::Rejected, silent()),
        seen(Verdict::Accepted, Verdict::Accepted),
    ] {
        assert_eq!(step(&mut told, nothing), StateName::Revoking);
        assert_eq!(step(&mut told, rejected()), StateName::Revoking);
    }
    assert_eq!(step(&mut told, rejected()), StateName::Revoked);
    assert_eq!(told.record().fence(), None);
}

#[test]
fn without_anybody_to_ask_only_the_confirmation_of_a_late_enough_bundle_ends_a_revocation() {
    let (mut told, id) = Told::active_blind();
    let before = told.record().bundle_version;
    told.revoke_all().unwrap();
    told.make();
    told.pass(30 * DAY);
    assert_eq!(told.name(id), StateName::Revoking, "time proves nothing");
    assert!(told.record().credential(id).unwrap().message.contains("confirm"));
    told.tell(&Command::ConfirmBundle { version: before }).unwrap();
    assert_eq!(told.name(id), StateName::Revoking, "that one still held it");
    let version = told.record().bundle_version;
    let unknown = told.tell(&Command::ConfirmBundle { version: version + 1 });
    assert_eq!(unknown, Err(Rejection::UnknownBundle));
    let events = told.tell(&Command::ConfirmBundle { version }).unwrap();
    assert_eq!(names(&events), ["bundle_confirmed", "credential_revoked", "revocation_completed"]);
    assert_eq!(told.tell(&Command::ConfirmBundle { version }), Ok(vec![]), "repeating is harmless");
}

#[test]
fn nothing_is_issued_while_all_is_being_revoked_and_a_second_delete_joins() {
    let (mut told, _) = Told::active_csr();
    told.revoke_all().unwrap();
    let again = told.request_as(None, "bob");
    assert!(matches!(again, Err(Rejection::BeingRevoked { .. })), "{again:?}");
    assert_eq!(told.revoke_all(), Ok(vec![]));
    told.call(Answer::Rotate(RotateAnswer::Begun));
    told.call(Answer::Check(CheckAnswer::Done { cut_off: None }));
    assert!(told.request_as(None, "bob").is_ok());
}

#[test]
fn a_revocation_of_nothing_still_rotates_the_signer() {
    let mut told = Told::csr();
    told.revoke_all().unwrap();
    assert!(told.record().fence().is_some());
    told.call(Answer::Rotate(RotateAnswer::Begun));
    let events = told.call(Answer::Check(CheckAnswer::Done { cut_off: Some(told.now) }));
    assert_eq!(names(&events), ["rotation_done", "proving_began", "revocation_completed"]);
}

#[test]
fn a_request_that_is_pending_when_all_is_revoked_never_works() {
    let (mut told, id) = Told::collecting();
    let running = told.announce(Call::Collect);
    told.revoke_all().unwrap();
    assert_eq!(told.name(id), StateName::AwaitingRevocation);
    // The rotation waits for the call that is under way.
    assert!(told.due().is_empty(), "{:?}", told.due());
    let not_after = told.now.plus(DAY);
    let events =
        told.answer(running, Answer::Collect(CollectAnswer::Signed { not_after })).unwrap();
    assert_eq!(names(&events), ["call_ended"], "what was signed is dropped");
    told.call(Answer::Rotate(RotateAnswer::Begun));
    told.call(Answer::Check(CheckAnswer::Done { cut_off: None }));
    assert_eq!(told.name(id), StateName::Revoked);
    assert_eq!(told.record().credential(id).unwrap().certificate, None);
}

#[test]
fn what_has_expired_stays_expired_and_what_expires_while_being_revoked_ends_as_revoked() {
    let (mut told, first) = Told::active_blind();
    told.now = told.now.plus(DAY);
    told.revoke_all().unwrap();
    assert_eq!(told.name(first), StateName::Expired);
    let (mut told, second) = Told::active_local();
    told.revoke_all().unwrap();
    told.pass(3 * DAY);
    assert_eq!(told.name(second), StateName::Revoking);
    told.make();
    for _ in 0..2 {
        told.call(rejected());
        told.pass(MINUTE);
    }
    assert_eq!(told.name(second), StateName::Revoked);
}

#[test]
fn one_can_be_revoked_alone_where_the_signer_can() {
    let (mut told, first) = Told::active_local();
    let second = told.request();
    told.revoke_one(first).unwrap();
    assert_eq!(told.name(first), StateName::Revoking);
    assert_eq!(told.name(second), StateName::Accepted, "the others do not notice");
    assert!(told.request_as(None, "bob").is_ok(), "nor do new ones");
    assert_eq!(told.revoke_one(first), Ok(vec![]), "repeating is harmless");
    let (mut told, id) = Told::active_csr();
    assert_eq!(told.revoke_one(id), Err(Rejection::CannotRevokeOne));
    let unknown = CredentialId(told.uuid());
    assert_eq!(told.revoke_one(unknown), Err(Rejection::CannotRevokeOne));
}

#[test]
fn a_revocation_of_all_takes_those_of_one_over() {
    let (mut told, first) = Told::active_local();
    told.revoke_one(first).unwrap();
    let running = told.announce(Call::Probe);
    told.revoke_all().unwrap();
    let superseded = &told.record().revocations[0];
    assert_eq!(superseded.state, RevocationState::Superseded);
    let events = told.answer(running, rejected()).unwrap();
    assert_eq!(names(&events), ["call_ended"]);
    told.call(rejected());
    told.pass(MINUTE);
    told.call(rejected());
    assert_eq!(told.name(first), StateName::Revoked);
}

#[test]
fn a_rotation_that_cannot_succeed_is_asked_for_again() {
    let (mut told, id) = Told::rotating();
    told.call(Answer::Check(CheckAnswer::Lost("RevocationVerificationTimeout".to_owned())));
    assert_eq!(told.name(id), StateName::Revoking);
    told.pass(MINUTE);
    told.call(Answer::Rotate(RotateAnswer::Begun));
    assert_eq!(told.record().revocations[0].attempt, 2);
    told.call(Answer::Check(CheckAnswer::Done { cut_off: None }));
    assert_eq!(told.name(id), StateName::Revoked);
}

#[test]
fn with_one_authority_for_all_a_new_credential_is_the_control() {
    let mut told = Told::new(Signer::KubernetesCsr, &[ENDPOINT]);
    let issue = |told: &mut Told| {
        told.call(Answer::Submit(SubmitAnswer::Submitted));
        told.call(Answer::Endorse(EndorseAnswer::Endorsed));
        let not_after = told.now.plus(HOUR);
        told.call(Answer::Collect(CollectAnswer::Signed { not_after }));
        told.call(seen(Verdict::Accepted, silent()));
    };
    let id = told.request();
    issue(&mut told);
    assert_eq!(told.name(id), StateName::Active);
    told.revoke_all().unwrap();
    told.call(Answer::Rotate(RotateAnswer::Begun));
    told.call(Answer::Check(CheckAnswer::Done { cut_off: None }));
    let control = told.record().credentials.iter().find(|c| c.control).unwrap().id;
    let probes = |told: &Told| told.due().iter().any(|effect| effect.call == Call::Probe);
    assert!(!probes(&told), "nobody is asked without a control");
    issue(&mut told);
    assert_eq!(told.name(control), StateName::Active);
    told.call(rejected());
    told.pass(MINUTE);
    told.call(rejected());
    assert_eq!(told.name(id), StateName::Revoked);
}

#[test]
fn an_approval_is_given_by_somebody_else() {
    let (mut told, credential_id) = Told::requested();
    assert!(told.due().is_empty());
    let approve = |by: &str| Command::Approve { credential_id, by: by.to_owned() };
    assert_eq!(told.tell(&approve("alice")), Err(Rejection::OwnRequest));
    told.pass(HOUR);
    told.tell(&approve("bob")).unwrap();
    let signed = told.signed();
    told.call(signed);
    assert_eq!(
        told.name(credential_id),
        StateName::Active,
        "the deadline counts from the approval"
    );
    let late = told.tell(&approve("bob"));
    assert_eq!(late, Err(Rejection::State { state: StateName::Active }));
    assert_eq!(told.record().credential(credential_id).unwrap().decided_by.as_deref(), Some("bob"));
}

#[test]
fn a_name_is_unique_among_the_living_and_made_up_where_it_is_missing() {
    let (mut told, _) = Told::active_blind();
    told.request_as(Some("anna"), "alice").unwrap();
    assert_eq!(told.request_as(Some("anna"), "bob"), Err(Rejection::UsernameTaken));
    let id = told.request();
    let username = &told.record().credential(id).unwrap().username;
    assert!(username.starts_with("admin-") && username.len() <= 35, "{username}");
}

#[test]
fn at_most_so_many_live_at_once() {
    let mut told = Told::blind();
    for _ in 0..64 {
        told.request();
    }
    assert_eq!(told.request_as(None, "bob"), Err(Rejection::TooMany { limit: 64 }));
    let mut told = Told::csr();
    for _ in 0..100 {
        told.request();
    }
}

#[test]
fn a_clock_that_is_not_to_be_believed_ends_nothing() {
    let (mut told, id) = Told::active_blind();
    told.time_is_certain = false;
    assert_eq!(told.pass(400 * DAY), vec![]);
    assert_eq!(told.name(id), StateName::Active);
    told.time_is_certain = true;
    told.pass(MINUTE);
    assert_eq!(told.name(id), StateName::Expired);
}

#[test]
fn retention_looks_at_both_times_and_never_touches_what_has_no_creation_time() {
    let (mut told, credential_id) = Told::requested();
    told.pass(HOUR);
    let deny = Command::Deny { credential_id, by: "bob".to_owned(), reason: Some("no".into()) };
    told.tell(&deny).unwrap();
    let mut credential = told.record().credential(credential_id).unwrap().clone();
    assert_eq!(credential.message, "denied: no");
    assert_eq!(removable_at(&credential, &told.policy), Some(told.now.plus(48 * HOUR)));
    credential.created_at = Some(told.now.plus(HOUR));
    assert_eq!(removable_at(&credential, &told.policy), Some(told.now.plus(49 * HOUR)));
    credential.created_at = None;
    assert_eq!(removable_at(&credential, &told.policy), None);
    let (told, active) = Told::active_blind();
    let active = told.record().credential(active).unwrap();
    assert_eq!(removable_at(active, &told.policy), None);
}

#[test]
fn a_bundle_that_somebody_reads_is_never_empty() {
    let mut told = Told::blind();
    told.tell(&Command::WantBundle { cluster_id: told.cluster_id() }).unwrap();
    assert!(told.record().trusted().is_empty());
    told.make();
    assert_eq!(told.record().trusted().len(), 1);
    // A live one takes the placeholder's place, and gives it back.
    let id = told.request();
    let signed = told.signed();
    told.call(signed);
    assert_eq!(told.record().trusted().into_iter().collect::<Vec<_>>(), [id.0]);
    told.pass(DAY);
    assert_eq!(told.name(id), StateName::Expired);
    told.make();
    assert_eq!(told.record().trusted().len(), 1);
    assert!(!told.record().trusted().contains(&id.0));
}

#[test]
fn a_control_is_renewed_daily_and_the_one_before_stays_for_a_while() {
    let (mut told, _) = Told::active_local();
    let controls = |told: &Told| {
        let all = told.record().authorities.iter().filter(|authority| !authority.dropped);
        all.count()
    };
    assert_eq!(controls(&told), 1);
    told.request_as(None, "bob").unwrap();
    told.pass(DAY - MINUTE);
    assert_eq!(controls(&told), 1);
    let _ = told.request_as(None, "carol").unwrap();
    told.pass(2 * MINUTE);
    assert_eq!(controls(&told), 2, "the old one lives on");
    told.make();
    told.pass(DAY);
    assert!(controls(&told) <= 2);
}
