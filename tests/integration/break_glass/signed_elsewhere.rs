//! With `signer: kubernetes_csr`: HyperShift's operator signs, and revokes all or nothing.

use std::fs;

use serde_json::{Value, json};

use super::world::{A, B, Scene, V1, WHO, log_in, name_of, quick};
use crate::support::fake_management::{self, FakeManagement, Kind, Signing};
use crate::support::service::Setup;

const NAMESPACE: &str = "clusters-cls-1";

pub struct Elsewhere {
    pub scene: Scene,
    pub management: FakeManagement,
    _directory: tempfile::TempDir,
}

pub async fn start_with(setup: Setup) -> Elsewhere {
    let management = fake_management::start(NAMESPACE);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("management.yaml");
    fs::write(&kubeconfig, management.kubeconfig()).unwrap();
    let setup = setup
        .env("HYPERFLEET_BREAK_GLASS_SIGNER", "kubernetes_csr")
        .env("KUBECONFIG", kubeconfig.to_str().unwrap());
    let scene = Scene::with(setup, 1, json!({"namespace": NAMESPACE})).await;
    scene.servers[0].load_bundle(&management.authorities());
    Elsewhere { scene, management, _directory: directory }
}

async fn start() -> Elsewhere {
    start_with(quick()).await
}

#[tokio::test]
async fn the_operator_signs_and_its_rotation_revokes_all() {
    let Elsewhere { scene, management, .. } = start().await;
    // Given two credentials that work,
    let mut kubeconfigs = Vec::new();
    for username in ["ada", "bob"] {
        let made = scene.post(A, json!({"username": username})).await;
        assert_eq!((made.status, &made.body["status"]), (201, &json!("issued")), "{}", made.text);
        let id = made.body["id"].as_str().unwrap().to_owned();
        let kubeconfig = scene.kubeconfig(&id).await.unwrap();
        assert_eq!(name_of(&kubeconfig).await, format!("{WHO}{username}"));
        kubeconfigs.push((id, kubeconfig));
    }
    // one alone cannot be revoked,
    let (id, kubeconfig) = &kubeconfigs[0];
    for path in [A, B] {
        let refused = scene.delete(&format!("{path}/{id}")).await;
        assert_eq!(
            (refused.status, refused.header("allow")),
            (405, "GET, HEAD"),
            "{}",
            refused.text
        );
        assert_eq!(refused.body["kind"], "Error");
    }
    assert_eq!(name_of(kubeconfig).await, format!("{WHO}ada"));
    // and when all are, the operator is told once, however often somebody asks.
    assert_eq!(scene.delete(B).await.status, 202);
    assert_eq!(scene.delete(A).await.status, 204);
    let path = {
        let id = scene.revocation().await["revocation_id"].as_str().unwrap().to_owned();
        format!("{V1}/revocations/{id}")
    };
    let rotating = |seen: &Value| seen["state"] == "rotating" && seen["message"] != "";
    let seen = scene.until(&path, rotating).await;
    assert_eq!(seen["signer"], "kubernetes_csr");
    assert_eq!(management.applied(Kind::Revocations), 1);
    assert_eq!(scene.state(id).await, "revoking");
    assert_eq!(scene.get(&format!("{A}/{id}")).await.body["status"], "awaiting_revocation");
    let refused = scene.post(B, json!({})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (409, "10"), "{}", refused.text);
    // When it has done its steps and the API server knows the new authority only,
    for _ in 0..5 {
        management.step();
    }
    scene.servers[0].load_bundle(&management.authorities());
    let ended = scene.until(&path, |seen| !seen["ended_at"].is_null()).await;
    // then its word and the API server's end the revocation.
    assert_eq!(
        (&ended["state"], &ended["endpoints"][0]["rejected"]),
        (&json!("completed"), &json!(true))
    );
    for (id, kubeconfig) in &kubeconfigs {
        assert_eq!(
            (scene.state(id).await.as_str(), log_in(kubeconfig).await),
            ("revoked", Err(401))
        );
    }
    // The control that proved it is nobody's: no list shows it.
    let listed = scene.get(B).await.body;
    assert_eq!(listed["total"], 2, "{listed}");
    let next = scene.post(A, json!({"username": "ada"})).await;
    assert_eq!(next.body["status"], "issued", "{}", next.text);
    let next = scene.kubeconfig(next.body["id"].as_str().unwrap()).await.unwrap();
    assert_eq!(name_of(&next).await, format!("{WHO}ada"));
}

#[tokio::test]
async fn what_the_operator_refuses_is_denied_and_stays_visible() {
    let Elsewhere { scene, management, .. } = start().await;
    management.sign(Signing::Silent);
    let id = scene.asked(json!({"username": "ada"})).await;
    scene.until(&format!("{B}/{id}"), |_| management.applied(Kind::Requests) == 1).await;
    management.deny();
    let denied = scene.until(&format!("{B}/{id}"), |one| one["status"] == "denied").await;
    assert_ne!(denied["status_details"]["message"], "");
    let told = scene.get("/v1/attention?kind=denied").await.body;
    assert_eq!(told["items"][0]["credential_id"], json!(id), "{told}");
    assert_eq!(scene.get(&format!("{A}/{id}")).await.body["status"], "failed");
    assert_eq!(scene.kubeconfig(&id).await, None);
}

#[tokio::test]
async fn what_nobody_signs_fails_in_the_end() {
    let setup = quick().env("HYPERFLEET_BREAK_GLASS_ISSUE_DEADLINE", "2s");
    let Elsewhere { scene, management, .. } = start_with(setup).await;
    management.sign(Signing::Silent);
    let id = scene.asked(json!({"username": "ada"})).await;
    let failed = scene.until(&format!("{B}/{id}"), |one| one["status"] == "failed").await;
    let message = failed["status_details"]["message"].as_str().unwrap();
    assert!(message.starts_with("not issued in time"), "{message}");
    let told = scene.get("/v1/attention?kind=failed").await.body;
    assert_eq!(told["items"][0]["credential_id"], json!(id), "{told}");
    assert_eq!(told["items"][0]["last_error"], json!(message), "{told}");
    // Its name is free again, and the next one works.
    management.sign(Signing::Normal);
    let next = scene.post(A, json!({"username": "ada"})).await;
    assert_eq!(next.body["status"], "issued", "{}", next.text);
}
