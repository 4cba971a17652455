//! What is refused, and in which form.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use serde_json::json;

use super::{A, B, asked, check_error, delete, get, impatient, operator, post};
use crate::http::tests::desk::later;
use crate::http::tests::fixtures::with_role;
use crate::state::break_glass::CredentialState;

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
