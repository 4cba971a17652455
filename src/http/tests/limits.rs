//! What a caller is told of its limits, and what becomes of those who are wrong too often.

use actix_web::test::TestRequest;

use super::fixtures::{Seen, admin, call, edge, edge_with, with_role};
use crate::config;

const SECRETS: &str = "/v1/clusters/cls-1/pull-secrets";
const BEATS: &str = "/v1/clusters/cls-1/pull-secrets/heartbeats";
/// `Basic a:b`; the handler behind takes every one.
const GOOD: (&str, &str) = ("authorization", "Basic YTpi");

fn limits(yaml: &str) -> config::Limits {
    serde_saphyr::from_str(yaml).unwrap()
}

fn told(seen: &Seen) -> [&str; 3] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
        .map(|name| seen.header(name))
}

#[actix_web::test]
async fn a_caller_is_told_what_is_left_and_then_to_wait() {
    let edge = edge_with(&limits("{requests: 2/1h}"));
    let read = || TestRequest::get().uri(SECRETS);
    let first = call(&edge, admin(read())).await;
    assert_eq!((first.status, told(&first)), (200, ["2", "1", "1800"]));
    // What is refused for another reason counts and is told, too.
    let second = call(&edge, admin(TestRequest::get().uri("/v1/clusters/No!/pull-secrets"))).await;
    assert_eq!((second.status, told(&second)), (400, ["2", "0", "3600"]));
    let third = call(&edge, admin(read())).await;
    assert_eq!((third.status, third.code()), (429, "HYPERFLEET-LMT-001".to_owned()));
    assert_eq!(told(&third), ["2", "0", "3600"]);
    let seconds: u64 = third.header("retry-after").parse().unwrap();
    assert!((1..=1800).contains(&seconds), "{seconds}");
    let problem = third.json();
    assert_eq!(problem["type"], "https://api.hyperfleet.io/errors/rate-limit-exceeded");
    assert_eq!((&problem["limit"], &problem["window"]), (&2.into(), &"1h".into()));
    assert_eq!(problem["retry_after"], seconds);
    assert_eq!(third.header("content-type"), "application/problem+json");
    let other = call(&edge, with_role(read(), "operator")).await;
    assert_eq!(other.status, 200, "another caller has limits of its own");
    let probe = call(&edge, TestRequest::get().uri("/healthz")).await;
    assert_eq!((probe.status, told(&probe)), (200, ["", "", ""]));
}

#[actix_web::test]
async fn starts_of_rotations_have_a_limit_of_their_own() {
    let edge = edge_with(&limits("{rotations: 1/1h}"));
    let start = || admin(TestRequest::post().uri("/v1/clusters/cls-1/pull-secrets/rotations"));
    let first = call(&edge, start()).await;
    assert_eq!((first.status, told(&first)), (201, ["1", "0", "3600"]));
    assert_eq!(call(&edge, start()).await.status, 429);
    assert_eq!(call(&edge, admin(TestRequest::get().uri(SECRETS))).await.status, 200);
}

#[actix_web::test]
async fn whoever_is_wrong_too_often_is_told_so_and_whoever_is_right_is_served() {
    let edge = edge();
    let from = |port: u16| TestRequest::get().uri(SECRETS).peer_addr(([192, 0, 2, 1], port).into());
    let mut refusals = 0;
    for port in 0..40 {
        let seen = call(&edge, with_role(from(port), "nobody")).await;
        assert!([401, 429].contains(&seen.status), "{}", seen.status);
        refusals += u32::from(seen.status == 429);
    }
    assert!(refusals > 0, "forty in a row are too many");
    let none = call(&edge, from(1)).await;
    assert_eq!((none.status, none.code()), (429, "HYPERFLEET-LMT-001".to_owned()));
    assert_eq!(call(&edge, admin(from(1))).await.status, 200, "behind the same proxy");
    let elsewhere = TestRequest::get().uri(SECRETS).peer_addr(([192, 0, 2, 2], 1).into());
    assert_eq!(call(&edge, with_role(elsewhere, "nobody")).await.status, 401);
}

#[actix_web::test]
async fn heartbeats_are_limited_only_where_they_are_refused() {
    let edge = edge();
    let beat = || TestRequest::post().uri(BEATS).peer_addr(([192, 0, 2, 1], 1).into());
    for _ in 0..500 {
        let seen = call(&edge, beat().insert_header(GOOD)).await;
        assert_eq!((seen.status, told(&seen)), (200, ["", "", ""]));
    }
    let mut last = 0;
    for _ in 0..40 {
        last = call(&edge, beat().insert_header(("authorization", "Basic !"))).await.status;
    }
    assert_eq!(last, 429);
    assert_eq!(call(&edge, beat().insert_header(GOOD)).await.status, 200, "never the good ones");
}
