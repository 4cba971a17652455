//! A real server: what only bytes on a wire show.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use actix_web::test::TestRequest;
use actix_web::web;
use async_trait::async_trait;

use super::fixtures::{admin, call, edge, handlers};
use crate::config;
use crate::http::edge::{Edge, Lifecycle};
use crate::http::health::{Check, Passed, Readiness, RegistryHealth};
use crate::http::limits::Limits;
use crate::http::server::{ServerError, listen};

const SECRETS: &str = "/v1/clusters/cls-1/pull-secrets";

fn sections() -> (config::Server, config::Metrics) {
    let host = "127.0.0.1".to_owned();
    let server = config::Server { host: host.clone(), port: 0, ..config::Server::default() };
    (server, config::Metrics { host, port: 0 })
}

async fn talk(address: SocketAddr, text: String) -> String {
    let talked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    });
    talked.await.unwrap()
}

fn request(line: &str, headers: &str, body: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer admin\r\n\
         {headers}\r\n{body}"
    )
}

#[actix_web::test]
async fn on_the_wire() {
    let edge = edge();
    let (server, metrics) = sections();
    let bound = listen(&server, &metrics, Some(1), &edge, handlers).unwrap();
    let (api, pages) = (bound.api_address, bound.metrics_address);
    assert!(api.port() != 0 && pages.port() != 0);
    let stop = (bound.api.handle(), bound.metrics.handle());
    actix_web::rt::spawn(bound.api);
    actix_web::rt::spawn(bound.metrics);

    let post = format!("POST {SECRETS}");
    let body = "{\"registries\": [\"panic\"]}";
    let length = format!("content-length: {}\r\n", body.len());
    let panicked = talk(api, request(&post, &length, body)).await;
    assert!(panicked.starts_with("HTTP/1.1 500 "), "{panicked}");
    assert!(panicked.contains("HYPERFLEET-INT-001") && panicked.contains("x-request-id: "));

    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let large = format!("{chunk}{chunk}{chunk}0\r\n\r\n");
    let refused = talk(api, request(&post, "transfer-encoding: chunked\r\n", &large)).await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    assert!(refused.contains("HYPERFLEET-VAL-003"), "{refused}");

    let broken = "1\r\n{\r\nno number\r\n}\r\n0\r\n\r\n";
    let refused = talk(api, request(&post, "transfer-encoding: chunked\r\n", broken)).await;
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(refused.contains("the body could not be read to its end"), "{refused}");

    let head = talk(api, request(&format!("HEAD {SECRETS}"), "", "")).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");

    let page = talk(pages, request("GET /metrics", "", "")).await;
    assert!(page.contains("text/plain; version=0.0.4"), "{page}");
    assert!(page.contains("hyperfleet_credentials_panics_total"), "{page}");

    edge.lifecycle.begin_draining();
    let late = talk(api, format!("GET {SECRETS} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    assert!(late.starts_with("HTTP/1.1 503 "), "{late}");
    assert!(late.contains("connection: close") && late.contains("HYPERFLEET-SVC-001"), "{late}");
    tokio::join!(stop.0.stop(false), stop.1.stop(false));
}

struct Broken;

#[async_trait]
impl Check for Broken {
    async fn check(&self) -> Result<(), String> {
        Err("password authentication failed".to_owned())
    }
}

fn with(lifecycle: Lifecycle, readiness: Readiness) -> web::Data<Edge> {
    let base = edge();
    web::Data::new(Edge {
        metrics: base.metrics.clone(),
        clock: base.clock.clone(),
        authenticator: base.authenticator.clone(),
        limits: Limits::new(&config::Limits::default()),
        request_wait: base.request_wait,
        lifecycle,
        readiness,
    })
}

#[actix_web::test]
async fn readiness_follows_the_stage() {
    let lifecycle = Lifecycle::default();
    let edge = with(lifecycle.clone(), Readiness::default().deciding("config", Passed));
    let (probe, life) =
        (|| TestRequest::get().uri("/readyz"), || TestRequest::get().uri("/healthz"));
    assert_eq!(call(&edge, probe()).await.status, 503);
    assert_eq!(call(&edge, life()).await.body, "{\"status\":\"ok\"}");
    let early = call(&edge, admin(TestRequest::get().uri(SECRETS))).await;
    assert_eq!((early.status, early.header("retry-after")), (503, "5"));
    lifecycle.begin_serving();
    let ready = call(&edge, probe()).await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json(), serde_json::json!({"status": "ok", "checks": {"config": "ok"}}));
    lifecycle.begin_draining();
    let draining = call(&edge, probe()).await;
    assert_eq!(draining.status, 503);
    assert_eq!(draining.json()["message"], "the service is shutting down");
    assert_eq!(call(&edge, life()).await.status, 200);
}

#[actix_web::test]
async fn only_checks_decide_about_readiness() {
    let lifecycle = Lifecycle::default();
    lifecycle.begin_serving();
    let degraded = || vec![("quay".to_owned(), RegistryHealth::Degraded)];
    let fine = Readiness::default().deciding("config", Passed).registries(degraded);
    let seen = call(&with(lifecycle.clone(), fine), TestRequest::get().uri("/readyz")).await;
    assert_eq!((seen.status, &seen.json()["registries"]["quay"]), (200, &"degraded".into()));
    let broken = Readiness::default().deciding("database", Broken).deciding("config", Passed);
    let seen = call(&with(lifecycle, broken), TestRequest::get().uri("/readyz")).await;
    let expected = serde_json::json!({
        "status": "error", "checks": {"config": "ok", "database": "error"},
        "message": "failed: database",
    });
    assert_eq!((seen.status, seen.json()), (503, expected));
}

#[actix_web::test]
async fn half_of_tls_is_refused() {
    let (mut server, metrics) = sections();
    server.tls.cert_file = Some("/none/cert.pem".into());
    let refused = listen(&server, &metrics, None, &edge(), handlers).err().unwrap();
    assert!(matches!(refused, ServerError::HalfTls));
    server.tls.key_file = Some("/none/key.pem".into());
    let refused = listen(&server, &metrics, None, &edge(), handlers).err().unwrap();
    assert!(refused.to_string().starts_with("server.tls: /none/cert.pem: "), "{refused}");
}
