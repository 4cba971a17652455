//! A command and the answer of its request are stored together, or neither is.

use std::time::Duration;

use hyperfleet_credentials::actors::audit::Caller;
use hyperfleet_credentials::actors::shard::CommandError;
use hyperfleet_credentials::actors::step::StepError;
use hyperfleet_credentials::ids::RotationId;
use hyperfleet_credentials::registries::scripted::Flavour;
use hyperfleet_credentials::state::pull_secret::{Command, RotationReason, StateName};
use hyperfleet_credentials::store::{
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, StoreError,
};
use uuid::Uuid;

use super::world::{World, cluster};

fn request(world: &World, name: &str) -> IdempotencyStart {
    let now = world.deps.clock.now();
    IdempotencyStart {
        key: IdempotencyKey { key_hash: name.into(), caller_hash: b"caller".to_vec() },
        body_hash: b"body".to_vec(),
        holder: Uuid::now_v7(),
        now,
        lease_until: now.plus(Duration::from_secs(60)),
    }
}

fn answer(start: &IdempotencyStart, resource_id: &str) -> IdempotencyAnswer {
    let (key, holder) = (start.key.clone(), start.holder);
    let resource_id = Some(resource_id.to_owned());
    IdempotencyAnswer { key, holder, status: 201, location: None, resource_id }
}

fn answered(resource_id: &str) -> IdempotencyState {
    let resource_id = Some(resource_id.to_owned());
    IdempotencyState::Answered { status: 201, location: None, resource_id }
}

fn rotate() -> Command {
    let rotation_id = RotationId(Uuid::now_v7());
    Command::Rotate { rotation_id, reason: RotationReason::Manual, force_immediate: false }
}

#[actix_rt::test]
async fn a_command_that_changes_nothing_answers_all_the_same() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    let store = world.deps.store.clone();
    let first = request(&world, "first");
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    let id = cluster("cls-1");
    let issue = Command::Issue { cluster_id: id.clone(), registries: None };
    let caller = Caller::service("test");
    let to_store = Some(answer(&first, "it"));
    let done = world.system.shards.execute_once(&id, issue, caller, to_store).await.unwrap();
    assert!(done.events.is_empty());
    assert_eq!(store.begin_idempotent(&request(&world, "first")).await, Ok(answered("it")));
}

#[actix_rt::test]
async fn who_lost_the_key_has_changed_nothing() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    let (store, id) = (world.deps.store.clone(), cluster("cls-1"));
    let late = request(&world, "key");
    let owner = request(&world, "key");
    assert_eq!(store.begin_idempotent(&owner).await, Ok(IdempotencyState::Begun));
    let caller = || Caller::service("test");
    let run = |start: &IdempotencyStart| {
        let to_store = Some(answer(start, "rotation"));
        world.system.shards.execute_once(&id, rotate(), caller(), to_store)
    };
    let lost = run(&late).await;
    let is_lost = matches!(lost, Err(CommandError::Step(StepError::Store(StoreError::LeaseLost))));
    assert!(is_lost, "{lost:?}");
    let record = store.load(&id).await.unwrap().record.unwrap();
    assert_eq!(record.state.name(), StateName::Active, "its command was undone with it");
    let done = run(&owner).await.unwrap();
    assert!(!done.events.is_empty());
    assert_eq!(store.begin_idempotent(&request(&world, "key")).await, Ok(answered("rotation")));
}

#[actix_rt::test]
async fn a_refusal_stores_nothing() {
    let world = World::start(Flavour::Readable).await;
    let (store, id) = (world.deps.store.clone(), cluster("cls-1"));
    let first = request(&world, "key");
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    let to_store = Some(answer(&first, "rotation"));
    let caller = Caller::service("test");
    let refused = world.system.shards.execute_once(&id, rotate(), caller, to_store).await;
    assert!(matches!(refused, Err(CommandError::Step(StepError::Rejected(_)))), "{refused:?}");
    assert_eq!(store.release_idempotent(&first.key, first.holder).await, Ok(()));
    assert_eq!(store.begin_idempotent(&request(&world, "key")).await, Ok(IdempotencyState::Begun));
}
