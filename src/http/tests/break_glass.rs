//! Both OCM surfaces and the operators' twins: codes, forms, waiting, refusals.

use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use serde_json::{Value, json};

use super::desk::{Counter, later};
use super::fixtures::{Seen, with_role};
use crate::state::break_glass::{CredentialState, Signer};

const A: &str = "/api/clusters_mgmt/v1/clusters/cls-1/break_glass_credentials";
const B: &str = "/api/aro_hcp/v1alpha1/clusters/cls-1/break_glass_credentials";
const V1: &str = "/v1/clusters/cls-1/break-glass";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Nobody waits: what is not done at once is seen on its way.
fn impatient() -> Counter {
    Counter::new(Signer::LocalCa, false, Duration::ZERO)
}

fn operator(method: Method, path: &str) -> TestRequest {
    with_role(TestRequest::with_uri(path).method(method), "operator")
}

async fn post(counter: &Counter, path: &str, body: Value) -> Seen {
    let request = operator(Method::POST, path).set_payload(body.to_string());
    counter.call(request).await
}

async fn get(counter: &Counter, path: &str) -> Seen {
    counter.call(operator(Method::GET, path)).await
}

async fn delete(counter: &Counter, path: &str) -> Seen {
    counter.call(operator(Method::DELETE, path)).await
}

/// The id of a credential that was just asked for.
async fn asked(counter: &Counter, path: &str) -> String {
    post(counter, path, json!({})).await.json()["id"].as_str().unwrap().to_owned()
}

/// What every error of a surface has.
fn check_error(seen: &Seen, path: &str, status: u16, reason: &str) {
    let (base, prefix) = if path.starts_with("/api/clusters_mgmt/") {
        ("/api/clusters_mgmt/v1", "CLUSTERS-MGMT")
    } else {
        ("/api/aro_hcp/v1alpha1", "ARO-HCP")
    };
    let expected = json!({
        "kind": "Error", "id": status.to_string(), "href": format!("{base}/errors/{status}"),
        "code": format!("{prefix}-{status}"), "reason": reason,
        "operation_id": seen.header("x-request-id"), "timestamp": "2026-11-30T12:00:00Z",
    });
    assert_eq!((seen.status, seen.json()), (status, expected), "{path}");
    assert_eq!(seen.header("content-type"), "application/json", "{path}");
}

#[actix_web::test]
async fn a_credential_is_asked_for_and_read() {
    for (path, posted, word) in [(A, 201, "created"), (B, 202, "issuing")] {
        let counter = impatient();
        // What only the server sets is not looked at, nor what nobody knows.
        let ask = json!({
            "username": "ada", "expiration_timestamp": later(3600), "id": "mine", "kind": 7,
            "href": "/elsewhere", "status": "issued", "kubeconfig": "mine", "colour": "blue",
            "creation_timestamp": "2020-01-01T00:00:00Z", "revocation_timestamp": [],
        });
        let made = post(&counter, path, ask).await;
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let one = format!("{path}/{id}");
        assert_eq!((made.status, made.header("location")), (posted, one.as_str()));
        assert!(id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        let shown = made.json();
        assert_eq!((&shown["href"], &shown["username"]), (&one.clone().into(), &"ada".into()));
        assert_eq!(shown["creation_timestamp"], "2026-11-30T12:00:00Z");
        assert_eq!(shown["expiration_timestamp"], later(3600).as_str());

        counter.fake.begin(&id);
        let status = get(&counter, &format!("{one}/status")).await.json();
        assert_eq!(status["href"], format!("{one}/status"));
        assert_eq!(status["state"]["value"], word);
        assert_eq!(get(&counter, &one).await.json().get("kubeconfig"), None);

        counter.fake.issue(&id);
        let usable = get(&counter, &one).await;
        assert_eq!((usable.status, &usable.json()["status"]), (200, &"issued".into()));
        assert_eq!(usable.json()["kubeconfig"], "apiVersion: v1");
        assert_eq!(usable.header("cache-control"), "no-store");
        let listed = get(&counter, path).await.json();
        assert_eq!(listed["items"][0]["status"], "issued");
        assert_eq!(listed["items"][0].get("kubeconfig"), None);
        // Only the answer with the kubeconfig is one that the audit knows of.
        assert_eq!(counter.fake.opened_by(), [(id.parse().unwrap(), "operator".to_owned())]);

        counter.fake.forget_creation(&id);
        assert_eq!(get(&counter, &one).await.json().get("creation_timestamp"), None);
    }
}

#[actix_web::test]
async fn pages() {
    let counter = impatient();
    for _ in 0..5 {
        asked(&counter, A).await;
    }
    for (query, page, size) in [
        ("", 1, 5),
        ("?page=2&size=2", 2, 2),
        ("?page=3&size=2", 3, 1),
        ("?page=4&size=2", 4, 0),
        ("?size=-1", 1, 5),
        ("?page=2&size=-1", 2, 0),
        ("?size=0", 1, 0),
        ("?page=18446744073709551615&size=18446744073709551615", u64::MAX, 0),
    ] {
        let seen = get(&counter, &format!("{B}{query}")).await;
        let list = seen.json();
        assert_eq!(seen.status, 200, "{query}: {}", seen.body);
        assert_eq!(list["kind"], "BreakGlassCredentialList");
        let items = list["items"].as_array().unwrap().len();
        assert_eq!((&list["page"], &list["size"]), (&page.into(), &size.into()), "{query}");
        assert_eq!((items, &list["total"]), (size, &5.into()), "{query}");
    }
    let query = "?search=username%3D%27u%27%20AND%20status%3D%27issued%27&order=id%20desc";
    get(&counter, &format!("{B}{query}")).await;
    let of = counter.fake.last_list();
    assert_eq!(of.search.as_deref(), Some("username='u' AND status='issued'"));
    assert_eq!(of.order.as_deref(), Some("id desc"));
}

#[actix_web::test]
async fn wrong_questions() {
    let counter = impatient();
    let soon = json!({"expiration_timestamp": later(60)});
    let late = json!({"expiration_timestamp": later(25 * 3600)});
    for path in [A, B] {
        for (body, reason) in [
            (soon.clone(), "Expiration needs to be at least 10 minutes from now"),
            (late.clone(), "Expiration needs to be at most 24 hours from now"),
            (
                json!({"username": "a b"}),
                "The username 'a b' must respect the regexp '^[a-zA-Z0-9-.]*$'",
            ),
            (json!({"username": "x".repeat(36)}), "The username must have at most 35 characters"),
            (json!({"username": 3}), "username must be a string"),
            (json!([]), "body must be a JSON object"),
        ] {
            check_error(&post(&counter, path, body).await, path, 400, reason);
        }
        for (query, reason) in [
            ("page=0", "page must be a whole number from 1"),
            ("size=-2", "size must be a whole number, or -1 for all"),
            ("search=colour%20%3D%20%27blue%27", "search has an unknown field at 1: colour"),
        ] {
            let seen = get(&counter, &format!("{path}?{query}")).await;
            check_error(&seen, path, 400, reason);
        }
        let waited = get(&counter, &format!("{path}/{}?wait=soon", "0".repeat(32))).await;
        check_error(&waited, path, 400, "wait must be a duration like 20s");
        let bad = operator(Method::POST, path).set_payload("{");
        let bad = counter.call(bad).await;
        check_error(&bad, path, 400, "the body is not valid JSON (line 1, column 1)");
    }
}

#[actix_web::test]
async fn every_error_is_one_that_ocm_clients_know() {
    let counter = impatient();
    for (path, base) in [(A, "/api/clusters_mgmt/v1"), (B, "/api/aro_hcp/v1alpha1")] {
        for elsewhere in [format!("{base}/nothing"), base.to_owned(), format!("{path}/")] {
            let told = "there is no such path; check the URL";
            check_error(&get(&counter, &elsewhere).await, path, 404, told);
        }
        for id in ["0".repeat(32), "A".repeat(32), "x".to_owned()] {
            let told = "break-glass credential not found";
            check_error(&get(&counter, &format!("{path}/{id}")).await, path, 404, told);
            check_error(&delete(&counter, &format!("{path}/{id}")).await, path, 404, told);
        }
        let unnamed = path.replace("cls-1", "other");
        let told = "break-glass access to this cluster not found";
        check_error(&get(&counter, &unnamed).await, path, 404, told);
        check_error(&delete(&counter, &unnamed).await, path, 404, told);
        check_error(&post(&counter, &unnamed, json!({})).await, path, 404, told);

        let put = counter.call(operator(Method::PUT, path)).await;
        check_error(&put, path, 405, "the path knows only DELETE, GET, HEAD, POST");
        assert_eq!(put.header("allow"), "DELETE, GET, HEAD, POST");

        let nobody = counter.call(TestRequest::get().uri(path)).await;
        let told = "the request carries no credentials; send `Authorization: Bearer <token>`";
        check_error(&nobody, path, 401, told);
        assert!(nobody.header("www-authenticate").starts_with("Bearer"));
        let stranger = counter.call(with_role(TestRequest::get().uri(path), "nobody")).await;
        let told = "the credentials are malformed, unknown or no longer valid";
        check_error(&stranger, path, 401, told);
        let viewer = counter.call(with_role(TestRequest::post().uri(path), "viewer")).await;
        let told = "viewer may not `create` on `break-glass-credentials`";
        check_error(&viewer, path, 403, told);
        let down = counter.call(with_role(TestRequest::get().uri(path), "down")).await;
        check_error(&down, path, 503, "credentials cannot be checked at the moment");
        assert_eq!(down.header("retry-after"), "5");

        let large = operator(Method::POST, path).set_payload("x".repeat(64 * 1024 + 1));
        let large = counter.call(large).await;
        check_error(&large, path, 413, "the body has more than 65536 bytes");
        let text = operator(Method::POST, path).insert_header(("content-type", "text/plain"));
        let told = "the body must be application/json, not compressed";
        check_error(&counter.call(text).await, path, 415, told);
    }
}

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

#[actix_web::test]
async fn another_clusters_credential_is_not_found() {
    let counter = impatient();
    let id = asked(&counter, B).await;
    counter.fake.issue(&id);
    let other = B.replace("cls-1", "cls-2");
    let told = "break-glass credential not found";
    for seen in [
        get(&counter, &format!("{other}/{id}")).await,
        get(&counter, &format!("{other}/{id}/status")).await,
        delete(&counter, &format!("{other}/{id}")).await,
    ] {
        check_error(&seen, B, 404, told);
    }
    let deny = format!("/v1/clusters/cls-2/break-glass/{id}/deny");
    assert_eq!(post(&counter, &deny, json!({})).await.status, 404);
    assert_eq!(get(&counter, &other).await.json()["total"], 0);
    assert_eq!(counter.fake.state_of(&id), CredentialState::Active);
    assert_eq!(counter.fake.opened_by(), []);
}

#[actix_web::test]
async fn why_somebody_asks() {
    let counter = impatient();
    let ask = |body: &str, header: &'static str| {
        let request = operator(Method::POST, B).insert_header(("x-reason", header));
        counter.call(request.set_payload(body.to_owned()))
    };
    for (body, header, kept) in [
        ("{}", "incident 7", "incident 7"),
        ("{\"reason\": \"Störung 7\"}", "incident 7", "Störung 7"),
    ] {
        assert_eq!(ask(body, header).await.status, 202);
        assert_eq!(counter.fake.told().pop().unwrap().1.reason.as_deref(), Some(kept));
    }
    let bad = ask("{\"reason\": \"a\\nb\"}", "x").await;
    let told = "reason must have 1 to 512 characters, none of them a control character";
    check_error(&bad, B, 400, told);
    assert_eq!(counter.fake.told().len(), 2);
}

#[actix_web::test]
async fn a_live_username_is_taken() {
    let counter = impatient();
    let ask = || json!({"username": "ada"});
    let id = post(&counter, A, ask()).await.json()["id"].as_str().unwrap().to_owned();
    let taken = post(&counter, B, ask()).await;
    let told = "the username is in use by another credential of the cluster";
    check_error(&taken, B, 409, told);
    assert_eq!(taken.header("retry-after"), "");
    counter.fake.expire(&id);
    assert_eq!(post(&counter, B, ask()).await.status, 202);
}

#[actix_web::test]
async fn the_older_surface_waits() {
    let counter = Counter::new(Signer::LocalCa, false, LONG);
    // On the newer one nobody waits.
    let id = asked(&counter, B).await;
    assert_eq!(get(&counter, &format!("{B}/{id}")).await.json()["kubeconfig"], Value::Null);
    let one = format!("{A}/{id}");
    // Whoever does not want to wait does not.
    assert_eq!(get(&counter, &format!("{one}?wait=0s")).await.json()["status"], "created");
    let hurried = operator(Method::GET, &one).insert_header(("prefer", "respond-async"));
    assert_eq!(counter.call(hurried).await.json()["status"], "created");
    let issue = async {
        actix_web::rt::task::yield_now().await;
        counter.fake.issue(&id);
    };
    let (seen, ()) = tokio::join!(get(&counter, &one), issue);
    assert_eq!(seen.json()["kubeconfig"], "apiVersion: v1");

    let issue = async {
        while counter.fake.told().len() < 2 {
            actix_web::rt::task::yield_now().await;
        }
        let listed = get(&counter, A).await.json();
        counter.fake.issue(listed["items"][1]["id"].as_str().unwrap());
    };
    let (made, ()) = tokio::join!(post(&counter, A, json!({})), issue);
    assert_eq!((made.status, &made.json()["status"]), (201, &"issued".into()));
    assert_eq!(made.json().get("kubeconfig"), None);
}

#[actix_web::test]
async fn a_shutdown_ends_the_wait() {
    let counter = Counter::new(Signer::LocalCa, false, LONG);
    let id = asked(&counter, B).await;
    let one = format!("{A}/{id}");
    let leave = async {
        actix_web::rt::task::yield_now().await;
        counter.edge.lifecycle.begin_draining();
    };
    let (seen, ()) = tokio::join!(get(&counter, &one), leave);
    assert_eq!((seen.status, &seen.json()["status"]), (200, &"created".into()));
}

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
async fn a_repeated_request_gets_its_first_answer() {
    let counter = impatient();
    let ask = |body: Value| {
        let request = operator(Method::POST, A).insert_header(("idempotency-key", "k1"));
        counter.call(request.set_payload(body.to_string()))
    };
    let first = ask(json!({"username": "ada"})).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    counter.fake.issue(&id);
    let again = ask(json!({"username": "ada", "ignored": true})).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, "true"));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!((&again.json()["id"], &again.json()["status"]), (&id.into(), &"issued".into()));
    let other = ask(json!({"username": "bob"})).await;
    let told = "Idempotency-Key was used with another body; use a new key for a new request";
    check_error(&other, A, 422, told);
    assert_eq!(get(&counter, A).await.json()["total"], 1);
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
