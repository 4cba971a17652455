//! Revoking everything that HyperShift's operator has signed for a cluster.

use hyperfleet_credentials::signers::{
    CheckOutcome, CollectOutcome, EndorseOutcome, Identity, Intent, ProbeOutcome, RotateOutcome,
    Rotation, Signer, SubmitOutcome, TroubleKind,
};
use serde_json::json;
use uuid::Uuid;

use super::fixtures::{ask, call, closed_call, cluster, intent};
use crate::support::fake_apiserver;
use crate::support::fake_management::{self, FakeManagement, Fault, Kind, Verb};

fn start() -> FakeManagement {
    fake_management::start(cluster().namespace.as_deref().unwrap())
}

fn rotation() -> Rotation {
    Rotation { cluster: cluster(), id: Uuid::now_v7(), attempt: 1 }
}

fn name(rotation: &Rotation) -> String {
    format!("break-glass-revocation-{}-{}", rotation.id.simple(), rotation.attempt)
}

/// A credential that the operator has signed.
async fn credential(signer: &dyn Signer, intent: &Intent) -> Identity {
    let draft = signer.draft(intent).unwrap();
    assert!(matches!(signer.submit(&call(), intent, &draft).await, SubmitOutcome::Submitted));
    assert_eq!(signer.endorse(&call(), intent).await, EndorseOutcome::Endorsed);
    let CollectOutcome::Signed(certificate) = signer.collect(&call(), intent, &draft).await else {
        panic!("not signed")
    };
    Identity { certificate: certificate.pem, private_key: draft.private_key.unwrap() }
}

#[tokio::test]
async fn the_signer_is_rotated_step_by_step_and_old_credentials_are_rejected() {
    // Given a credential that is accepted,
    let management = start();
    let signer = management.signer();
    let server = fake_apiserver::start();
    let old = credential(&signer, &intent("alice")).await;
    server.load_bundle(&management.authorities());
    assert!(matches!(ask(&signer, &server, &old).await, ProbeOutcome::Accepted { .. }));
    // when the signer is rotated,
    let rotation = rotation();
    assert_eq!(signer.rotate(&call(), &rotation).await, RotateOutcome::Begun);
    let object = management.object(Kind::Revocations, &name(&rotation)).unwrap();
    assert_eq!(object["spec"], json!({"signerClass": "customer-break-glass"}));
    // then it goes on step by step,
    for waits_for in [
        "SignerClassValid",
        "RootCertificatesRegenerated",
        "NewCertificatesTrusted",
        "LeafCertificatesRegenerated",
        "PreviousCertificatesRevoked",
    ] {
        let CheckOutcome::Running { progress } = signer.check(&call(), &rotation).await else {
            panic!("it does not wait for {waits_for}")
        };
        assert!(progress.contains(waits_for), "{progress}");
        assert!(!progress.contains("words"), "{progress}");
        management.step();
    }
    let cut_off = "2026-11-30T20:01:34Z".parse().ok();
    assert_eq!(signer.check(&call(), &rotation).await, CheckOutcome::Done { cut_off });
    // and what was signed before is rejected, while a new one is accepted.
    server.load_bundle(&management.authorities());
    assert_eq!(ask(&signer, &server, &old).await, ProbeOutcome::Rejected);
    let control = credential(&signer, &Intent { group: None, ..intent("control") }).await;
    assert!(matches!(ask(&signer, &server, &control).await, ProbeOutcome::Accepted { .. }));
}

#[tokio::test]
async fn a_timed_out_request_is_lost_and_the_next_one_has_a_name_of_its_own() {
    let management = start();
    let signer = management.signer();
    let mut rotation = rotation();
    assert_eq!(signer.rotate(&call(), &rotation).await, RotateOutcome::Begun);
    management.step();
    management.time_out();
    let lost = signer.check(&call(), &rotation).await;
    let CheckOutcome::Lost(why) = lost else { panic!("{lost:?}") };
    assert!(why.contains("RevocationVerificationTimeout"), "{why}");
    // It never succeeds any more; the next one does.
    let old = name(&rotation);
    rotation.attempt += 1;
    assert_eq!(signer.rotate(&call(), &rotation).await, RotateOutcome::Begun);
    for _ in 0..5 {
        management.step();
    }
    assert!(matches!(signer.check(&call(), &rotation).await, CheckOutcome::Done { .. }));
    assert!(management.object(Kind::Revocations, &old).is_some(), "the old one is history");
    assert_eq!(management.applied(Kind::Revocations), 2);
}

#[tokio::test]
async fn what_is_asked_twice_is_made_once() {
    for fault in [Fault::LoseAfter, Fault::LoseBefore] {
        let management = start();
        let signer = management.signer();
        let rotation = rotation();
        management.fault(Verb::Create, fault);
        let outcome = signer.rotate(&call(), &rotation).await;
        assert!(matches!(outcome, RotateOutcome::Unknown(_)), "{outcome:?}");
        for _ in 0..2 {
            assert_eq!(signer.rotate(&call(), &rotation).await, RotateOutcome::Begun);
        }
        assert_eq!(management.applied(Kind::Revocations), 1);
    }
}

#[tokio::test]
async fn a_foreign_request_under_the_name_is_never_taken_for_ours() {
    let management = start();
    let signer = management.signer();
    let rotation = rotation();
    let foreign = json!({"metadata": {"name": name(&rotation)}, "spec": {"signerClass": "sre"}});
    management.plant(Kind::Revocations, &name(&rotation), foreign);
    let outcome = signer.rotate(&call(), &rotation).await;
    assert!(matches!(outcome, RotateOutcome::Broken(_)), "{outcome:?}");
}

#[tokio::test]
async fn trouble_says_nothing_about_the_rotation() {
    let management = start();
    let signer = management.signer();
    let mut rotation = rotation();
    for (code, kind) in [
        (401, TroubleKind::OwnCredential),
        (403, TroubleKind::OwnCredential),
        (404, TroubleKind::Misconfigured),
        (503, TroubleKind::ServerError),
    ] {
        management.fault(Verb::Create, Fault::Instead(code));
        let outcome = signer.rotate(&call(), &rotation).await;
        let RotateOutcome::Unavailable(trouble) = outcome else { panic!("{code}: {outcome:?}") };
        assert_eq!(trouble.kind, kind, "{code}");
    }
    let outcome = signer.rotate(&closed_call(), &rotation).await;
    assert!(matches!(outcome, RotateOutcome::Unavailable(_)), "{outcome:?}");
    assert_eq!(management.applied(Kind::Revocations), 0);

    assert_eq!(signer.rotate(&call(), &rotation).await, RotateOutcome::Begun);
    for code in [401, 403, 429, 500, 503] {
        management.fault(Verb::Get, Fault::Instead(code));
        let outcome = signer.check(&call(), &rotation).await;
        assert!(matches!(outcome, CheckOutcome::Unavailable(_)), "{code}: {outcome:?}");
    }
    // An operator that does not know the class blocks the signer.
    management.forget_class();
    management.step();
    let outcome = signer.check(&call(), &rotation).await;
    let CheckOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
    // Somebody removed it: it can never succeed.
    management.remove_all(Kind::Revocations);
    assert!(matches!(signer.check(&call(), &rotation).await, CheckOutcome::Lost(_)));
    rotation.cluster.namespace = None;
    assert!(matches!(signer.check(&call(), &rotation).await, CheckOutcome::Unavailable(_)));
}
