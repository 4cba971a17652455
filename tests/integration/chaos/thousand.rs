//! A thousand credentials whose slot is due in the same second.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::json;

use super::rounds;
use crate::kill::judge::{self, Rows};
use crate::kill::scene::{Database, Scene};
use crate::support::postgres;
use crate::support::service::Service;

/// In a long run; a short one has a quarter.
const MANY: usize = 1000;
const AT_ONCE: usize = 24;

fn clusters() -> usize {
    if rounds() > 1 { MANY } else { MANY / 4 }
}

async fn all_at_once(scene: Scene) {
    let clusters = clusters();
    // So much at once makes answers slow, and this is not about answers that are lost.
    scene.be_patient();
    // The deadline takes the place of a thousand heartbeats.
    let setup = scene
        .setup
        .clone()
        .env("HYPERFLEET_ROTATION_ON_DEADLINE", "revoke")
        .env("HYPERFLEET_ROTATION_GRACE_PERIOD", "1s")
        .env("HYPERFLEET_LIMITS_BURST", "off")
        .env("HYPERFLEET_LOG_LEVEL", "info");
    let mut service = Service::start(scene.directory.path(), setup).await;
    let made = |number: usize| {
        let path = format!("/v1/clusters/cls-{number}/pull-secrets");
        let service = &service;
        async move {
            let answer = service.post(&path, json!({})).await;
            assert!(matches!(answer.status, 200 | 202), "{}", answer.body);
        }
    };
    futures_util::stream::iter(0..clusters)
        .map(made)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
    let rows = Rows::open(&scene.database).await;
    until(&service, "all are made", async || rows.in_state("active").await == clusters).await;
    service.kill();
    let clause = "WHERE state = 'active'";
    match &scene.database {
        Database::Sqlite(file) => {
            use sqlx::{Connection as _, Executor as _};
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
            let mut shell = sqlx::sqlite::SqliteConnection::connect_with(&options).await.unwrap();
            let now = "CAST(unixepoch('subsec') * 1e6 AS INTEGER)";
            let sql = format!(
                "UPDATE pull_secrets SET schedule_next_at = {now}, next_rotation_at = {now}, \
                 due_at = {now} {clause}"
            );
            shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
            shell.close().await.unwrap();
        }
        Database::Postgres(_, url) => {
            let sql = format!(
                "UPDATE pull_secrets SET schedule_next_at = now(), next_rotation_at = now(), \
                 due_at = now() {clause}; \
                 UPDATE replicas SET seen_at = seen_at - interval '1 hour'"
            );
            postgres::execute(url, &sql).await;
        }
    }
    let began = Instant::now();
    service.restart().await;
    until(&service, "all are rotated", async || rows.slots_completed().await == clusters).await;
    println!("{clusters} rotations in {:?}", began.elapsed());
    until(&service, "all rest", async || rows.in_state("active").await == clusters).await;
    rows.assert_safe(&scene.registries).await;
    rows.assert_exact(&scene.registries).await;
    let told = rows.told().await;
    judge::assert_audit(&told);
    for registry in &scene.registries {
        judge::assert_announced(registry, &told);
        assert_eq!(registry.live().len(), clusters);
        assert!(registry.most_generations() <= 2);
    }
    let path = format!("/v1/clusters/cls-{}/pull-secrets", clusters / 2);
    let one = service.get(&path).await;
    assert_eq!(one.body["generation"], 2);
    assert!(scene.registries[0].works(&one.auth(scene.registries[0].host)).await);
}

async fn until(service: &Service, what: &str, there: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !there().await {
        assert!(Instant::now() < deadline, "in vain: {what}\n{}", service.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_are_due_at_once_on_sqlite() {
    all_at_once(Scene::quay()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_are_due_at_once_on_postgres() {
    all_at_once(Scene::quay().on_postgres(1).await).await;
}
