//! `PATCH .../schedule`, and rotations that nobody asks for.

use std::time::Duration;

use hyperfleet_credentials::time::{Clock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Cluster, World, send};
use crate::support::service::Answer;

const HOUR: Duration = Duration::from_secs(3600);

async fn patch(cluster: &Cluster<'_>, body: Value) -> Answer {
    let path = cluster.at("schedule");
    send(cluster.world.service.request(Method::PATCH, &path).json(&body)).await
}

/// A time from now, whole seconds.
fn from_now(time: Duration) -> String {
    SystemClock.now().plus(time).whole_second().to_string()
}

#[tokio::test]
async fn a_cluster_has_its_own_schedule_and_goes_back_to_the_configured_one() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let configured = cluster.made().await.body["next_rotation_at"].clone();
    assert!(configured.is_string());
    let at = from_now(3 * HOUR);
    let set = patch(&cluster, json!({"next_rotation_at": at})).await;
    assert_eq!((set.status, &set.body["next_rotation_at"]), (200, &json!(at)), "{}", set.body);
    assert_eq!((&set.body["state"], set.body.get("pull_secret")), (&json!("active"), None));
    assert_eq!(cluster.get().await.body["next_rotation_at"], at);
    let off = patch(&cluster, json!({"enabled": false})).await;
    assert_eq!((off.status, &off.body["next_rotation_at"]), (200, &Value::Null));
    let on = patch(&cluster, json!({"enabled": null, "next_rotation_at": null})).await;
    assert_eq!(on.body["next_rotation_at"], configured);
    assert_eq!(patch(&cluster, json!({})).await.body["next_rotation_at"], configured);

    // Only in the night of the next leap day.
    let window = json!({"cron": "0 2 29 2 *", "length": "2h"});
    let windowed = patch(&cluster, json!({"window": window, "next_rotation_at": at})).await;
    let opens = windowed.body["next_rotation_at"].as_str().unwrap();
    assert!(opens.ends_with("-02-29T02:00:00Z"), "{opens}");
    let open = patch(&cluster, json!({"window": null})).await;
    assert_eq!(open.body["next_rotation_at"], at);
}

#[tokio::test]
async fn a_time_that_comes_starts_a_rotation_once() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let configured = cluster.made().await.body["next_rotation_at"].clone();
    let at = from_now(Duration::from_secs(2));
    assert_eq!(patch(&cluster, json!({"next_rotation_at": at})).await.status, 200);
    let rotations = cluster.at("rotations");
    let served = |answer: &Answer| answer.body["generation"] == 2;
    let rotated = world.service.until(&cluster.path, served).await;
    assert!(rotated.body["next_rotation_at"].as_str() > configured.as_str(), "spent");
    let list = world.service.get(&rotations).await;
    assert_eq!(list.body["pagination"]["total_count"], 1);
    assert_eq!(list.body["rotations"][0]["reason"], "scheduled");
}

#[tokio::test]
async fn what_is_no_schedule_is_said_so() {
    let world = World::start().await;
    let cluster = world.cluster("cls-1");
    let nothing = patch(&cluster, json!({"enabled": false})).await;
    assert_eq!(nothing.problem(), (404, "HYPERFLEET-NTF-001"));
    cluster.made().await;
    let night = json!({"cron": "0 2 * * *", "length": "2h"});
    for (body, field) in [
        (json!({"enabled": "yes"}), "enabled"),
        (json!({"enabld": true}), "enabld"),
        (json!({"next_rotation_at": "tomorrow"}), "next_rotation_at"),
        (json!({"next_rotation_at": "2020-01-01T00:00:00Z"}), "next_rotation_at"),
        (json!({"next_rotation_at": "9999-01-01T00:00:00Z"}), "next_rotation_at"),
        (json!({"enabled": false, "next_rotation_at": from_now(HOUR)}), "next_rotation_at"),
        (json!({"window": "night"}), "window"),
        (json!({"window": {"cron": "0 2 * * *"}}), "window.length"),
        (json!({"window": {"cron": "nightly", "length": "2h"}}), "window.cron"),
        (json!({"window": {"cron": "0 2 30 2 *", "length": "2h"}}), "window.cron"),
        (json!({"window": {"cron": "0 2 * * *", "length": "2 fortnights"}}), "window.length"),
        (json!({"window": {"cron": "0 2 * * *", "length": "8d"}}), "window.length"),
    ] {
        let refused = patch(&cluster, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
        assert_eq!(refused.body["errors"][0]["field"], field, "{body}: {}", refused.body);
    }
    for (role, status) in [("adapter", 403), ("viewer", 403), ("operator", 200), ("admin", 200)] {
        let body = json!({"window": night});
        let request = world.request_as(role, Method::PATCH, &cluster.at("schedule"));
        assert_eq!(send(request.json(&body)).await.status, status, "{role}");
    }
    let post = world.service.post(&cluster.at("schedule"), json!({})).await;
    assert_eq!((post.status, post.header("allow")), (405, "PATCH"));
    cluster.delete().await;
    assert_eq!(patch(&cluster, json!({})).await.status, 404);
}
