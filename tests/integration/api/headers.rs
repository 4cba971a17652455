//! Headers with a meaning.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::world::{World, send};

#[tokio::test]
async fn a_get_is_conditional() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let made = cluster.made().await;
    assert_eq!(made.header("cache-control"), "no-store");
    let first = cluster.get().await;
    let tag = first.header("etag").to_owned();
    assert_eq!(
        (first.header("cache-control"), first.header("vary")),
        ("no-store", "Authorization")
    );
    assert_eq!(tag.trim_matches('"').split('-').count(), 3, "{tag}");
    let conditional = |role: &str, query: &str, tag: &str| {
        let path = format!("{}{query}", cluster.path);
        send(world.request_as(role, Method::GET, &path).header("If-None-Match", tag))
    };
    let same = conditional("admin", "", &tag).await;
    assert_eq!((same.status, same.text.as_str(), same.header("etag")), (304, "", tag.as_str()));
    assert_eq!((same.header("vary"), same.header("cache-control")), ("Authorization", "no-store"));
    assert_eq!(conditional("adapter", "", &tag).await.status, 304, "the same view");
    assert_eq!(conditional("viewer", "", &tag).await.status, 200, "another view");
    assert_eq!(conditional("admin", "?include_metadata=true", &tag).await.status, 200);
    assert_eq!(conditional("admin", "", &format!("\"x\", W/{tag}")).await.status, 304);
    assert_eq!(conditional("admin", "", "*").await.status, 304);
    cluster.in_dual_period().await;
    let changed = conditional("admin", "", &tag).await;
    assert_eq!((changed.status, &changed.body["generation"]), (200, &json!(2)));
    cluster.delete().await;
    assert_eq!(conditional("admin", "", "*").await.status, 404);
}

fn prefer(request: RequestBuilder, value: &str) -> RequestBuilder {
    request.header("Prefer", value)
}

#[tokio::test]
async fn a_caller_says_how_long_it_waits() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let post = || world.service.request(Method::POST, &cluster.path);
    let accepted = send(prefer(post(), "respond-async")).await;
    assert_eq!((accepted.status, &accepted.body["state"]), (202, &json!("issuing")));
    assert_eq!(accepted.header("location"), cluster.path);
    assert!(accepted.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert!(accepted.body.get("pull_secret").is_none() && accepted.body["generation"] == 0);
    let waited = send(prefer(post(), "wait=30")).await;
    assert_eq!((waited.status, &waited.body["generation"]), (200, &json!(1)));
    let delete = || world.service.request(Method::DELETE, &cluster.path);
    let going = send(prefer(delete(), "respond-async")).await;
    assert_eq!(going.status, 202);
    assert_eq!(
        (&going.body["state"], &going.body["registries"]),
        (&json!("revoking"), &json!({"local": "pending"}))
    );
    assert!(going.header("retry-after").parse::<u64>().unwrap() >= 1);
    let gone = send(prefer(delete(), "wait=30")).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test]
async fn every_answer_names_its_request_and_trace() {
    let world = World::start().await;
    let (mine, trace) = ("caller-7", "0af7651916cd43dd8448eb211c80319c");
    for path in ["/v1/clusters/cls-1/pull-secrets", "/healthz", "/no/such/path"] {
        let request = world.service.request(Method::GET, path);
        let named = request
            .header("X-Request-Id", mine)
            .header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
        let answer = send(named).await;
        assert_eq!(answer.header("x-request-id"), mine, "{path}");
        if answer.status >= 400 {
            assert_eq!(answer.body["trace_id"], trace, "{path}");
        }
        let unnamed = world.service.get(path).await;
        assert_eq!(unnamed.header("x-request-id").len(), 36, "{path}");
    }
    // Bad ones are replaced, never echoed.
    let path = "/v1/clusters/cls-1/pull-secrets";
    let bad = world.service.request(Method::GET, path).header("traceparent", "00-x-y-01");
    let answer = send(bad.header("X-Request-Id", "a b")).await;
    assert_eq!(answer.body["trace_id"].as_str().unwrap().len(), 32);
    assert_eq!(answer.header("x-request-id").len(), 36);
}

#[tokio::test]
async fn a_reason_is_checked() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let post = |reason: &str| {
        world.service.request(Method::POST, &cluster.path).header("X-Reason", reason)
    };
    let long = send(post(&"x".repeat(513))).await;
    assert_eq!(long.problem(), (400, "HYPERFLEET-VAL-002"));
    assert_eq!(long.body["errors"][0]["field"], "X-Reason");
    assert_eq!(send(post("a leak in a chat")).await.status, 200);
}
