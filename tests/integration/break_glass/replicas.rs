//! Two replicas on one database: each answers the same, and one goes on with what the other has left.

use serde_json::{Value, json};

use super::world::{A, B, Scene, V1, WHO, log_in, name_of, quick};
use crate::support::fake_apiserver::Mode;
use crate::support::postgres;
use crate::support::service::Service;

async fn two() -> (Scene, Service) {
    with_lease("3s").await
}

async fn with_lease(lease: &str) -> (Scene, Service) {
    let url = postgres::shared().database(None).await;
    let setup = quick()
        .env("HYPERFLEET_DB_URL", &url)
        .env("HYPERFLEET_SCHEDULER_LEASE", lease)
        .env("HYPERFLEET_REGISTRIES_LOCAL_TIMEOUT", "1s");
    let scene = Scene::with(setup, 2, json!({})).await;
    let other = scene.another().await;
    (scene, other)
}

#[tokio::test]
async fn what_one_has_done_the_other_knows() {
    let (scene, other) = two().await;
    // Whoever waits at one is answered when the other has issued it.
    let id = scene.asked(json!({"username": "ada"})).await;
    let one = format!("{A}/{id}");
    let there = scene.meanwhile(other.get(&one)).await;
    assert_eq!((there.status, &there.body["status"]), (200, &json!("issued")), "{}", there.text);
    let kubeconfig = there.body["kubeconfig"].as_str().unwrap().to_owned();
    assert_eq!(scene.kubeconfig(&id).await, Some(kubeconfig.clone()));
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    // A name is taken and a bundle is the same on both.
    let taken = other.post(B, json!({"username": "ada"})).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let bundle = other.get(&format!("{V1}/trust-bundle")).await;
    let here = scene.get(&format!("{V1}/trust-bundle")).await;
    assert_eq!((bundle.header("etag"), &bundle.text), (here.header("etag"), &here.text));
    // A DELETE at one is true at the other, at once.
    assert_eq!(other.delete(A).await.status, 204);
    assert_eq!(scene.kubeconfig(&id).await, None);
    assert_eq!(scene.post(B, json!({})).await.status, 409);
    scene.meanwhile(scene.revoked()).await;
    let ended = |answer: &Value| answer["revocations"][0]["state"] == "completed";
    assert!(ended(&other.get(&format!("{V1}/revocations")).await.body));
    assert_eq!(log_in(&kubeconfig).await, Err(401));
}

#[tokio::test]
async fn one_ends_the_revocation_that_another_has_left() {
    let (mut scene, other) = two().await;
    let (id, kubeconfig) = scene.issued("ada").await;
    scene.servers.iter().for_each(|server| server.behave(Mode::Slow));
    let asked_before = scene.servers[0].log().len();
    assert_eq!(scene.delete(B).await.status, 202);
    scene.servers[0].reached(move |log| log.len() > asked_before).await;
    // The API servers know the new bundle, and whoever asked them dies before they answer.
    scene.apply_bundle().await;
    scene.world.service.kill();
    scene.servers.iter().for_each(|server| server.behave(Mode::Normal));
    let status = format!("{B}/{id}/status");
    let revoked = other.until(&status, |status| status.body["state"]["value"] == "revoked").await;
    assert_eq!(revoked.status, 200);
    assert_eq!(log_in(&kubeconfig).await, Err(401));
    // And it serves on alone.
    assert_eq!(other.post(B, json!({"username": "ada"})).await.status, 202);
}

/// The lease is so long that nobody is found dead: what goes on was handed over.
#[tokio::test]
async fn one_that_is_told_to_stop_hands_over_what_it_is_at() {
    let (mut scene, other) = with_lease("10m").await;
    let (id, kubeconfig) = scene.issued("ada").await;
    // Given a revocation under way, and one more credential that somebody waits for elsewhere,
    scene.servers[1].behave(Mode::Down);
    assert_eq!(scene.delete(&format!("{B}/{id}")).await.status, 202);
    let next = scene.asked(json!({"username": "bob"})).await;
    let path = format!("{V1}/revocations");
    let asked = |seen: &Value| seen["revocations"][0]["endpoints"][1]["last_error"].is_string();
    scene.meanwhile(scene.until(&path, asked)).await;
    // when their owner is told to stop,
    scene.world.service.stop();
    scene.servers[1].behave(Mode::Normal);
    // then the other one ends both; an adapter now asks that one.
    let apply = async || {
        let request = other.anonymous(reqwest::Method::GET, &format!("{V1}/trust-bundle"));
        let bundle = request.bearer_auth("adapter-token").send().await.unwrap();
        let bundle = bundle.text().await.unwrap();
        scene.servers.iter().for_each(|server| server.load_bundle(&bundle));
    };
    for (id, wanted) in [(&id, "revoked"), (&next, "issued")] {
        let status = format!("{B}/{id}/status");
        while other.get(&status).await.body["state"]["value"] != wanted {
            apply().await;
        }
    }
    assert_eq!(log_in(&kubeconfig).await, Err(401));
    let handed_out = other.get(&format!("{B}/{next}")).await;
    let kubeconfig = handed_out.body["kubeconfig"].as_str().unwrap();
    assert_eq!(name_of(kubeconfig).await, format!("{WHO}bob"));
}
