//! A registry that is down, refuses, or comes back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::world::{World, send};
use crate::support::service::{Answer, Setup};

async fn asked(world: &World, method: Method, path: &str) -> Answer {
    send(world.service.request(method, path).header("Prefer", "respond-async")).await
}

fn is_stuck(answer: &Answer) -> bool {
    answer.body["items"][0]["kind"] == "stuck"
}

#[tokio::test]
async fn work_for_a_registry_that_is_down_waits_and_goes_on_by_itself() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    fs::write(world.htpasswd(), "no colon in this line\n").unwrap();
    let accepted =
        send(world.service.request(Method::POST, &cluster.path).header("Prefer", "wait=1")).await;
    assert_eq!((accepted.status, accepted.header("location")), (202, cluster.path.as_str()));
    assert!(accepted.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert!(accepted.body["status_details"]["message"].as_str().unwrap().starts_with("local: "));
    assert_eq!(accepted.body["status"]["conditions"][0]["status"], "False");

    // Told to people, on the list and at the cluster; nobody is denied for it.
    let stuck = world.service.until("/v1/attention?kind=stuck", is_stuck).await;
    let item = &stuck.body["items"][0];
    assert_eq!((&item["cluster_id"], &item["registry_id"]), (&json!("cls-1"), &json!("local")));
    assert!(item["last_error"].is_string() && item["next_attempt_at"].is_string());
    assert_eq!(item["attempts"], 0, "a blocked registry costs no attempt");
    let rotation = world.service.post(&cluster.at("rotations"), json!({})).await;
    assert_eq!(rotation.problem(), (409, "HYPERFLEET-CNF-003"));
    assert_eq!(rotation.body["state"], "issuing");

    fs::write(world.htpasswd(), "").unwrap();
    let active = cluster.until_state("active").await;
    assert_eq!(active.body["generation"], 1);
    let calm = world.service.get("/v1/attention").await;
    assert_eq!(calm.body["items"], json!([]));
}

#[tokio::test]
async fn a_wait_ends_when_the_service_stops() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    fs::write(world.htpasswd(), "no colon in this line\n").unwrap();
    let waiting = world.service.request(Method::POST, &cluster.path).header("Prefer", "wait=60");
    let stopped = async {
        cluster.until_state("issuing").await;
        world.service.terminate();
    };
    let (answer, ()) = tokio::join!(send(waiting), stopped);
    assert_eq!((answer.status, &answer.body["state"]), (202, &json!("issuing")));
}

#[tokio::test]
async fn a_delete_that_cannot_be_done_yet_goes_on_by_itself() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let file = fs::read_to_string(world.htpasswd()).unwrap();
    // A directory in its place cannot be read, not even by root.
    fs::remove_file(world.htpasswd()).unwrap();
    fs::create_dir(world.htpasswd()).unwrap();
    let going = asked(&world, Method::DELETE, &cluster.path).await;
    assert_eq!((going.status, &going.body["registries"]), (202, &json!({"local": "pending"})));
    let shown = cluster.get().await;
    assert_eq!((shown.status, &shown.body["state"]), (200, &json!("revoking")));
    assert!(shown.body.get("pull_secret").is_none() && shown.body["generation"] == 0);
    let post = cluster.post(json!({})).await;
    assert_eq!(post.problem(), (409, "HYPERFLEET-CNF-003"));
    assert_eq!(post.body["state"], "revoking");
    assert_eq!(
        cluster.confirm(1, "a").await.body,
        json!({"accepted": false, "served_generation": 0})
    );

    fs::remove_dir(world.htpasswd()).unwrap();
    fs::write(world.htpasswd(), file).unwrap();
    world.service.until(&cluster.path, |answer| answer.status == 404).await;
    assert_eq!(world.accounts(), 0);
}

/// A registry whose logins answer what they are told.
struct Logins {
    listener: TcpListener,
}

impl Logins {
    /// Turns everybody away until somebody says otherwise, then lets in whoever says who they are.
    async fn serve(self, friendly: Arc<AtomicBool>) {
        loop {
            let (mut stream, _) = self.listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let named =
                String::from_utf8_lossy(&head[..read]).to_lowercase().contains("authorization:");
            let answer = if named && friendly.load(Ordering::SeqCst) {
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
            } else {
                "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"test\"\r\n\
                 content-length: 0\r\nconnection: close\r\n\r\n"
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

#[tokio::test]
async fn an_account_that_cannot_log_in_is_never_shown() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    // Nobody listens there for the time being.
    drop(free);
    let url = format!("http://{address}");
    let world =
        World::start_with(Setup::quick().env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", &url)).await;
    let cluster = world.cluster("cls-1");
    assert_eq!(asked(&world, Method::POST, &cluster.path).await.status, 202);
    let path = format!("{}?include_metadata=true", cluster.path);
    let made = |answer: &Answer| answer.body["credentials"][0]["state"] == "created";
    let created = world.service.until(&path, made).await;
    assert!(created.body.get("pull_secret").is_none() && created.body["state"] == "issuing");
    world.service.until("/v1/attention", is_stuck).await;

    let friendly = Arc::new(AtomicBool::new(true));
    let logins = Logins { listener: TcpListener::bind(address).await.unwrap() };
    tokio::spawn(logins.serve(friendly));
    assert_eq!(cluster.until_state("active").await.body["generation"], 1);
}

#[tokio::test]
async fn trouble_that_lasts_fails_and_a_post_begins_anew() {
    let logins = Logins { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() };
    let url = format!("http://{}", logins.listener.local_addr().unwrap());
    let friendly = Arc::new(AtomicBool::new(false));
    tokio::spawn(logins.serve(friendly.clone()));
    let setup = Setup::quick()
        .env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", &url)
        .env("HYPERFLEET_RETRY_GIVE_UP_AFTER", "1s");
    let world = World::start_with(setup).await;
    let cluster = world.cluster("cls-1");
    let post = world.service.request(Method::POST, &cluster.path).header("Prefer", "wait=60");
    let failed = send(post).await;
    assert_eq!(failed.problem(), (502, "HYPERFLEET-SVC-004"), "{}", failed.body);
    assert_eq!(
        (&failed.body["registries"], &failed.body["retryable"]),
        (&json!(["local"]), &json!(true))
    );
    let shown = cluster.get().await;
    assert_eq!((shown.status, &shown.body["state"]), (200, &json!("failed")));
    assert!(shown.body["status_details"]["message"].as_str().unwrap().starts_with("local: "));
    let list = world.service.get("/v1/attention?kind=failed").await;
    assert_eq!(list.body["items"][0]["cluster_id"], "cls-1");
    let rotation = world.service.post(&cluster.at("rotations"), json!({})).await;
    assert_eq!(
        (rotation.problem(), &rotation.body["state"]),
        ((409, "HYPERFLEET-CNF-003"), &json!("failed"))
    );

    friendly.store(true, Ordering::SeqCst);
    let post = world.service.request(Method::POST, &cluster.path).header("Prefer", "wait=60");
    let again = send(post).await;
    assert_eq!((again.status, &again.body["generation"]), (200, &json!(2)), "{}", again.body);
    assert_eq!(world.accounts(), 1, "what failed is gone");
}
