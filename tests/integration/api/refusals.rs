//! What only a registry that says no can show: the application in this process, over a scripted registry.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::web::Data;
use async_trait::async_trait;
use hyperfleet_credentials::actors::reads::{self, ReadLog};
use hyperfleet_credentials::config;
use hyperfleet_credentials::config::AuditReads;
use hyperfleet_credentials::config::Role;
use hyperfleet_credentials::crypto::AuditKey;
use hyperfleet_credentials::http::auth::{AuthError, Authenticator, Principal};
use hyperfleet_credentials::http::edge::{Edge, Lifecycle};
use hyperfleet_credentials::http::handlers::{Backend, Repeats, Work, handlers};
use hyperfleet_credentials::http::health::Readiness;
use hyperfleet_credentials::http::limits::Limits;
use hyperfleet_credentials::http::server::api_app;
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::telemetry::metrics::Metrics;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::actors::world::World;

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";

/// Whose token is the name of a role has it.
struct Everybody;

#[async_trait]
impl Authenticator for Everybody {
    async fn authenticate(&self, token: &SecretString) -> Result<Principal, AuthError> {
        let role = match token.expose_secret() {
            "adapter" => Role::Adapter,
            "operator" => Role::Operator,
            "admin" => Role::Admin,
            _ => Role::Viewer,
        };
        Ok(Principal { name: format!("{}-1", token.expose_secret()), role })
    }
}

/// Status, `Retry-After` and body of one request.
async fn ask(world: &World, method: Method, path: &str) -> (u16, Option<u64>, Value) {
    ask_as(world, "admin", TestRequest::with_uri(path).method(method)).await
}

/// The same for somebody with this role.
pub async fn ask_as(world: &World, role: &str, request: TestRequest) -> (u16, Option<u64>, Value) {
    let lifecycle = Lifecycle::default();
    lifecycle.begin_serving();
    let edge = Data::new(Edge {
        metrics: Metrics::new().unwrap(),
        clock: world.clock.clone(),
        authenticator: Arc::new(Everybody),
        limits: Limits::new(&config::Limits::default()),
        lifecycle,
        readiness: Readiness::default(),
        request_wait: Duration::from_secs(5),
    });
    let backend = Backend::default();
    let key = AuditKey::from_bytes(&[7; 32]).unwrap();
    let repeats = Repeats::new(&key, Duration::from_secs(5));
    let reads = ReadLog::start(world.deps.clone(), AuditReads::Off, reads::BUFFER);
    backend.set(Work::new(world.deps.clone(), world.system.shards.clone(), repeats, reads));
    let app = init_service(api_app(edge, handlers(backend))).await;
    let request = request.insert_header(("authorization", format!("Bearer {role}"))).to_request();
    let answer = call_service(&app, request).await;
    let status = answer.status().as_u16();
    let after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = serde_json::from_slice(&read_body(answer).await).unwrap_or(Value::Null);
    (status, after.map(|text| text.parse().unwrap()), body)
}

pub async fn until(world: &World, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let (_, _, body) = ask(world, Method::GET, path).await;
            if wanted(&body) {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await.expect("not as wanted in time")
}

#[actix_rt::test]
async fn a_refused_account_is_denied_and_a_post_begins_anew() {
    let world = World::start(Flavour::Readable).await;
    world.registry.next(Verb::Create, Fault::Refuse("quota exceeded".to_owned()));
    let (status, _, denied) = ask(&world, Method::POST, PATH).await;
    assert_eq!((status, &denied["code"]), (409, &json!("HYPERFLEET-CNF-003")), "{denied}");
    assert_eq!((&denied["state"], &denied["retryable"]), (&json!("denied"), &json!(false)));
    assert_eq!(denied["registries"], json!(["scripted"]));
    let (status, _, shown) = ask(&world, Method::GET, PATH).await;
    assert_eq!((status, &shown["state"]), (200, &json!("denied")));
    assert_eq!(shown["status_details"]["message"], "scripted: quota exceeded");
    let (_, _, list) = ask(&world, Method::GET, "/v1/attention?kind=denied").await;
    assert_eq!(list["items"][0]["last_error"], "quota exceeded");
    let (status, _, again) = ask(&world, Method::POST, PATH).await;
    assert_eq!((status, &again["generation"]), (200, &json!(2)), "{again}");
}

#[actix_rt::test]
async fn a_refused_rotation_fails_and_the_old_generation_stays() {
    let world = World::start(Flavour::Readable).await;
    ask(&world, Method::POST, PATH).await;
    world.registry.next(Verb::Create, Fault::Refuse("quota exceeded".to_owned()));
    let (status, _, started) = ask(&world, Method::POST, &format!("{PATH}/rotations")).await;
    assert_eq!(status, 201, "{started}");
    let path = format!("{PATH}/rotations/{}", started["rotation_id"].as_str().unwrap());
    let failed = until(&world, &path, |rotation| rotation["status"] == "failed").await;
    let error = json!({"code": "denied", "message": "quota exceeded", "registry_id": "scripted"});
    assert_eq!(failed["error"], error);
    assert_eq!(failed["progress"]["phase"], "failed");
    assert_eq!(failed["progress"]["registries"], json!({"scripted": "denied"}));
    let (_, _, shown) = ask(&world, Method::GET, PATH).await;
    assert_eq!((&shown["state"], &shown["generation"]), (&json!("active"), &json!(1)));
}

#[actix_rt::test]
async fn an_account_that_is_not_let_go_is_residue() {
    let world = World::start(Flavour::Readable).await;
    ask(&world, Method::POST, PATH).await;
    world.registry.next(Verb::Revoke, Fault::Refuse("in use".to_owned()));
    let deleted = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::join!(ask(&world, Method::DELETE, PATH), async {
            until(&world, "/v1/attention?kind=irrevocable", |list| list["items"][0].is_object())
                .await
        })
    });
    let ((status, after, going), list) = deleted.await.unwrap();
    assert_eq!((status, &going["registries"]), (202, &json!({"scripted": "irrevocable"})));
    assert!(after.unwrap() > 3600, "it is tried again daily");
    assert_eq!(list["items"][0]["last_error"], "in use");
    // A repeated DELETE tries it at once.
    let (status, _, _) = ask(&world, Method::DELETE, PATH).await;
    assert_eq!(status, 204);
    assert_eq!(world.registry.live().len(), 0);
}
