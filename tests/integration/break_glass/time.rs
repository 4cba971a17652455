//! Ends that come while nobody looks, and clocks that jump.

use std::time::Duration;

use hyperfleet_credentials::time::{Clock as _, SystemClock};
use serde_json::{Value, json};

use super::signed_elsewhere::{self, Elsewhere};
use super::world::{A, B, Scene, V1, WHO, log_in, name_of, quick};
use crate::support::clock::{HOUR, JUMPED, WallClock, YEAR};
use crate::support::fake_apiserver::Mode;
use crate::support::fake_management::{Kind, Signing};
use crate::support::postgres;
use crate::support::service::Setup;

const MANY: usize = 30;

async fn after_a_standstill(clock: WallClock, setup: Setup, database: Option<&str>) {
    // Given many credentials that work, and one that ends later,
    let mut scene = Scene::with(setup, 2, json!({})).await;
    let end =
        |hours: u32| SystemClock.now().plus(hours * Duration::from_secs(3600)).to_seconds_text();
    for number in 0..MANY {
        let username = format!("user-{number}");
        scene.asked(json!({"username": username, "expiration_timestamp": end(2)})).await;
    }
    let last = scene.asked(json!({"username": "late", "expiration_timestamp": end(20)})).await;
    let in_state = |state: &str, list: &Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.filter(|item| item["status"] == state).count()
    };
    let all = format!("{B}?size=-1");
    scene.meanwhile(scene.until(&all, |list| in_state("issued", list) == MANY + 1)).await;
    let listed = scene.get(&all).await.body;
    let first = listed["items"][0]["id"].as_str().unwrap();
    let kubeconfig = scene.kubeconfig(first).await.unwrap();
    assert!(log_in(&kubeconfig).await.is_ok());
    // when the service stands still until after their end,
    scene.world.service.kill();
    clock.is_off_by(3 * HOUR);
    if let Some(url) = database {
        let old = "UPDATE replicas SET seen_at = seen_at - interval '1 hour'";
        postgres::execute(url, old).await;
    }
    scene.world.service.restart().await;
    // then they end as soon as it is back, and nothing of them is handed out or trusted any more.
    let seen = scene.until(&all, |list| in_state("expired", list) == MANY).await;
    assert_eq!((in_state("issued", &seen), &seen["total"]), (1, &json!(MANY + 1)));
    for item in seen["items"].as_array().unwrap() {
        let id = item["id"].as_str().unwrap();
        assert_eq!(scene.kubeconfig(id).await.is_some(), id == last, "{item}");
    }
    scene.apply_bundle().await;
    assert_eq!(log_in(&kubeconfig).await, Err(401));
    let kept = scene.kubeconfig(&last).await.unwrap();
    assert_eq!(name_of(&kept).await, format!("{WHO}late"));
    // Nothing was issued a second time, nothing ended twice.
    assert_eq!(scene.audit("credential_issued").await.len(), MANY + 1);
    assert_eq!(scene.audit("credential_expired").await.len(), MANY);
    // Their names are free again.
    assert_eq!(scene.delete(B).await.status, 202);
    scene.meanwhile(scene.revoked()).await;
    assert_eq!(in_state("expired", &scene.get(&all).await.body), MANY, "expired ones stay so");
}

#[tokio::test]
async fn what_ended_while_the_service_stood_still_is_expired_when_it_is_back() {
    let clock = WallClock::right();
    let setup = clock.of(quick());
    after_a_standstill(clock, setup, None).await;
}

#[tokio::test]
async fn the_same_on_postgres() {
    let (clock, url) = (WallClock::right(), postgres::shared().database(None).await);
    let setup = clock.of(quick()).env("HYPERFLEET_DB_URL", &url);
    after_a_standstill(clock, setup, Some(&url)).await;
}

#[tokio::test]
async fn a_clock_that_jumps_issues_nothing_twice() {
    // Given one credential that works, and one that the operator is silent about,
    let clock = WallClock::right();
    let setup = clock.of(quick()).env("HYPERFLEET_BREAK_GLASS_ISSUE_DEADLINE", "5m");
    let Elsewhere { scene, management, .. } = signed_elsewhere::start_with(setup).await;
    let made = scene.post(A, json!({"username": "ada"})).await;
    assert_eq!(made.body["status"], "issued", "{}", made.text);
    let ada = made.body["id"].as_str().unwrap().to_owned();
    management.sign(Signing::Silent);
    let bob = scene.asked(json!({"username": "bob"})).await;
    let asked = |_: &Value| management.applied(Kind::Approvals) == 2;
    scene.until(&format!("{B}/{bob}"), asked).await;
    // when the clock jumps a year ahead and another one is asked for,
    clock.is_off_by(YEAR);
    scene.world.service.logged(JUMPED).await;
    let eve = scene.asked(json!({"username": "eve"})).await;
    let asked = |_: &Value| management.applied(Kind::Approvals) == 3;
    scene.until(&format!("{B}/{eve}"), asked).await;
    // then nothing ends by the wrong time;
    assert_eq!(scene.state(&ada).await, "issued");
    assert_eq!(scene.state(&bob).await, "issuing");
    // and when it jumps back and the operator signs, everybody has one certificate.
    clock.is_off_by(0);
    management.sign(Signing::Normal);
    management.reconcile();
    for (id, name) in [(&ada, "ada"), (&bob, "bob"), (&eve, "eve")] {
        let issued = |status: &Value| status["state"]["value"] == "issued";
        scene.until(&format!("{B}/{id}/status"), issued).await;
        let kubeconfig = scene.kubeconfig(id).await.unwrap();
        assert_eq!(name_of(&kubeconfig).await, format!("{WHO}{name}"));
    }
    assert_eq!(management.applied(Kind::Requests), 3);
    assert_eq!(management.applied(Kind::Approvals), 3);
    assert_eq!(management.signed().len(), 3);
    assert_eq!(scene.audit("credential_issued").await.len(), 3);
}

#[tokio::test]
async fn a_revocation_of_a_year_ahead_is_proved_in_this_one() {
    // Given a revocation that began while the clock was a year ahead, at API servers that were down,
    let clock = WallClock::right();
    let scene = Scene::with(clock.of(quick()), 2, json!({})).await;
    let (id, kubeconfig) = scene.issued("ada").await;
    clock.is_off_by(YEAR);
    scene.world.service.logged(JUMPED).await;
    scene.servers.iter().for_each(|server| server.behave(Mode::Down));
    assert_eq!(scene.delete(B).await.status, 202);
    let running = scene.revocation().await["revocation_id"].as_str().unwrap().to_owned();
    let tried = |seen: &Value| seen["endpoints"][0]["last_error"].is_string();
    scene.until(&format!("{V1}/revocations/{running}"), tried).await;
    // when the clock is right again and they are back,
    clock.is_off_by(0);
    scene.servers.iter().for_each(|server| server.behave(Mode::Normal));
    // then it ends, by their word.
    scene.meanwhile(scene.revoked()).await;
    assert_eq!((scene.state(&id).await.as_str(), log_in(&kubeconfig).await), ("revoked", Err(401)));
}
