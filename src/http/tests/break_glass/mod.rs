//! Both OCM surfaces and the operators' twins: codes, forms, waiting, refusals.

mod asking;
mod operators;
mod refusals;
mod revoking;

use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use serde_json::{Value, json};

use super::desk::Counter;
use super::fixtures::{Seen, with_role};
use crate::state::break_glass::Signer;

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
