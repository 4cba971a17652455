//! Credentials signed by HyperShift's operator, its stalls and the management cluster's faults included.

use std::time::Duration;

use hyperfleet_credentials::signers::kubernetes_csr::KubernetesCsr;
use hyperfleet_credentials::signers::{
    AuthorityKind, CollectOutcome, Draft, DraftError, EndorseOutcome, Identity, Intent,
    MakeOutcome, ProbeOutcome, Signer, SubmitOutcome, Trouble, TroubleKind,
};
use hyperfleet_credentials::time::Timestamp;
use rcgen::{CertificateParams, DnType, KeyPair};
use secrecy::SecretString;
use serde_json::json;

use super::fixtures::{
    accepted, ask, authority_intent, call, call_of, closed_call, cluster, intent,
};
use crate::support::fake_apiserver;
use crate::support::fake_management::{self, FakeManagement, Fault, Kind, Signing, Verb};

/// A management cluster, a signer, a credential that is wanted, and what was stored for it.
struct Given {
    cluster: FakeManagement,
    signer: KubernetesCsr,
    intent: Intent,
    draft: Draft,
}

fn given() -> Given {
    let cluster = fake_management::start(cluster().namespace.as_deref().unwrap());
    let signer = cluster.signer();
    let intent = intent("alice");
    let draft = signer.draft(&intent).unwrap();
    Given { cluster, signer, intent, draft }
}

impl Given {
    fn name(&self) -> String {
        format!("break-glass-{}", self.intent.id.simple())
    }

    async fn submit(&self) -> SubmitOutcome {
        self.signer.submit(&call(), &self.intent, &self.draft).await
    }

    async fn submitted(self) -> Self {
        assert!(matches!(self.submit().await, SubmitOutcome::Submitted));
        self
    }

    async fn endorsed(self) -> Self {
        let endorsed = self.signer.endorse(&call(), &self.intent).await;
        assert_eq!(endorsed, EndorseOutcome::Endorsed);
        self
    }

    async fn collect(&self) -> CollectOutcome {
        self.signer.collect(&call(), &self.intent, &self.draft).await
    }
}

fn kind_of(trouble: &Trouble) -> TroubleKind {
    assert!(!trouble.message.contains("words of"), "an answer was repeated: {trouble:?}");
    trouble.kind
}

#[tokio::test]
async fn a_credential_comes_about() {
    // Given a request that is submitted but not approved,
    let given = given().submitted().await;
    assert_eq!(given.collect().await, CollectOutcome::Pending("not approved yet".to_owned()));
    let request = given.cluster.object(Kind::Requests, &given.name()).unwrap();
    assert_eq!(
        request["spec"]["signerName"],
        "hypershift.openshift.io/clusters-cls-7f3k2m9q1x.customer-break-glass"
    );
    assert_eq!(request["spec"]["usages"], json!(["client auth", "digital signature"]));
    assert_eq!(request["spec"]["expirationSeconds"], 86_400);
    // when it is approved,
    let given = given.endorsed().await;
    // then there is a certificate; its end is its own, five minutes early, and its beginning no matter.
    let CollectOutcome::Signed(certificate) = given.collect().await else { panic!("not signed") };
    let short = given.intent.not_after.since(certificate.not_after);
    assert!((290..=310).contains(&short.as_secs()), "{short:?}");
    // An API server that trusts the operator's authority accepts it.
    let server = fake_apiserver::start();
    server.load_bundle(&given.cluster.authorities());
    let login = Identity {
        certificate: certificate.pem,
        private_key: given.draft.private_key.clone().unwrap(),
    };
    let name = "system:customer-break-glass:alice";
    assert_eq!(ask(&given.signer, &server, &login).await, accepted(name));
    assert_eq!(server.log()[0].user.as_ref().unwrap().groups, ["system:masters"]);
    // Every API server has to have loaded it.
    server.load_bundle("");
    assert_eq!(ask(&given.signer, &server, &login).await, ProbeOutcome::Rejected);
}

#[tokio::test]
async fn what_is_asked_twice_is_made_once() {
    let given = given().submitted().await.submitted().await.endorsed().await.endorsed().await;
    assert_eq!(given.cluster.applied(Kind::Requests), 1);
    assert_eq!(given.cluster.applied(Kind::Approvals), 1);
    let first = given.collect().await;
    assert!(matches!(first, CollectOutcome::Signed(_)), "{first:?}");
    assert_eq!(given.collect().await, first);
    // A repetition later asks for what is left, and still finds its own.
    let mut later = given;
    later.intent.now = later.intent.now.plus(Duration::from_secs(3600));
    later.submitted().await;
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_a_repetition_finds_its_own() {
    for (fault, made) in [(Fault::LoseAfter, 1), (Fault::LoseBefore, 0), (Fault::Instead(500), 0)] {
        let given = given();
        given.cluster.fault(Verb::Create, fault.clone());
        let SubmitOutcome::Unknown(trouble) = given.submit().await else { panic!("{fault:?}") };
        assert_eq!(kind_of(&trouble), TroubleKind::ServerError, "{fault:?}");
        assert_eq!(given.cluster.applied(Kind::Requests), made, "nothing is repeated by itself");
        let given = given.submitted().await;
        given.cluster.fault(Verb::Create, fault.clone());
        let outcome = given.signer.endorse(&call(), &given.intent).await;
        assert!(matches!(outcome, EndorseOutcome::Unknown(_)), "{fault:?}: {outcome:?}");
        let given = given.endorsed().await;
        assert!(matches!(given.collect().await, CollectOutcome::Signed(_)), "{fault:?}");
        assert_eq!(given.cluster.applied(Kind::Requests), 1);
    }
}

#[tokio::test]
async fn a_repetition_whose_look_is_lost_is_unknown() {
    let given = given().submitted().await;
    given.cluster.fault(Verb::Create, Fault::Instead(409));
    given.cluster.fault(Verb::Get, Fault::LoseBefore);
    assert!(matches!(given.submit().await, SubmitOutcome::Unknown(_)));
}

#[tokio::test]
async fn a_foreign_request_under_the_name_is_never_taken_for_ours() {
    let given = given();
    let name = given.name();
    let spec = json!({"request": "Zm9yZWlnbg==", "signerName": "x/y", "usages": ["client auth"]});
    let foreign = json!({"metadata": {"name": name}, "spec": spec});
    given.cluster.plant(Kind::Requests, &name, foreign);
    assert!(matches!(given.submit().await, SubmitOutcome::Broken(_)));
}

#[tokio::test]
async fn our_own_login_blocks_the_signer_and_denies_nothing() {
    let mut given = given();
    given.signer = given.cluster.signer_with("an old token");
    let SubmitOutcome::Unavailable(trouble) = given.submit().await else { panic!() };
    assert_eq!(kind_of(&trouble), TroubleKind::OwnCredential);
    assert!(trouble.kind.blocks());
    let outcome = given.signer.endorse(&call(), &given.intent).await;
    let EndorseOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(kind_of(&trouble), TroubleKind::OwnCredential);
    let CollectOutcome::Unavailable(trouble) = given.collect().await else { panic!() };
    assert_eq!(kind_of(&trouble), TroubleKind::OwnCredential);
    assert_eq!(given.cluster.applied(Kind::Requests), 0);
}

#[tokio::test]
async fn each_answer_is_what_it_is() {
    for (code, kind) in [
        (401, TroubleKind::OwnCredential),
        (403, TroubleKind::OwnCredential),
        (404, TroubleKind::Misconfigured),
        (429, TroubleKind::RateLimited),
        (503, TroubleKind::ServerError),
    ] {
        let given = given();
        given.cluster.fault(Verb::Create, Fault::Later(code, 7));
        let SubmitOutcome::Unavailable(trouble) = given.submit().await else { panic!("{code}") };
        assert_eq!(kind_of(&trouble), kind, "{code}");
        let hinted = matches!(code, 429 | 503).then(|| Duration::from_secs(7));
        assert_eq!(trouble.retry_after, hinted, "{code}");
        given.cluster.fault(Verb::Get, Fault::Instead(code));
        let outcome = given.collect().await;
        let silent = matches!(outcome, CollectOutcome::Pending(_));
        assert_eq!(silent, code == 404, "a missing request proves nothing: {outcome:?}");
    }
    for code in [400, 422] {
        let given = given();
        given.cluster.fault(Verb::Create, Fault::Instead(code));
        assert!(matches!(given.submit().await, SubmitOutcome::Refused(_)), "{code}");
    }
}

#[tokio::test]
async fn no_connection_is_not_applied() {
    let given = given();
    let signer = given.signer.clone();
    drop(given.cluster);
    let outcome = signer.submit(&call(), &given.intent, &given.draft).await;
    let SubmitOutcome::Unavailable(trouble) = outcome else { panic!() };
    assert_eq!(kind_of(&trouble), TroubleKind::Connect);
}

#[tokio::test]
async fn nothing_is_sent_without_time_or_announcement_or_namespace() {
    let mut given = given();
    let late = call_of(Duration::ZERO);
    let outcome = given.signer.submit(&late, &given.intent, &given.draft).await;
    assert!(matches!(outcome, SubmitOutcome::Unavailable(_)));
    let outcome = given.signer.endorse(&closed_call(), &given.intent).await;
    let EndorseOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
    given.intent.cluster.namespace = None;
    let SubmitOutcome::Unavailable(trouble) = given.submit().await else { panic!() };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
    let made = given.signer.make(&call(), &authority_intent(AuthorityKind::Control)).await;
    assert!(matches!(made, MakeOutcome::Unavailable(_)));
    assert_eq!(given.cluster.log(), []);
}

#[tokio::test]
async fn silence_is_pending_for_as_long_as_it_lasts() {
    for (signing, words) in
        [(Signing::Silent, "not approved yet"), (Signing::ApprovesOnly, "approved, not signed yet")]
    {
        let given = given();
        given.cluster.sign(signing);
        let given = given.submitted().await.endorsed().await;
        assert_eq!(given.collect().await, CollectOutcome::Pending(words.to_owned()));
    }
}

#[tokio::test]
async fn conditions_without_a_status_are_true() {
    let given = given();
    given.cluster.sign(Signing::QuietConditions);
    let given = given.submitted().await.endorsed().await;
    assert!(matches!(given.collect().await, CollectOutcome::Signed(_)));

    let denied = self::given().submitted().await;
    denied.cluster.deny();
    let words = "the request was denied (PolicyViolation)".to_owned();
    assert_eq!(denied.collect().await, CollectOutcome::Refused(words));
}

#[tokio::test]
async fn what_the_signer_finds_bad_has_failed() {
    let given = given();
    given.cluster.sign(Signing::Invalid);
    let given = given.submitted().await.endorsed().await;
    let words = "the signer failed (SignerValidationFailure)".to_owned();
    assert_eq!(given.collect().await, CollectOutcome::Broken(words));
}

#[tokio::test]
async fn a_wrong_certificate_is_never_handed_out() {
    for signing in [Signing::WrongKey, Signing::WrongSubject, Signing::WrongUsage, Signing::Ended] {
        let given = given();
        given.cluster.sign(signing);
        let given = given.submitted().await.endorsed().await;
        let outcome = given.collect().await;
        assert!(matches!(outcome, CollectOutcome::Broken(_)), "{signing:?}: {outcome:?}");
    }
    // A chain that leads nowhere may be a refresh that is not published yet.
    let given = given();
    given.cluster.sign(Signing::WrongAuthority);
    let given = given.submitted().await.endorsed().await;
    let outcome = given.collect().await;
    assert!(matches!(outcome, CollectOutcome::Pending(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_routine_refresh_keeps_what_was_signed_before() {
    let given = given().submitted().await.endorsed().await;
    given.cluster.refresh_authority();
    assert!(matches!(given.collect().await, CollectOutcome::Signed(_)));
}

#[tokio::test]
async fn a_collected_request_proves_nothing() {
    let given = given().submitted().await.endorsed().await;
    given.cluster.collect();
    let gone = CollectOutcome::Pending("the signer does not show the request".to_owned());
    assert_eq!(given.collect().await, gone);
    // Submitted anew under its name, it is signed for the same key.
    let given = given.submitted().await.endorsed().await;
    assert!(matches!(given.collect().await, CollectOutcome::Signed(_)));
}

#[tokio::test]
async fn short_lives_are_kept_within_what_the_signer_takes() {
    for (seconds, asked) in [(60, 600), (600, 600), (7200, 7200), (100_000, 86_400)] {
        let mut given = given();
        given.intent.not_after = given.intent.now.plus(Duration::from_secs(seconds));
        let given = given.submitted().await;
        let request = given.cluster.object(Kind::Requests, &given.name()).unwrap();
        assert_eq!(request["spec"]["expirationSeconds"], asked);
    }
}

fn own(names: Vec<String>, common_name: &str, group: &str) -> (KeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, request)
}

#[tokio::test]
async fn a_callers_own_request_has_to_name_the_right_subject() {
    let mut given = given();
    let right = "system:customer-break-glass:alice";
    for (names, common_name, group) in [
        (vec![], "system:customer-break-glass:bob", "system:masters"),
        (vec![], right, "system:nodes"),
        (vec!["kubernetes".to_owned()], right, "system:masters"),
    ] {
        let (_, request) = own(names, common_name, group);
        given.intent.signing_request = Some(request);
        let vetted = given.signer.vet(&given.intent);
        assert!(matches!(vetted, Err(DraftError::SigningRequest(_))), "{common_name} {group}");
    }
    let (key, request) = own(vec![], right, "system:masters");
    given.intent.signing_request = Some(request);
    given.draft = given.signer.draft(&given.intent).unwrap();
    assert!(given.draft.private_key.is_none());
    let given = given.submitted().await.endorsed().await;
    let CollectOutcome::Signed(certificate) = given.collect().await else { panic!() };
    let server = fake_apiserver::start();
    server.load_bundle(&given.cluster.authorities());
    let private_key = SecretString::from(key.serialize_pem());
    let login = Identity { certificate: certificate.pem, private_key };
    assert_eq!(ask(&given.signer, &server, &login).await, accepted(right));
    assert!(certificate.not_after > Timestamp::EPOCH);
}
