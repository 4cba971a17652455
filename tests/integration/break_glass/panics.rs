//! The program's own faults: one is survived, many stop the cluster's break-glass and nothing else.

use serde_json::{Value, json};

use super::world::{A, B, Scene, WHO, name_of, quick};

fn panicking(rule: &str) -> crate::support::service::Setup {
    quick().env("HYPERFLEET_FAILPOINTS", rule)
}

/// A credential on its way. Where the request itself meets the fault, nothing is stored, and that is said.
async fn asked(scene: &Scene, rule: &str) {
    loop {
        let asked = scene.post(B, json!({"username": "ada"})).await;
        match asked.status {
            202 => return,
            503 => assert_ne!(asked.header("retry-after"), "", "{rule}: {}", asked.text),
            _ => panic!("{rule}: {}", asked.text),
        }
    }
}

#[tokio::test]
async fn a_panic_while_issuing_is_survived() {
    for rule in [
        "before_commit:submit=panic@1",
        "after_call:submit=panic@1",
        "before_outcome_commit:probe=panic@1",
    ] {
        let scene = Scene::with(panicking(rule), 2, json!({})).await;
        asked(&scene, rule).await;
        let listed = |list: &Value| list["items"][0]["status"] == "issued";
        let list = scene.meanwhile(scene.until(B, listed)).await;
        assert_eq!(list["total"], 1, "{rule}");
        let id = list["items"][0]["id"].as_str().unwrap();
        let kubeconfig = scene.kubeconfig(id).await.unwrap();
        assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"), "{rule}");
        let log = scene.world.service.whole_log();
        assert!(log.contains("a failure point says so"), "{rule}: it was there");
    }
}

#[tokio::test]
async fn what_keeps_failing_is_quarantined_told_and_harms_nobody_else() {
    let rule = "before_outcome_commit:submit=panic";
    let scene = Scene::with(panicking(rule), 2, json!({})).await;
    asked(&scene, rule).await;
    let found = |list: &Value| list["items"][0]["kind"] == "quarantined";
    let told = scene.until("/v1/attention?kind=quarantined", found).await;
    let item = &told["items"][0];
    assert_eq!((&item["cluster_id"], &item["rotation_id"]), (&json!("cls-1"), &Value::Null));
    assert!(item["next_attempt_at"].as_str() > item["since"].as_str(), "one new try: {item}");
    // On the OCM surfaces as well, in their words.
    for path in [A, B] {
        let refused = scene.post(path, json!({"username": "bob"})).await;
        assert_eq!(refused.status, 503, "{}", refused.text);
        assert_eq!(refused.header("content-type"), "application/json");
        assert_eq!((&refused.body["kind"], &refused.body["id"]), (&json!("Error"), &json!("503")));
        assert!(refused.header("retry-after").parse::<u64>().unwrap() > 3000);
        assert_eq!(scene.get(path).await.status, 200, "reads go on");
    }
    // The pull secrets, of this cluster and of others, know nothing of it.
    for cluster in ["cls-1", "cls-2"] {
        scene.world.cluster(cluster).made().await;
    }
}
