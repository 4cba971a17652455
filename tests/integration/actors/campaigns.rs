//! Campaigns over a scripted registry: waves, limits, the stop, and drivers that die.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use hyperfleet_credentials::actors::audit::Caller;
use hyperfleet_credentials::actors::campaigns::audit;
use hyperfleet_credentials::ids::{CampaignId, RotationId};
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Gate, Verb, When};
use hyperfleet_credentials::state::campaign::{CampaignState, MemberStatus, Progress, Rules};
use hyperfleet_credentials::state::pull_secret::{Command, RotationReason, StateName};
use hyperfleet_credentials::store::{
    Campaign, CampaignMember, NewCampaign, RotationFilter, Selector,
};
use hyperfleet_credentials::time::{Clock as _, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::world::World;
use crate::api::refusals::{ask_as, until};

const CAMPAIGNS: &str = "/v1/rotation-campaigns";

/// Starts a campaign and answers its path.
pub async fn start(world: &World, body: &Value) -> String {
    let request = TestRequest::with_uri(CAMPAIGNS).method(Method::POST).set_json(body);
    let (status, _, made) = ask_as(world, "operator", request).await;
    assert_eq!(status, 201, "{made}");
    format!("{CAMPAIGNS}/{}", made["campaign_id"].as_str().unwrap())
}

pub async fn get(world: &World, path: &str) -> Value {
    ask_as(world, "operator", TestRequest::with_uri(path)).await.2
}

async fn until_state(world: &World, path: &str, state: &str) -> Value {
    until(world, path, |campaign| campaign["state"] == state).await
}

pub async fn members(world: &World, path: &str) -> Vec<CampaignMember> {
    let id = path.rsplit('/').next().unwrap();
    let id = CampaignId(id.parse().unwrap());
    let page = world.deps.store.list_campaign_members(id, None, None, 20_000).await.unwrap();
    page.items
}

pub async fn plant(world: &World, count: usize) {
    for number in 0..count {
        world.plant_active(&format!("cls-{number:05}")).await;
    }
}

/// How many of the members were in flight at once, at most.
fn most_at_once(members: &[CampaignMember]) -> usize {
    let at = |time: Timestamp| {
        let runs = |member: &&CampaignMember| {
            member.started_at.is_some_and(|started| started <= time)
                && member.ended_at.is_none_or(|ended| ended > time)
        };
        members.iter().filter(runs).count()
    };
    members.iter().filter_map(|member| member.started_at).map(at).max().unwrap_or(0)
}

/// Every member was rotated, once.
pub async fn assert_rotated_once(world: &World, members: &[CampaignMember]) {
    let filter = RotationFilter::all(Timestamp::from_micros(0));
    let rotations = world.deps.store.list_rotations(&filter, None, 50_000).await.unwrap();
    assert_eq!(rotations.items.len(), members.len(), "one rotation each");
    let clusters: BTreeMap<_, _> =
        rotations.items.iter().map(|row| (row.rotation.id, &row.cluster_id)).collect();
    for member in members {
        assert_eq!(member.status, MemberStatus::Succeeded, "{member:?}");
        let rotation_id = member.rotation_id.unwrap();
        assert_eq!(clusters.get(&rotation_id), Some(&&member.cluster_id), "{member:?}");
    }
    assert_eq!(world.registry.reused_names(), Vec::<String>::new());
}

#[actix_rt::test]
async fn the_canaries_go_first_and_the_others_within_the_limit() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 24).await;
    let body = json!({"selector": {"registry": "scripted"}, "canary": 3, "max_in_flight": 4,
        "max_per_minute": 1000});
    let path = start(&world, &body).await;
    let done = until_state(&world, &path, "completed").await;
    assert_eq!(
        done["progress"],
        json!({"total": 24, "pending": 0, "running": 0, "succeeded": 24, "failed": 0, "skipped": 0})
    );
    assert_eq!((&done["wave"], &done["message"]), (&json!("rest"), &json!("")));
    let members = members(&world, &path).await;
    assert_rotated_once(&world, &members).await;
    let canaries = members.iter().take(3).map(|member| member.ended_at.unwrap()).max().unwrap();
    let others = members.iter().skip(3).map(|member| member.started_at.unwrap()).min().unwrap();
    assert!(others >= canaries, "the others wait for the canaries");
    let most = most_at_once(&members);
    assert!((2..=4).contains(&most), "{most} in flight");
    for number in [0, 23] {
        world.assert_served_works(&format!("cls-{number:05}")).await;
    }
}

#[actix_rt::test]
async fn it_stops_by_itself_when_too_many_fail() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 30).await;
    let refused = |name: &str| name.contains("cls-00001") || name.contains("cls-00002");
    world.registry.script(move |call| {
        let fails = call.verb == Verb::Create && refused(&call.name);
        fails.then(|| Fault::Refuse("quota exceeded".to_owned()))
    });
    let body =
        json!({"selector": {"registry": "scripted"}, "canary": 5, "abort_failure_ratio": 0.2});
    let path = start(&world, &body).await;
    let stopped = until_state(&world, &path, "aborted").await;
    let message = stopped["message"].as_str().unwrap();
    assert!(message.starts_with("2 of ") && message.ends_with("rotations failed"), "{message}");
    // What runs comes to its end.
    let rested = until(&world, &path, |campaign| campaign["progress"]["running"] == 0).await;
    assert_eq!(
        rested["progress"],
        json!({"total": 30, "pending": 25, "running": 0, "succeeded": 3, "failed": 2, "skipped": 0})
    );
    let failed = get(&world, &format!("{path}/clusters?status=failed")).await;
    let failed = &failed["clusters"];
    assert_eq!(
        (&failed[0]["detail"], &failed[1]["cluster_id"]),
        (&json!("denied"), &json!("cls-00002"))
    );
    // Nobody else was touched; those that failed serve what they served.
    assert_eq!(world.registry.calls(Verb::Create), 5);
    world.assert_served_works("cls-00001").await;
    let audit = get(&world, "/v1/audit-events?action=campaign_stopped").await;
    let told = &audit["audit_events"][0];
    assert_eq!(
        (&told["actor"], &told["detail"]["progress"]["failed"]),
        (&json!("service:campaign"), &json!(2))
    );
    assert!(world.metric("hyperfleet_credentials_campaigns_total") >= 2.0);
    assert!(world.metric("hyperfleet_credentials_campaign_clusters_total") >= 5.0);
}

#[actix_rt::test]
async fn what_cannot_be_rotated_is_skipped_and_says_why() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 4).await;
    // One is being rotated by somebody else, one was deleted, one never existed, one is done for another reason.
    let gate = Gate::new();
    let held = gate.clone();
    world.registry.script(move |call| {
        let holds = call.verb == Verb::Create;
        holds.then(|| Fault::Hold(When::Opened(held.clone())))
    });
    world.rotate("cls-00001").await;
    world.execute("cls-00002", Command::Revoke).await.unwrap();
    world
        .until("cls-00002", |record| record.is_none_or(|it| it.state.name() == StateName::Revoked))
        .await;
    let ids = ["cls-00001", "cls-00002", "never-made", "cls-00000", "cls-00003"];
    let body = json!({"selector": {"cluster_ids": ids}, "canary": 0});
    let path = start(&world, &body).await;
    let two = |campaign: &Value| campaign["progress"]["skipped"] == 3;
    until(&world, &path, two).await;
    // Deleted while its rotation was under way: no fault of the campaign's.
    world.execute("cls-00003", Command::Revoke).await.unwrap();
    gate.open();
    let done = until_state(&world, &path, "completed").await;
    assert_eq!(
        done["progress"],
        json!({"total": 5, "pending": 0, "running": 0, "succeeded": 1, "failed": 0, "skipped": 4})
    );
    let why: Vec<_> = members(&world, &path).await.into_iter().map(|it| it.detail).collect();
    let why: Vec<_> = why.iter().map(|detail| detail.as_deref().unwrap_or_default()).collect();
    assert_eq!(why, ["rotation_running", "no_record", "no_record", "", "revoked"]);
}

#[actix_rt::test]
async fn a_paused_one_begins_nothing_and_an_aborted_one_never_again() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 6).await;
    let gate = Gate::new();
    let held = gate.clone();
    world.registry.script(move |call| {
        (call.verb == Verb::Create).then(|| Fault::Hold(When::Opened(held.clone())))
    });
    let body = json!({"selector": {"registry": "scripted"}, "canary": 0, "max_in_flight": 2});
    let path = start(&world, &body).await;
    until(&world, &path, |campaign| campaign["progress"]["running"] == 2).await;
    let order = async |word: &str| {
        let request = TestRequest::with_uri(&format!("{path}/{word}")).method(Method::POST);
        let (status, _, body) = ask_as(&world, "operator", request).await;
        assert_eq!(status, 200, "{body}");
        body
    };
    assert_eq!(order("pause").await["state"], "paused");
    gate.open();
    // Those that run go on; no other begins.
    let rested = until(&world, &path, |campaign| campaign["progress"]["running"] == 0).await;
    assert_eq!((&rested["state"], &rested["progress"]["pending"]), (&json!("paused"), &json!(4)));
    assert_eq!(order("resume").await["state"], "running");
    until(&world, &path, |campaign| campaign["progress"]["succeeded"].as_u64() >= Some(4)).await;
    world.registry.script(|call| (call.verb == Verb::Create).then_some(Fault::Hang));
    let aborted = order("abort").await;
    assert!(aborted["completed_at"].is_string(), "{aborted}");
    world.registry.heal();
    let rested = until(&world, &path, |campaign| campaign["progress"]["running"] == 0).await;
    assert_eq!(rested["state"], "aborted");
    let begun = rested["progress"]["succeeded"].as_u64().unwrap();
    assert_eq!(rested["progress"]["pending"], 6 - begun);
}

#[actix_rt::test]
async fn a_driver_that_dies_is_followed_and_nothing_is_rotated_twice() {
    let mut world = World::start(Flavour::Readable).await;
    plant(&world, 12).await;
    // The process dies while these rotations are under way.
    let gate = Gate::new();
    let held = gate.clone();
    world.registry.script(move |call| {
        (call.verb == Verb::Create).then(|| Fault::Hold(When::Opened(held.clone())))
    });
    let body = json!({"selector": {"registry": "scripted"}, "canary": 2, "max_in_flight": 5});
    let path = start(&world, &body).await;
    until(&world, &path, |campaign| campaign["progress"]["running"] == 2).await;
    world = world.die_and_start_again().await;
    world.registry.heal();
    gate.open();
    until_state(&world, &path, "completed").await;
    assert_rotated_once(&world, &members(&world, &path).await).await;
}

/// It died between the note that a member begins and the request for its rotation.
#[actix_rt::test]
async fn a_rotation_that_was_noted_and_never_asked_for_is_asked_for() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 2).await;
    let now = world.clock.now();
    let ids = ["cls-00000", "cls-00001"].map(|id| id.parse().unwrap());
    let campaign = Campaign {
        id: CampaignId(Uuid::now_v7()),
        state: CampaignState::Running,
        message: None,
        reason: RotationReason::Manual,
        selector: Selector::ClusterIds,
        rules: Rules { max_in_flight: 1, max_per_minute: 10, canary: 1, abort_failure_ratio: 0.1 },
        progress: Progress { total: 2, pending: 2, ..Progress::default() },
        gathered: true,
        gathered_to: String::new(),
        created_by: "operator-1".to_owned(),
        // Free from the first moment on, so that the dead one is first.
        created_at: now.plus(Duration::from_secs(3600)),
        state_since: now,
        completed_at: None,
    };
    let audit = audit(&campaign, "campaign_created", &Caller::service("test"), now);
    let new = NewCampaign { campaign: &campaign, members: &ids, audit, idempotency: None };
    world.deps.store.create_campaign(new).await.unwrap();
    let (far, until_then) = (campaign.created_at, now.plus(Duration::from_millis(50)));
    let taken = world.deps.store.claim_campaigns(far, until_then, 1).await.unwrap();
    assert_eq!(taken.len(), 1);
    let rotation = RotationId(Uuid::now_v7());
    let begun = world.deps.store.begin_members(campaign.id, until_then, &[rotation], now).await;
    assert_eq!(begun.unwrap().len(), 1);
    let path = format!("{CAMPAIGNS}/{}", campaign.id);
    until_state(&world, &path, "completed").await;
    let members = members(&world, &path).await;
    assert_eq!(members[0].rotation_id, Some(rotation));
    assert_rotated_once(&world, &members).await;
}

#[actix_rt::test]
async fn a_compromise_takes_the_place_of_what_runs() {
    let world = World::start(Flavour::Readable).await;
    plant(&world, 3).await;
    world.rotate("cls-00001").await;
    let ids = ["cls-00000", "cls-00001", "cls-00002"];
    let body = json!({"reason": "compromise", "selector": {"cluster_ids": ids}});
    let path = start(&world, &body).await;
    let done = until_state(&world, &path, "completed").await;
    assert_eq!(
        (&done["reason"], &done["progress"]["succeeded"]),
        (&json!("compromise"), &json!(3))
    );
    let list = get(&world, "/v1/clusters/cls-00001/pull-secrets/rotations").await;
    let reasons: Vec<_> =
        list["rotations"].as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["compromise", "manual"]);
}
