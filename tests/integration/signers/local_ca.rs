//! The embedded signer, the bundle and the probe, end to end against API servers with real TLS.

use std::time::Duration;

use hyperfleet_credentials::signers::bundle::{Base, Beside, compose};
use hyperfleet_credentials::signers::local_ca::LocalCa;
use hyperfleet_credentials::signers::{
    AuthorityKind, Draft, Identity, MakeOutcome, ProbeOutcome, Signer, SubmitOutcome, TroubleKind,
};
use rcgen::{CertificateParams, DnType, KeyPair};
use secrecy::SecretString;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::fixtures::{
    accepted, ask, authority_intent, call_of, closed_call, endpoint, intent, is_unknown, login,
    made, now, signed,
};
use crate::support::fake_apiserver::{self, FakeApiserver, Mode};

/// The bundle of these live authorities alone.
fn bundle(authorities: &[&String]) -> String {
    compose(Beside::Nothing, authorities).unwrap().pem
}

fn leaf(pem: &str) -> (Vec<u8>, String) {
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let (_, certificate) = X509Certificate::from_der(&block.contents).unwrap();
    let subject = certificate.subject().to_string();
    (block.contents, subject)
}

#[tokio::test]
async fn one_credential_is_revoked_and_the_others_go_on() {
    // Given two credentials and a control in the bundle of two API servers,
    let signer = LocalCa::new();
    let (alice, bob) = (intent("alice"), intent("bob"));
    let (of_alice, of_bob) = (signed(&signer, &alice).await, signed(&signer, &bob).await);
    let (control_ca, control) = made(&signer, AuthorityKind::Control).await;
    let control = control.unwrap();
    let servers = [fake_apiserver::start(), fake_apiserver::start()];
    let both = bundle(&[&of_alice.authority, &of_bob.authority, &control_ca]);
    let load = |pem: &str| servers.iter().for_each(|server| server.load_bundle(pem));
    load(&both);
    // both are accepted, with their name and group, and so are their probes, without a group.
    for server in &servers {
        let name = "system:customer-break-glass:alice";
        assert_eq!(ask(&signer, server, &login(&of_alice)).await, accepted(name));
        let user = server.log().pop().unwrap().user.unwrap();
        assert_eq!((user.name.as_str(), user.groups), (name, vec!["system:masters".to_owned()]));
        let name = format!("system:break-glass-probe:{}", alice.id.simple());
        assert_eq!(ask(&signer, server, &of_alice.probe).await, accepted(&name));
        assert_eq!(server.log().pop().unwrap().user.unwrap().groups, Vec::<String>::new());
    }

    // When alice's authority leaves the bundle,
    load(&bundle(&[&of_bob.authority, &control_ca]));

    // then she and her probe are rejected, bob and the control are not.
    for server in &servers {
        assert_eq!(ask(&signer, server, &login(&of_alice)).await, ProbeOutcome::Rejected);
        assert_eq!(ask(&signer, server, &of_alice.probe).await, ProbeOutcome::Rejected);
        let name = "system:customer-break-glass:bob";
        assert_eq!(ask(&signer, server, &login(&of_bob)).await, accepted(name));
        let ProbeOutcome::Accepted { name } = ask(&signer, server, &control).await else {
            panic!("the control is not accepted")
        };
        assert!(name.starts_with("system:break-glass-control:"), "{name}");
        assert_eq!(server.log().pop().unwrap().user.unwrap().groups, Vec::<String>::new());
    }
    // No connection was ever used for two questions.
    for server in &servers {
        let log = server.log();
        assert_eq!(log.last().unwrap().connection, u64::try_from(log.len() - 1).unwrap());
    }
}

#[tokio::test]
async fn what_stays_in_the_bundle_beside_ours_goes_on_working() {
    // Given a cluster with a client CA of its own,
    let signer = LocalCa::new();
    let (base_ca, admin) = made(&signer, AuthorityKind::Control).await;
    let base = Base::parse(base_ca.as_bytes()).unwrap();
    let credential = signed(&signer, &intent("alice")).await;
    let server = fake_apiserver::start();
    // when credentials come and go,
    let beside = Beside::of(Some(&base), false).unwrap();
    for live in [vec![], vec![&credential.authority], vec![]] {
        server.load_bundle(&compose(beside, &live).unwrap().pem);
        // then its own admin is never locked out.
        let ProbeOutcome::Accepted { .. } = ask(&signer, &server, admin.as_ref().unwrap()).await
        else {
            panic!("the cluster's own admin is locked out")
        };
        let answer = ask(&signer, &server, &login(&credential)).await;
        assert_eq!(answer == ProbeOutcome::Rejected, live.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn only_an_explicit_answer_is_one() {
    let signer = LocalCa::new();
    let credential = signed(&signer, &intent("alice")).await;
    let server = fake_apiserver::start();
    server.load_bundle(&credential.authority);
    for mode in [
        Mode::Down,
        Mode::Mistakes,
        Mode::Answers(200),
        Mode::Answers(302),
        Mode::Answers(307),
        Mode::Answers(403),
        Mode::Answers(404),
        Mode::Answers(429),
        Mode::Answers(500),
        Mode::Answers(503),
    ] {
        server.behave(mode);
        let answer = ask(&signer, &server, &login(&credential)).await;
        assert!(is_unknown(&answer), "{mode:?}: {answer:?}");
    }
    // One that refuses everything says the same of a control: the machine can tell.
    server.behave(Mode::RefusesEverything);
    assert_eq!(ask(&signer, &server, &login(&credential)).await, ProbeOutcome::Rejected);
    server.behave(Mode::Normal);
    assert!(!is_unknown(&ask(&signer, &server, &login(&credential)).await));
}

#[tokio::test]
async fn a_slow_server_is_unknown_when_the_time_is_over() {
    let signer = LocalCa::new();
    let credential = signed(&signer, &intent("alice")).await;
    let server = fake_apiserver::start();
    server.load_bundle(&credential.authority);
    server.behave(Mode::Slow);
    let call = call_of(Duration::from_millis(300));
    let answer = signer.probe(&call, &endpoint(&server), &login(&credential)).await;
    assert_eq!(answer, ProbeOutcome::Unknown { reason: "no answer in time".to_owned() });
    let call = call_of(Duration::ZERO);
    assert!(is_unknown(&signer.probe(&call, &endpoint(&server), &login(&credential)).await));
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_unknown() {
    let signer = LocalCa::new();
    let credential = signed(&signer, &intent("alice")).await;
    let server = fake_apiserver::start();
    server.behave(Mode::Slow);
    let asked = async {
        server.reached(|log| log.len() == 1).await;
        server.behave(Mode::Down);
    };
    let identity = login(&credential);
    let (answer, ()) = tokio::join!(ask(&signer, &server, &identity), asked);
    assert!(is_unknown(&answer), "{answer:?}");
    // The truth: it was asked, and answered nothing.
    assert_eq!((server.log().len(), server.log()[0].status), (1, None));
}

#[tokio::test]
async fn a_server_that_goes_on_accepting_is_seen() {
    let signer = LocalCa::new();
    let credential = signed(&signer, &intent("alice")).await;
    let (control_ca, _) = made(&signer, AuthorityKind::Control).await;
    let server = fake_apiserver::start();
    server.load_bundle(&bundle(&[&credential.authority, &control_ca]));
    server.behave(Mode::StillAccepts);
    server.load_bundle(&control_ca);
    let answer = ask(&signer, &server, &credential.probe).await;
    assert!(matches!(answer, ProbeOutcome::Accepted { .. }), "{answer:?}");
    server.behave(Mode::Normal);
    assert_eq!(ask(&signer, &server, &credential.probe).await, ProbeOutcome::Rejected);
}

#[tokio::test]
async fn a_stranger_in_the_servers_place_is_not_asked() {
    // Given a server whose certificate leads elsewhere,
    let signer = LocalCa::new();
    let credential = signed(&signer, &intent("alice")).await;
    let (server, other) = (fake_apiserver::start(), fake_apiserver::start());
    server.behave(Mode::RefusesEverything);
    let mut endpoint = endpoint(&server);
    endpoint.ca = other.ca.clone();
    // then its 401 is none.
    let answer = signer.probe(&call_of(Duration::from_secs(5)), &endpoint, &credential.probe).await;
    assert!(is_unknown(&answer), "{answer:?}");
    assert_eq!(server.log(), []);
    for (url, ca) in [
        ("http://127.0.0.1:1", endpoint.ca.as_str()),
        ("nonsense", endpoint.ca.as_str()),
        (server.url.as_str(), "no PEM"),
        (server.url.as_str(), ""),
    ] {
        let mut endpoint = endpoint.clone();
        (endpoint.url, endpoint.ca) = (url.to_owned(), ca.to_owned());
        let call = call_of(Duration::from_secs(5));
        assert!(is_unknown(&signer.probe(&call, &endpoint, &credential.probe).await), "{url}");
    }
    let broken = Identity {
        certificate: "-----BEGIN".to_owned(),
        private_key: SecretString::from("no key".to_owned()),
    };
    assert!(is_unknown(&ask(&signer, &server, &broken).await));
}

#[tokio::test]
async fn a_callers_own_request_gets_a_certificate_for_its_key_only() {
    // Given a request with a subject and names of its own liking,
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["kubernetes.default".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "system:admin");
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let mut intent = intent("alice");
    intent.signing_request = Some(request);
    // when it is signed,
    let signer = LocalCa::new();
    let signed = signed(&signer, &intent).await;
    // then the key is the caller's, and nothing else of it counts.
    assert!(signed.private_key.is_none());
    let (_, subject) = leaf(&signed.certificate.pem);
    assert_eq!(subject, "O=system:masters, CN=system:customer-break-glass:alice");
    let server = fake_apiserver::start();
    server.load_bundle(&signed.authority);
    let callers = Identity {
        certificate: signed.certificate.pem.clone(),
        private_key: SecretString::from(key.serialize_pem()),
    };
    let name = "system:customer-break-glass:alice";
    assert_eq!(ask(&signer, &server, &callers).await, accepted(name));
    // The service can still ask about it, with the probe.
    assert!(matches!(ask(&signer, &server, &signed.probe).await, ProbeOutcome::Accepted { .. }));
}

#[tokio::test]
async fn nothing_is_made_for_an_announcement_that_is_closed() {
    let (signer, intent) = (LocalCa::new(), intent("alice"));
    let draft = Draft { private_key: None, signing_request: None };
    let SubmitOutcome::Unavailable(trouble) = signer.submit(&closed_call(), &intent, &draft).await
    else {
        panic!("it was signed")
    };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
    let wanted = authority_intent(AuthorityKind::Placeholder);
    let MakeOutcome::Unavailable(trouble) = signer.make(&closed_call(), &wanted).await else {
        panic!("it was made")
    };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_rejected() {
    let signer = LocalCa::new();
    let mut intent = intent("alice");
    intent.now = now().minus(Duration::from_secs(1200));
    intent.not_after = now().minus(Duration::from_secs(600));
    let signed = signed(&signer, &intent).await;
    let server: FakeApiserver = fake_apiserver::start();
    server.load_bundle(&signed.authority);
    assert_eq!(ask(&signer, &server, &login(&signed)).await, ProbeOutcome::Rejected);
}
