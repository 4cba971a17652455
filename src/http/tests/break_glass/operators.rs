//! Approvals, and what API servers have to trust.

use std::time::Duration;

use actix_web::test::TestRequest;
use serde_json::json;

use super::{A, B, LONG, V1, asked, delete, get, impatient, post};
use crate::http::tests::desk::Counter;
use crate::http::tests::fixtures::with_role;
use crate::state::break_glass::Signer;

#[actix_web::test]
async fn a_second_person_decides() {
    let counter = Counter::new(Signer::LocalCa, true, LONG);
    // A pending approval is not waited for.
    let id = asked(&counter, A).await;
    let shown = get(&counter, &format!("{A}/{id}")).await.json();
    assert_eq!(shown["status"], "created");
    let message = shown["status_details"]["message"].as_str().unwrap();
    assert!(message.contains("approve"), "{message}");

    let approve = format!("{V1}/{id}/approve");
    for own in [approve.clone(), format!("{V1}/{id}/deny")] {
        let own = post(&counter, &own, json!({})).await;
        assert_eq!((own.status, own.code()), (403, "HYPERFLEET-AUZ-001".to_owned()));
    }
    let admin = |path: &str, body: &str| {
        with_role(TestRequest::post().uri(path), "admin").set_payload(body.to_owned())
    };
    let seen = counter.call(admin(&approve, "{\"reason\": \"incident 7\"}")).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    assert_eq!((&seen.json()["decided_by"], &seen.json()["id"]), (&"admin".into(), &id.into()));
    assert_eq!(counter.fake.told().pop().unwrap().1.reason.as_deref(), Some("incident 7"));
    let again = counter.call(admin(&approve, "")).await;
    assert_eq!((again.status, again.code()), (409, "HYPERFLEET-CNF-003".to_owned()));

    let asked_for = post(&counter, B, json!({"reason": "disk full"})).await.json();
    let id = asked_for["id"].as_str().unwrap().to_owned();
    let deny = format!("{V1}/{id}/deny");
    let wrong = counter.call(admin(&deny, "{\"reason\": \"\"}")).await;
    assert_eq!((wrong.status, wrong.code()), (400, "HYPERFLEET-VAL-002".to_owned()));
    let unknown = counter.call(admin(&deny, "{\"reson\": \"typo\"}")).await;
    assert_eq!((unknown.status, unknown.code()), (400, "HYPERFLEET-VAL-002".to_owned()));
    assert_eq!(unknown.json()["errors"][0]["field"], "reson");
    let seen = counter.call(admin(&deny, "").insert_header(("x-reason", "not today"))).await;
    assert_eq!((seen.status, &seen.json()["status"]), (200, &"denied".into()));
    let decided = seen.json();
    assert_eq!(
        (&decided["requested_by"], &decided["reason"]),
        (&"operator".into(), &"disk full".into())
    );
    assert_eq!(decided.get("kubeconfig"), None);
    let (on_a, on_b) =
        (get(&counter, &format!("{A}/{id}")).await, get(&counter, &format!("{B}/{id}")).await);
    assert_eq!(
        (&on_a.json()["status"], &on_b.json()["status"]),
        (&"failed".into(), &"denied".into())
    );
    assert_eq!(on_b.json()["status_details"]["message"], "denied: not today");

    // What has ended cannot be decided about any more; that is no secret.
    let over = counter.call(admin(&format!("{V1}/{id}/approve"), "")).await;
    assert_eq!((over.status, over.code()), (409, "HYPERFLEET-CNF-003".to_owned()));
    assert_eq!(over.json()["detail"], "not allowed while the credential is denied");
    let listed = get(&counter, B).await.json();
    assert!(listed["items"].as_array().unwrap().iter().any(|item| item["status"] == "denied"));

    let none = counter.call(admin(&format!("{V1}/trust-bundle/approve"), "")).await;
    assert_eq!((none.status, none.code()), (404, "HYPERFLEET-NTF-001".to_owned()));
    let counter = impatient();
    let id = asked(&counter, B).await;
    let unasked = counter.call(admin(&format!("{V1}/{id}/approve"), "")).await;
    assert_eq!((unasked.status, unasked.code()), (409, "HYPERFLEET-CNF-003".to_owned()));
}

#[actix_web::test]
async fn a_repeated_decision_is_the_first_one() {
    let counter = Counter::new(Signer::LocalCa, true, Duration::ZERO);
    let id = asked(&counter, B).await;
    let decide = async |verb: &str| {
        let request = TestRequest::post().uri(&format!("{V1}/{id}/{verb}"));
        let request = request.insert_header(("idempotency-key", "k1"));
        counter.call(with_role(request, "admin")).await
    };
    let first = decide("approve").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.body);
    counter.fake.issue(&id);
    let again = decide("approve").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, "true"));
    assert_eq!(
        (&again.json()["status"], &again.json()["id"]),
        (&"issued".into(), &id.clone().into())
    );
    // Another path is another request.
    assert_eq!(decide("deny").await.status, 409);
}

#[actix_web::test]
async fn the_trust_bundle() {
    let counter = impatient();
    let id = asked(&counter, B).await;
    counter.fake.issue(&id);
    delete(&counter, B).await;
    let path = format!("{V1}/trust-bundle");
    let adapter = |request: TestRequest| with_role(request, "adapter");
    let seen = counter.call(adapter(TestRequest::get().uri(&path))).await;
    assert_eq!((seen.status, seen.body.as_str()), (200, "-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(seen.header("content-type"), "application/pem-certificate-chain");
    let etag = seen.header("etag").to_owned();
    let known =
        adapter(TestRequest::get().uri(&path)).insert_header(("if-none-match", etag.clone()));
    let known = counter.call(known).await;
    assert_eq!((known.status, known.body.as_str(), known.header("etag")), (304, "", etag.as_str()));

    let confirm = |etag: &str| {
        let body = json!({"etag": etag}).to_string();
        let path = format!("{path}/confirm");
        counter.call(adapter(TestRequest::post().uri(&path)).set_payload(body))
    };
    let bare = etag.trim_matches('"');
    for settled in [1, 0] {
        let seen = confirm(&etag).await;
        assert_eq!((seen.status, seen.json()), (200, json!({"etag": bare, "settled": settled})));
    }
    assert_eq!(confirm(bare).await.status, 200);
    for unknown in ["7-0000000000000000", "nonsense"] {
        let seen = confirm(unknown).await;
        assert_eq!((seen.status, seen.code()), (409, "HYPERFLEET-CNF-002".to_owned()));
        assert_eq!(seen.json()["cluster_id"], "cls-1");
    }
    let bad = confirm("a b").await;
    assert_eq!((bad.status, bad.code()), (400, "HYPERFLEET-VAL-002".to_owned()));
    assert_eq!(bad.json()["errors"][0]["field"], "etag");
    let none = get(&counter, "/v1/clusters/other/break-glass/trust-bundle").await;
    assert_eq!((none.status, none.code()), (404, "HYPERFLEET-NTF-001".to_owned()));
}
