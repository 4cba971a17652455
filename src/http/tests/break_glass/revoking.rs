//! Revoking all or one, and what operators see of it.

use std::time::Duration;

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{A, B, V1, asked, check_error, delete, get, impatient, operator, post};
use crate::http::tests::desk::Counter;
use crate::state::break_glass::{CredentialState, Signer};

#[actix_web::test]
async fn revoking_all() {
    for (path, status, body, word) in
        [(A, 204, "", "awaiting_revocation"), (B, 202, "{}", "revoking")]
    {
        let counter = impatient();
        let (pending, used) = (asked(&counter, path).await, asked(&counter, path).await);
        counter.fake.issue(&used);
        let request = operator(Method::DELETE, path).insert_header(("x-reason", "leaked"));
        let seen = counter.call(request).await;
        assert_eq!((seen.status, seen.body.as_str()), (status, body));
        assert_eq!(seen.header("content-type").is_empty(), body.is_empty());
        let (command, caller) = counter.fake.told().pop().unwrap();
        assert_eq!((command.as_str(), caller.reason.as_deref()), ("revoke_all", Some("leaked")));

        for id in [&used, &pending] {
            let shown = get(&counter, &format!("{path}/{id}")).await.json();
            assert_eq!((&shown["status"], shown.get("kubeconfig")), (&word.into(), None));
            assert_eq!(shown.get("revocation_timestamp"), None);
            let message = shown["status_details"]["message"].as_str().unwrap();
            assert!(message.starts_with("waits for an adapter to confirm"), "{message}");
        }

        // A second one joins; new requests come back later.
        assert_eq!(delete(&counter, path).await.status, status);
        let refused = post(&counter, path, json!({})).await;
        check_error(&refused, path, 409, "the credentials of the cluster are being revoked");
        assert_eq!(refused.header("retry-after"), "10");
        let revocations = get(&counter, &format!("{V1}/revocations")).await.json();
        assert_eq!(revocations["revocations"].as_array().unwrap().len(), 1);
        assert_eq!(revocations["pagination"]["total_count"], 1);
        let running = &revocations["revocations"][0];
        assert_eq!((&running["scope"], &running["state"]), (&"all".into(), &"proving".into()));
        assert_eq!((&running["reason"], &running["ended_at"]), (&"leaked".into(), &Value::Null));
        let one = format!("{V1}/revocations/{}", running["revocation_id"].as_str().unwrap());
        assert_eq!(get(&counter, &one).await.json(), *running);

        counter.fake.confirm_bundle("cls-1");
        for id in [&used, &pending] {
            let shown = get(&counter, &format!("{path}/{id}")).await.json();
            assert_eq!(shown["status"], "revoked", "{shown}");
            assert_eq!(shown["revocation_timestamp"], "2026-11-30T12:00:00Z");
        }
        let ended = get(&counter, &one).await.json();
        assert_eq!((&ended["state"], &ended["message"]), (&"completed".into(), &"".into()));
        assert_eq!(ended["ended_at"], "2026-11-30T12:00:00Z");
        let again = post(&counter, path, json!({})).await;
        assert!(matches!(again.status, 201 | 202), "{}", again.body);
    }
    let counter = impatient();
    let nothing = delete(&counter, B).await;
    assert_eq!((nothing.status, nothing.body.as_str()), (202, "{}"));
}

#[actix_web::test]
async fn there_is_no_such_revocation() {
    let counter = impatient();
    let id = asked(&counter, B).await;
    counter.fake.issue(&id);
    delete(&counter, B).await;
    let known = get(&counter, &format!("{V1}/revocations")).await.json();
    let known = known["revocations"][0]["revocation_id"].as_str().unwrap().to_owned();
    let elsewhere = format!("/v1/clusters/cls-2/break-glass/revocations/{known}");
    for path in [
        elsewhere.as_str(),
        &format!("{V1}/revocations/00000000-0000-7000-8000-000000000000"),
        &format!("{V1}/revocations/x"),
        "/v1/clusters/other/break-glass/revocations",
    ] {
        let seen = get(&counter, path).await;
        assert_eq!((seen.status, seen.code()), (404, "HYPERFLEET-NTF-001".to_owned()), "{path}");
        assert_eq!(seen.header("content-type"), "application/problem+json");
    }
    let wrong = get(&counter, &format!("{V1}/revocations?limit=0")).await;
    assert_eq!((wrong.status, wrong.code()), (400, "HYPERFLEET-VAL-004".to_owned()));
}

#[actix_web::test]
async fn revoking_one() {
    let counter = impatient();
    let (one, other) = (asked(&counter, B).await, asked(&counter, B).await);
    let kept = asked(&counter, B).await;
    counter.fake.issue(&one);
    counter.fake.issue(&other);
    counter.fake.issue(&kept);
    counter.fake.expire(&other);
    for id in [&one, &one, &other] {
        let seen = delete(&counter, &format!("{B}/{id}")).await;
        assert_eq!((seen.status, seen.body.as_str()), (202, "{}"), "{id}");
        assert_eq!(delete(&counter, &format!("{A}/{id}")).await.status, 204);
    }
    assert_eq!(counter.fake.state_of(&other), CredentialState::Expired);
    let shown = get(&counter, &format!("{B}/{one}")).await.json();
    assert_eq!((&shown["status"], shown.get("kubeconfig")), (&"revoking".into(), None));
    let shown = get(&counter, &format!("{B}/{kept}")).await.json();
    assert_eq!(
        (&shown["status"], &shown["kubeconfig"]),
        (&"issued".into(), &"apiVersion: v1".into())
    );
    let revocations = get(&counter, &format!("{V1}/revocations")).await.json();
    assert_eq!(revocations["pagination"]["total_count"], 1);
    assert_eq!(revocations["revocations"][0]["scope"], "one");
    // Meanwhile others may be asked for.
    assert_eq!(post(&counter, B, json!({})).await.status, 202);
}

#[actix_web::test]
async fn a_signer_that_cannot_revoke_one() {
    let counter = Counter::new(Signer::KubernetesCsr, false, Duration::ZERO);
    let id = asked(&counter, A).await;
    let told = "the cluster's signer cannot revoke a single credential; \
                DELETE the collection to revoke all of them";
    for (path, id) in [(A, id.clone()), (B, id), (A, "0".repeat(32))] {
        let seen = delete(&counter, &format!("{path}/{id}")).await;
        check_error(&seen, path, 405, told);
        assert_eq!(seen.header("allow"), "GET, HEAD");
    }
}
