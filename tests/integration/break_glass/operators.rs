//! The trust bundle as adapters fetch it, and who may do what.

use serde_json::json;

use super::world::{A, B, Scene, V1};
use crate::api::world::send;
use reqwest::Method;

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
