//! `break_glass.approval: required`: a second person decides, and what was refused stays visible.

use serde_json::{Value, json};

use super::world::{A, B, Scene, V1, WHO, name_of, quick};
use crate::support::service::Answer;

async fn scene() -> Scene {
    let setup = quick().env("HYPERFLEET_BREAK_GLASS_APPROVAL", "required");
    Scene::with(setup, 1, json!({})).await
}

async fn decide(scene: &Scene, role: &str, id: &str, verb: &str, body: Value) -> Answer {
    scene.world.post_as(role, &format!("{V1}/{id}/{verb}"), body).await
}

#[tokio::test]
async fn a_second_person_approves_and_then_it_is_issued() {
    let scene = scene().await;
    // Given a request: nobody waits for a person, on neither surface.
    let asked = scene.post(A, json!({"username": "ada", "reason": "disk full"})).await;
    assert_eq!((asked.status, &asked.body["status"]), (201, &json!("created")), "{}", asked.text);
    let message = asked.body["status_details"]["message"].as_str().unwrap();
    assert!(message.contains("approve"), "{message}");
    let id = asked.body["id"].as_str().unwrap().to_owned();
    assert_eq!(scene.get(&format!("{A}/{id}?wait=60s")).await.body["status"], "created");
    // Whoever asked for it cannot decide, nor can somebody who only watches.
    for verb in ["approve", "deny"] {
        let own = decide(&scene, "operator", &id, verb, json!({})).await;
        assert_eq!(own.problem(), (403, "HYPERFLEET-AUZ-001"), "{}", own.text);
        for role in ["viewer", "adapter"] {
            assert_eq!(decide(&scene, role, &id, verb, json!({})).await.status, 403);
        }
    }
    assert_eq!(scene.state(&id).await, "created");
    // When somebody else agrees, he sees whose it is and why,
    let approved = decide(&scene, "admin", &id, "approve", json!({"reason": "checked"})).await;
    assert_eq!(approved.status, 200, "{}", approved.text);
    assert_eq!(approved.body["requested_by"], "operator-1");
    assert_eq!(
        (&approved.body["reason"], &approved.body["decided_by"]),
        (&json!("disk full"), &json!("admin-1"))
    );
    assert_eq!(approved.body.get("kubeconfig"), None);
    // and it is issued, to the one who asked.
    let status = format!("{B}/{id}/status");
    scene.meanwhile(scene.until(&status, |status| status["state"]["value"] == "issued")).await;
    let kubeconfig = scene.kubeconfig(&id).await.unwrap();
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    let events = scene.audit("credential_approved").await;
    assert_eq!(events, [("admin-1".to_owned(), Some("checked".to_owned()))]);
    // It is decided.
    for verb in ["approve", "deny"] {
        let late = decide(&scene, "admin", &id, verb, json!({})).await;
        assert_eq!(late.problem(), (409, "HYPERFLEET-CNF-003"), "{}", late.text);
    }
}

#[tokio::test]
async fn what_is_denied_stays_visible_and_is_never_issued() {
    let scene = scene().await;
    let id = scene.asked(json!({"username": "ada"})).await;
    let denied = decide(&scene, "admin", &id, "deny", json!({"reason": "not on Friday"})).await;
    assert_eq!((denied.status, &denied.body["status"]), (200, &json!("denied")), "{}", denied.text);
    let (on_a, on_b) =
        (scene.get(&format!("{A}/{id}")).await, scene.get(&format!("{B}/{id}")).await);
    // The older surface's clients do not know the word.
    assert_eq!((&on_a.body["status"], &on_b.body["status"]), (&json!("failed"), &json!("denied")));
    let message = on_b.body["status_details"]["message"].as_str().unwrap();
    assert!(message.contains("not on Friday"), "{message}");
    assert_eq!(on_b.body.get("kubeconfig"), None);
    for (path, word) in [(A, "failed"), (B, "denied")] {
        let listed = scene.get(&format!("{path}?search=status%3D%27{word}%27")).await;
        assert_eq!(
            (&listed.body["total"], &listed.body["items"][0]["id"]),
            (&json!(1), &json!(id))
        );
    }
    let late = decide(&scene, "admin", &id, "approve", json!({})).await;
    assert_eq!(late.problem(), (409, "HYPERFLEET-CNF-003"), "{}", late.text);
    // Its name is free again.
    scene.asked(json!({"username": "ada"})).await;
    // No API server ever heard of either.
    assert_eq!(scene.servers[0].log(), []);
}

#[tokio::test]
async fn nobody_has_to_agree_where_nobody_was_asked() {
    let scene = Scene::start().await;
    let id = scene.asked(json!({})).await;
    let needless = decide(&scene, "admin", &id, "approve", json!({})).await;
    assert_eq!(needless.problem(), (409, "HYPERFLEET-CNF-003"), "{}", needless.text);
    let none = "0".repeat(32);
    let unknown = decide(&scene, "admin", &none, "approve", json!({})).await;
    assert_eq!(unknown.problem(), (404, "HYPERFLEET-NTF-001"), "{}", unknown.text);
}
