//! Who may.

use reqwest::Method;
use serde_json::{Value, json};

use super::world::{HOST, ROLES, World, send};

#[tokio::test]
async fn nobody_and_strangers_are_turned_away() {
    let world = World::start().await;
    for path in ["/v1/clusters/cls-1/pull-secrets", "/v1/pull-secrets", "/v1/attention"] {
        let nobody = send(world.service.anonymous(Method::GET, path)).await;
        assert_eq!(nobody.problem(), (401, "HYPERFLEET-AUT-001"), "{path}");
        assert!(nobody.header("www-authenticate").starts_with("Bearer"), "{path}");
        for value in ["Bearer wrong", "Bearer", "Basic YWRtaW46YWRtaW4=", "admin-token"] {
            let request = world.service.anonymous(Method::GET, path).header("Authorization", value);
            let stranger = send(request).await;
            assert_eq!(stranger.problem(), (401, "HYPERFLEET-AUT-002"), "{path} {value}");
            assert!(!stranger.text.contains("wrong"), "{}", stranger.text);
        }
    }
}

/// What a role gets for a request: 403, or whatever the state has to say.
async fn is_allowed(
    world: &World,
    role: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> bool {
    let request = world.request_as(role, method, path);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let answer = send(request).await;
    assert_ne!(answer.status, 401);
    if answer.status == 403 {
        assert_eq!(answer.problem().1, "HYPERFLEET-AUZ-001");
        assert!(answer.body["detail"].as_str().unwrap().contains(&format!("{role}-1")));
    }
    answer.status != 403
}

#[tokio::test]
async fn each_role_may_what_the_table_says() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let secrets = cluster.path.clone();
    let rotation = cluster.at("rotations/rot-01930000-0000-7000-8000-0000000000ab");
    let by = |verb: &str| format!("{rotation}/{verb}");
    let confirm = || Some(json!({"generation": 1, "consumer": "a"}));
    let holders = [true, true, true, false];
    let operators = [false, true, true, false];
    let everybody = [true; 4];
    let table: Vec<(Method, String, Option<Value>, [bool; 4])> = vec![
        (Method::POST, secrets.clone(), None, holders),
        (Method::GET, secrets.clone(), None, everybody),
        (Method::GET, cluster.at("rotations"), None, everybody),
        (Method::GET, rotation.clone(), None, everybody),
        (Method::POST, cluster.at("rotations"), None, holders),
        (Method::POST, cluster.at("confirm"), confirm(), holders),
        (Method::POST, by("confirm"), confirm(), holders),
        (Method::POST, by("complete"), None, operators),
        (Method::POST, by("cancel"), None, operators),
        (Method::POST, by("rollback"), None, operators),
        (Method::POST, by("extend"), Some(json!({"by": "1h"})), operators),
        (Method::POST, cluster.at("rotations"), Some(json!({"reason": "compromise"})), operators),
        (
            Method::POST,
            cluster.at("rotations"),
            Some(json!({"force_immediate": true})),
            [false, false, true, false],
        ),
        (Method::GET, "/v1/pull-secrets".to_owned(), None, everybody),
        (Method::GET, "/v1/rotations".to_owned(), None, everybody),
        (Method::GET, "/v1/attention".to_owned(), None, [false, true, true, true]),
        (Method::DELETE, secrets, None, holders),
    ];
    for (method, path, body, expected) in table {
        for (role, expected) in ROLES.iter().zip(expected) {
            let allowed = is_allowed(&world, role, method.clone(), &path, body.clone()).await;
            assert_eq!(allowed, expected, "{role} {method} {path} {body:?}");
        }
    }
}

#[tokio::test]
async fn a_viewer_sees_everything_but_the_secret() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let auth = cluster.made().await.auth(HOST);
    for query in ["", "?include_metadata=true"] {
        let path = format!("{}{query}", cluster.path);
        let seen = world.get_as("viewer", &path).await;
        assert_eq!((seen.status, &seen.body["state"]), (200, &json!("active")));
        assert!(seen.body.get("pull_secret").is_none() && !seen.text.contains(&auth));
        assert_eq!(seen.body.get("credentials").is_some(), !query.is_empty());
        let full = world.get_as("adapter", &path).await;
        assert_eq!(full.auth(HOST), auth);
        assert_ne!(full.header("etag"), seen.header("etag"));
    }
    let made = world.post_as("adapter", &cluster.path, json!({})).await;
    assert_eq!(made.auth(HOST), auth);
}

#[tokio::test]
async fn a_refused_rotation_leaves_no_trace() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    for (role, body) in [
        ("adapter", json!({"reason": "compromise"})),
        ("operator", json!({"reason": "compromise", "force_immediate": true})),
        ("operator", json!({"force_immediate": true, "dry_run": true})),
        ("viewer", json!({"dry_run": true})),
    ] {
        let refused = world.post_as(role, &cluster.at("rotations"), body.clone()).await;
        assert_eq!(refused.problem(), (403, "HYPERFLEET-AUZ-001"), "{role} {body}");
    }
    let list = world.service.get(&cluster.at("rotations")).await;
    assert_eq!(list.body["pagination"]["total_count"], 0);
}
