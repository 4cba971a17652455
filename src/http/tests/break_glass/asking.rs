//! Asking for a credential, waiting for it, reading it.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{A, B, LONG, asked, check_error, get, impatient, operator, post};
use crate::http::tests::desk::{Counter, later};
use crate::state::break_glass::Signer;

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
async fn whoever_says_so_waits_on_the_newer_surface_too() {
    let counter = impatient();
    let id = asked(&counter, B).await;
    let issue = async {
        actix_web::rt::task::yield_now().await;
        counter.fake.issue(&id);
    };
    let one = format!("{B}/{id}?wait=60s");
    let (seen, ()) = tokio::join!(get(&counter, &one), issue);
    assert_eq!(seen.json()["kubeconfig"], "apiVersion: v1");
    // What has ended, or never was, is not waited for.
    counter.fake.expire(&id);
    assert_eq!(get(&counter, &one).await.json()["status"], "expired");
    assert_eq!(get(&counter, &format!("{B}/{}?wait=60s", "0".repeat(32))).await.status, 404);
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
