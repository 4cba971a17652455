//! The audit from the outside: who may read it, what it says, and that it can be verified.

use std::fs;
use std::path::Path;

use hyperfleet_credentials::crypto::tokens::TokenHash;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection};

use crate::cli::{run, told};
use crate::support::service::{Answer, Service, Setup};

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const ROLES: [&str; 4] = ["adapter", "operator", "admin", "viewer"];

/// The name of a role is its token.
fn make_callers(directory: &Path) {
    fs::create_dir_all(directory.join("data")).unwrap();
    let line = |role: &&str| {
        let hash = TokenHash::of(&SecretString::from(*role)).to_hex();
        format!("the-{role} {role} sha256:{hash}\n")
    };
    let lines: String = ROLES.iter().map(line).collect();
    let file = directory.join("data/tokens");
    fs::write(&file, lines).unwrap();
    fs::write(directory.join("data/admin.token"), "admin").unwrap();
    for name in ["data/tokens", "data/admin.token"] {
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(directory.join(name), mode).unwrap();
    }
}

async fn get_as(service: &Service, role: &str, path: &str) -> Answer {
    let request = service.anonymous(Method::GET, path).bearer_auth(role);
    Answer::of(request.header("X-Request-Id", format!("by-{role}")).send().await.unwrap()).await
}

fn events(answer: &Answer) -> &Vec<Value> {
    answer.body["audit_events"].as_array().unwrap_or_else(|| panic!("{}", answer.body))
}

/// Exit code and what `audit verify` says.
fn verified(directory: &Path) -> (i32, Value, String) {
    let output = run(directory, &["audit", "verify", "--dev", "-o", "json"], &[]);
    let (code, out, err) = told(&output);
    (code, serde_json::from_str(&out).unwrap_or(Value::String(out)), err)
}

#[tokio::test]
async fn whoever_gets_a_pull_secret_is_in_the_audit() {
    let directory = tempfile::tempdir().unwrap();
    make_callers(directory.path());
    let service = Service::start(directory.path(), Setup::quick()).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    for role in ROLES {
        let seen = get_as(&service, role, PATH).await;
        assert_eq!(seen.status, 200);
        assert_eq!(seen.body["pull_secret"].is_object(), role != "viewer", "{}", seen.body);
        // What the client has already is not handed out again.
        let request = service.anonymous(Method::GET, PATH).bearer_auth(role);
        let known = request.header("If-None-Match", seen.header("etag")).send().await.unwrap();
        assert_eq!(known.status(), 304);
    }
    let reads = "/v1/audit-events?action=pull_secret_read";
    let four = |answer: &Answer| events(answer).len() == 4;
    let told = service.until(reads, four).await;
    let who: Vec<_> = events(&told).iter().rev().map(|it| it["actor"].as_str().unwrap()).collect();
    assert_eq!(who, ["the-admin", "the-adapter", "the-operator", "the-admin"]);
    let last = &events(&told)[0];
    assert_eq!(
        (&last["cluster_id"], &last["generation"], &last["request_id"]),
        (&json!("cls-1"), &json!(1), &json!("by-admin"))
    );
    assert!(last["stream"].as_str().unwrap().starts_with("reads/"), "{last}");

    for role in ROLES {
        let seen = get_as(&service, role, reads).await;
        let allowed = ["operator", "admin"].contains(&role);
        assert_eq!(seen.status, if allowed { 200 } else { 403 }, "{role}: {}", seen.body);
    }
}

#[tokio::test]
async fn the_audit_is_filtered_and_paged() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path(), Setup::quick()).await;
    for cluster in ["cls-1", "cls-2"] {
        let path = format!("/v1/clusters/{cluster}/pull-secrets");
        let request = service.request(Method::POST, &path).header("X-Reason", "a new cluster");
        assert_eq!(request.json(&json!({})).send().await.unwrap().status(), 200);
    }
    let accepted = service.get("/v1/audit-events?cluster_id=cls-2&action=issue_accepted").await;
    let [event] = events(&accepted).as_slice() else { panic!("{}", accepted.body) };
    assert_eq!((&event["actor"], &event["reason"]), (&json!("admin"), &json!("a new cluster")));
    assert_eq!(event["hash"].as_str().unwrap().len(), 64);
    assert_eq!(accepted.body["pagination"], json!({"next_cursor": null, "has_more": false}));

    let mut path = "/v1/audit-events?cluster_id=cls-1&actor=service:registry&limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = service.get(&path).await;
        seen.extend(events(&page).iter().map(|it| it["event_id"].as_i64().unwrap()));
        let Some(next) = page.body["pagination"]["next_cursor"].as_str() else { break };
        path = format!(
            "/v1/audit-events?cluster_id=cls-1&actor=service:registry&limit=2&cursor={next}"
        );
    }
    assert!(seen.len() > 2 && seen.windows(2).all(|pair| pair[0] > pair[1]), "{seen:?}");

    let later = service.get("/v1/audit-events?since=2199-01-01T00:00:00Z").await;
    assert!(events(&later).is_empty());
    for bad in ["since=yesterday", "limit=0", "cursor=x", "cluster_id=No_Such"] {
        let refused = service.get(&format!("/v1/audit-events?{bad}")).await;
        assert_eq!(refused.problem(), (400, "HYPERFLEET-VAL-004"), "{bad}");
    }
}

#[tokio::test]
async fn the_audit_is_verified_beside_the_server_and_after_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = Service::start(directory.path(), Setup::quick()).await;
    assert_eq!(service.post(PATH, json!({})).await.status, 200);
    let (code, found, err) = verified(directory.path());
    assert_eq!((code, &found["faults"]), (0, &json!([])), "{found} {err}");
    assert!(found["rows"].as_u64().unwrap() > 3, "{found}");

    // Nothing of what was read is lost when it ends, and its last words name the heads.
    assert_eq!(service.get(PATH).await.status, 200);
    service.stop();
    let anchors: Vec<Value> = service
        .log()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|entry| entry["message"] == "audit checkpoint")
        .collect();
    let of = |start: &str| {
        let here = |it: &&Value| it["stream"].as_str().is_some_and(|name| name.starts_with(start));
        anchors.iter().rfind(here).unwrap_or_else(|| panic!("{anchors:?}")).clone()
    };
    assert_eq!(of("reads/")["sequence"], 2);
    let anchor = of("pull-secret/cls-1");
    let (code, found, err) = verified(directory.path());
    assert_eq!((code, &found["streams"], &found["faults"]), (0, &json!(2), &json!([])), "{err}");
    let (code, out, _) = told(&run(directory.path(), &["audit", "verify", "--dev"], &[]));
    assert!(code == 0 && out.contains("every row is as it was written"), "{out}");

    let path = directory.path().join("data/credentials.db");
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let head: (i64, Vec<u8>) = sqlx::query_as(
        "SELECT sequence, hash FROM audit_events WHERE stream = 'pull-secret/cls-1' \
         ORDER BY sequence DESC LIMIT 1",
    )
    .fetch_one(&mut db)
    .await
    .unwrap();
    assert_eq!(anchor["sequence"].as_i64(), Some(head.0));
    assert_eq!(anchor["hash"].as_str(), Some(data_encoding::HEXLOWER.encode(&head.1).as_str()));
    sqlx::query("UPDATE audit_events SET actor = 'nobody' WHERE stream = 'pull-secret/cls-1' AND sequence = 2")
        .execute(&mut db)
        .await
        .unwrap();
    db.close().await.unwrap();
    let (code, found, err) = verified(directory.path());
    assert_eq!((code, &found["faults"][0]["sequence"]), (1, &json!(2)), "{found}");
    assert!(err.contains("the audit is not as it was written: 1 stream is wrong"), "{err}");
    let (code, out, _) = told(&run(directory.path(), &["audit", "verify", "--dev"], &[]));
    assert!(code == 1 && out.contains("pull-secret/cls-1 row 2 (event "), "{out}");
}

#[test]
fn without_its_key_the_audit_cannot_be_written_or_verified() {
    let directory = tempfile::tempdir().unwrap();
    let env =
        [("HYPERFLEET_ENCRYPTION_KEYS_DIR", "keys"), ("HYPERFLEET_DB_URL", "sqlite://audit.db")];
    let (code, _, err) = told(&run(directory.path(), &["audit", "verify"], &env));
    assert!(code == 1 && err.contains("keys/audit.key"), "{err}");
    told(&run(directory.path(), &["keys", "generate", "--id", "a"], &env));
    let (code, _, err) = told(&run(directory.path(), &["audit", "verify"], &env));
    assert!(code == 1 && err.contains("the database is unavailable"), "{err}");
    let (code, _, _) = told(&run(directory.path(), &["audit", "verify", "-o", "xml"], &env));
    assert_eq!(code, 2);
}
