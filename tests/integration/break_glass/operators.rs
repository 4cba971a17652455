//! The trust bundle as adapters fetch it, and who may do what.

use reqwest::Method;
use serde_json::json;

use super::world::{A, B, Scene, V1, quick};
use crate::api::world::send;
use crate::support::fake_apiserver;

const BUNDLE: &str = "/v1/clusters/cls-1/break-glass/trust-bundle";

#[tokio::test]
async fn the_bundle_is_never_empty_and_changes_with_what_is_trusted() {
    let scene = Scene::unseen().await;
    // Before there was anything there is a placeholder that nobody holds a key of.
    let first = scene.world.get_as("adapter", BUNDLE).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(first.header("content-type"), "application/pem-certificate-chain");
    assert_eq!(first.text.matches("-----BEGIN CERTIFICATE-----").count(), 1);
    // An adapter that has it already gets nothing.
    let tag = first.header("etag").to_owned();
    let known = scene.world.request_as("adapter", Method::GET, BUNDLE);
    let known = send(known.header("If-None-Match", &tag)).await;
    assert_eq!((known.status, known.text.as_str(), known.header("etag")), (304, "", tag.as_str()));
    // With two credentials there are two authorities, and the placeholder is gone.
    scene.post(A, json!({"username": "ada"})).await;
    let one = scene.world.get_as("adapter", BUNDLE).await;
    assert_ne!(one.header("etag"), tag);
    scene.post(A, json!({"username": "bob"})).await;
    let two = scene.world.get_as("adapter", BUNDLE).await;
    assert_eq!(two.text.matches("-----BEGIN CERTIFICATE-----").count(), 2);
    assert!(!two.text.contains(first.text.trim()), "the placeholder is still there");
    let known = scene.world.request_as("adapter", Method::GET, BUNDLE);
    let known = send(known.header("If-None-Match", one.header("etag"))).await;
    assert_eq!((known.status, known.text.as_str()), (200, two.text.as_str()));
    // After a revocation it is not empty either.
    scene.delete(B).await;
    let last = scene.world.get_as("viewer", BUNDLE).await;
    assert_eq!(last.text.matches("-----BEGIN CERTIFICATE-----").count(), 1);
    assert!(!two.text.contains(last.text.trim()));
}

#[tokio::test]
async fn what_the_cluster_trusts_without_this_service_stays_in_the_bundle() {
    // Given a cluster with a client CA of its own,
    let own = fake_apiserver::start().ca.clone();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("client-ca.crt");
    std::fs::write(&file, &own).unwrap();
    let more = json!({"endpoints": [], "bundle_only": false, "base_client_ca_file": file});
    let scene = Scene::with(quick(), 1, more).await;
    scene.post(A, json!({"username": "ada"})).await;
    let bundle = scene.world.get_as("adapter", BUNDLE).await;
    assert!(bundle.text.starts_with(own.trim()), "{}", bundle.text);
    assert_eq!(bundle.text.matches("-----BEGIN CERTIFICATE-----").count(), 2);
    // when that changes, so does the bundle and its name,
    std::fs::write(&file, format!("{own}{}", fake_apiserver::start().ca.as_str())).unwrap();
    let changed = scene.world.get_as("adapter", BUNDLE).await;
    assert_eq!(changed.text.matches("-----BEGIN CERTIFICATE-----").count(), 3);
    assert_ne!(changed.header("etag"), bundle.header("etag"));
    // and when it is not known, there is no bundle: loading one would lock everybody else out.
    std::fs::remove_file(&file).unwrap();
    let none = scene.world.get_as("adapter", BUNDLE).await;
    assert_eq!(none.problem(), (409, "HYPERFLEET-CNF-003"), "{}", none.text);
    let scene = Scene::with(quick(), 1, json!({"endpoints": [], "bundle_only": false})).await;
    let none = scene.world.get_as("adapter", BUNDLE).await;
    assert_eq!(none.problem(), (409, "HYPERFLEET-CNF-003"), "{}", none.text);
    assert!(none.body["detail"].as_str().unwrap().contains("base_client_ca_file"), "{}", none.text);
}

#[tokio::test]
async fn without_the_ca_of_its_api_servers_no_kubeconfig_is_handed_out() {
    let scene = Scene::unseen().await;
    let made = scene.post(A, json!({"username": "ada"})).await;
    let one = format!("{A}/{}", made.body["id"].as_str().unwrap());
    let (file, aside) =
        (scene.world.directory.path().join("ca.pem"), scene.world.directory.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let not_now = scene.get(&one).await;
    assert_eq!((not_now.status, &not_now.body["kind"]), (503, &json!("Error")), "{}", not_now.text);
    assert!(not_now.body["reason"].as_str().unwrap().contains("ca_file"), "{}", not_now.text);
    assert_eq!(scene.audit("kubeconfig_read").await, [], "nobody has got anything");
    std::fs::rename(&aside, &file).unwrap();
    assert!(scene.get(&one).await.body["kubeconfig"].is_string());
    assert_eq!(scene.audit("kubeconfig_read").await.len(), 1);
}

#[tokio::test]
async fn each_role_may_do_what_the_table_says() {
    let scene = Scene::unseen().await;
    let id = scene.asked(json!({"username": "ada"})).await;
    scene.until(&format!("{B}/{id}/status"), |status| status["state"]["value"] == "issued").await;
    let world = &scene.world;
    let call = async |role: &str, method: &Method, path: &str| {
        send(world.request_as(role, method.clone(), path)).await.status
    };
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let none = "0".repeat(32);
    for (method, path, adapter, operator, viewer) in [
        (&get, B.to_owned(), 403, 200, 200),
        (&get, A.to_owned(), 403, 200, 200),
        (&get, format!("{B}/{id}"), 403, 200, 403),
        (&get, format!("{A}/{id}/status"), 403, 200, 403),
        (&post, B.to_owned(), 403, 202, 403),
        (&delete, format!("{B}/{none}"), 403, 404, 403),
        (&get, format!("{V1}/revocations"), 403, 200, 200),
        (&get, BUNDLE.to_owned(), 200, 200, 200),
        (&post, format!("{BUNDLE}/confirm"), 400, 400, 403),
        (&post, format!("{V1}/{none}/approve"), 403, 404, 403),
        (&post, format!("{V1}/{none}/deny"), 403, 404, 403),
        (&delete, B.to_owned(), 403, 202, 403),
    ] {
        for (role, status) in [("adapter", adapter), ("operator", operator), ("viewer", viewer)] {
            assert_eq!(call(role, method, &path).await, status, "{role} {method} {path}");
        }
    }
}

#[tokio::test]
async fn a_cluster_that_the_file_does_not_name_has_none() {
    let scene = Scene::unseen().await;
    for path in [A, B] {
        let path = path.replace("cls-1", "cls-2");
        for seen in
            [scene.get(&path).await, scene.post(&path, json!({})).await, scene.delete(&path).await]
        {
            assert_eq!((seen.status, seen.body["kind"].as_str()), (404, Some("Error")));
            assert_eq!(seen.header("content-type"), "application/json");
        }
    }
    for path in [BUNDLE.to_owned(), format!("{V1}/revocations")] {
        let seen = scene.get(&path.replace("cls-1", "cls-2")).await;
        assert_eq!(seen.problem(), (404, "HYPERFLEET-NTF-001"), "{}", seen.text);
    }
}
