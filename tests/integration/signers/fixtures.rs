//! Calls, intents and clusters for these tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hyperfleet_credentials::signers::{
    AuthorityIntent, AuthorityKind, CallContext, Cluster, Draft, Endpoint, Fence, Identity, Intent,
    MakeOutcome, ProbeOutcome, Signed, Signer, SubmitOutcome,
};
use hyperfleet_credentials::time::{Clock, SystemClock, Timestamp};
use uuid::Uuid;

use crate::support::fake_apiserver::FakeApiserver;

struct Open(bool);

#[async_trait]
impl Fence for Open {
    async fn is_current(&self) -> bool {
        self.0
    }
}

/// A call that is current and has this long.
pub fn call_of(left: Duration) -> CallContext {
    CallContext { deadline: Instant::now() + left, fence: Arc::new(Open(true)) }
}

/// A call that has time enough.
pub fn call() -> CallContext {
    call_of(Duration::from_secs(20))
}

/// A call whose announcement others have closed.
pub fn closed_call() -> CallContext {
    CallContext { deadline: Instant::now() + Duration::from_secs(20), fence: Arc::new(Open(false)) }
}

pub fn now() -> Timestamp {
    SystemClock.now()
}

pub fn cluster() -> Cluster {
    Cluster {
        cluster_id: "cls-7f3k2m9q1x".parse().unwrap(),
        namespace: Some("clusters-cls-7f3k2m9q1x".to_owned()),
    }
}

/// A credential for a day.
pub fn intent(username: &str) -> Intent {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let now = now();
    Intent {
        cluster: cluster(),
        id: Uuid::now_v7(),
        username: username.to_owned(),
        group: Some("system:masters".to_owned()),
        now,
        not_after: now.plus(Duration::from_secs(24 * 3600)),
        signing_request: None,
    }
}

pub fn authority_intent(kind: AuthorityKind) -> AuthorityIntent {
    let now = now();
    AuthorityIntent {
        cluster: cluster(),
        id: Uuid::now_v7(),
        kind,
        now,
        not_after: now.plus(Duration::from_secs(48 * 3600)),
    }
}

/// Signs it at once.
pub async fn signed(signer: &dyn Signer, intent: &Intent) -> Signed {
    let draft: Draft = signer.draft(intent).unwrap();
    match signer.submit(&call(), intent, &draft).await {
        SubmitOutcome::Signed(signed) => *signed,
        SubmitOutcome::Submitted => panic!("submitted only"),
        SubmitOutcome::Refused(why) | SubmitOutcome::Broken(why) => panic!("{why}"),
        SubmitOutcome::Unavailable(trouble) | SubmitOutcome::Unknown(trouble) => {
            panic!("{trouble:?}")
        }
    }
}

/// Makes an authority; its PEM and its login.
pub async fn made(signer: &dyn Signer, kind: AuthorityKind) -> (String, Option<Identity>) {
    match signer.make(&call(), &authority_intent(kind)).await {
        MakeOutcome::Made { authority, identity } => (authority, identity),
        MakeOutcome::Unavailable(trouble) => panic!("{trouble:?}"),
    }
}

/// The credential as its owner uses it.
pub fn login(signed: &Signed) -> Identity {
    Identity {
        certificate: signed.certificate.pem.clone(),
        private_key: signed.private_key.clone().expect("a key of the service's own"),
    }
}

pub fn endpoint(server: &FakeApiserver) -> Endpoint {
    Endpoint { url: server.url.clone(), ca: server.ca.clone() }
}

/// Asks this server about this login.
pub async fn ask(signer: &dyn Signer, server: &FakeApiserver, identity: &Identity) -> ProbeOutcome {
    signer.probe(&call(), &endpoint(server), identity).await
}

pub fn accepted(name: &str) -> ProbeOutcome {
    ProbeOutcome::Accepted { name: name.to_owned() }
}

pub fn is_unknown(outcome: &ProbeOutcome) -> bool {
    match outcome {
        ProbeOutcome::Unknown { .. } => true,
        ProbeOutcome::Accepted { .. } | ProbeOutcome::Rejected => false,
    }
}
