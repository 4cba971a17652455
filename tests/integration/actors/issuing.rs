//! The plain life of a pull secret: made once, rotated by proof, revoked.

use std::time::Duration;

use futures_util::future::join_all;
use hyperfleet_credentials::actors::shard::CommandError;
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::state::pull_secret::{Command, RotationPhase, StateName};

use super::world::{World, cluster, state, tuning};

#[actix_rt::test]
async fn a_hundred_parallel_requests_make_one_account() {
    for flavour in [Flavour::Readable, Flavour::ShownOnce, Flavour::Chosen] {
        let world = World::start(flavour).await;
        let asked = join_all((0..100).map(|_| world.issued("cls-1"))).await;
        let first = asked[0].0.record.as_ref().unwrap();
        assert!(asked.iter().all(|seen| seen.0.record.as_ref() == Some(first)));
        assert_eq!(world.registry.live().len(), 1);
        assert_eq!(world.registry.calls(Verb::Create), 1);
        world.assert_served_works("cls-1").await;
    }
}

#[actix_rt::test]
async fn a_rotation_waits_for_proof_and_leaves_one_account() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    assert!(world.heartbeat("cls-1").await.current);
    world.rotate("cls-1").await;
    world
        .until("cls-1", |record| {
            let phase = record.unwrap().rotation().map(|rotation| &rotation.phase);
            matches!(phase, Some(RotationPhase::DualCredentialPeriod { .. }))
        })
        .await;
    assert_eq!(world.registry.live().len(), 2);
    assert!(world.heartbeat("cls-1").await.current);
    world.until_active("cls-1", 2).await;
    assert_eq!(world.registry.live().len(), 1);
    world.assert_served_works("cls-1").await;
    assert_eq!(world.registry.reused_names(), Vec::<String>::new());
}

#[actix_rt::test]
async fn a_revoke_overtakes_a_call_that_hangs() {
    let world = World::start(Flavour::Readable).await;
    world.registry.next(Verb::Create, Fault::HangAfter);
    world.issue("cls-1").await.unwrap();
    let revoked = world.execute("cls-1", Command::Revoke).await.unwrap();
    assert_eq!(state(&revoked.snapshot), Some(StateName::Revoking));
    world.until("cls-1", |record| record.unwrap().state.name() == StateName::Revoked).await;
    assert_eq!(world.registry.live().len(), 0);
}

#[actix_rt::test]
async fn work_waits_for_a_registry_that_is_down_and_goes_on_by_itself() {
    let world = World::start(Flavour::Readable).await;
    world.registry.break_down(Fault::OwnCredential);
    for name in ["cls-1", "cls-2", "cls-3"] {
        world.issue(name).await.unwrap();
    }
    world
        .until("cls-2", |record| {
            record.unwrap().accounts.iter().any(|account| account.trouble.blocked)
        })
        .await;
    let loaded = world.deps.store.load(&cluster("cls-2")).await.unwrap();
    assert_eq!(loaded.record.unwrap().accounts[0].trouble.attempts, 0, "no attempt is lost");
    world.registry.heal();
    for name in ["cls-1", "cls-2", "cls-3"] {
        world.until_active(name, 1).await;
    }
    assert_eq!(world.registry.live().len(), 3);
}

#[actix_rt::test]
async fn a_refused_account_is_denied_and_cleaned_up_by_age() {
    let world = World::start(Flavour::Readable).await;
    world.registry.next(Verb::Create, Fault::Refuse("quota".to_owned()));
    world.issue("cls-1").await.unwrap();
    world.until("cls-1", |record| record.unwrap().state.name() == StateName::Denied).await;
    world.clock.jump(Duration::from_secs(3601));
    world.until("cls-1", |record| record.is_none()).await;
    let loaded = world.deps.store.load(&cluster("cls-1")).await.unwrap();
    assert_eq!(loaded.last_generation.0, 1, "the counter outlives the record");
    world.issued("cls-1").await;
    world.until_active("cls-1", 2).await;
}

#[actix_rt::test]
async fn a_full_mailbox_says_so() {
    let mut small = tuning();
    small.shards = 1;
    small.mailbox = 128;
    let world = World::start_with(Flavour::Readable, small).await;
    world.clock.stop();
    let first = {
        let shards = world.system.shards.clone();
        actix_rt::spawn(async move {
            let caller = hyperfleet_credentials::actors::audit::Caller::service("test");
            shards.execute(&cluster("cls-0"), Command::Tick, caller).await
        })
    };
    while !world.clock.somebody_waits() {
        tokio::task::yield_now().await;
    }
    let asked = join_all((0..400).map(|n| {
        let shards = world.system.shards.clone();
        let clock = world.clock.clone();
        async move {
            let caller = hyperfleet_credentials::actors::audit::Caller::service("test");
            let name = cluster(&format!("cls-{n}"));
            if n == 399 {
                clock.go_on();
            }
            shards.execute(&name, Command::Tick, caller).await
        }
    }))
    .await;
    let busy = asked.iter().filter(|done| matches!(done, Err(CommandError::Busy))).count();
    assert!((1..300).contains(&busy), "{busy} of 400 were turned away");
    assert!(first.await.unwrap().is_ok());
    assert!(asked.iter().filter(|done| done.is_ok()).count() >= 100);
}

#[actix_rt::test]
async fn an_idle_actor_stops_and_comes_back_on_demand() {
    let mut quick = tuning();
    quick.idle_after = Duration::from_millis(50);
    let world = World::start_with(Flavour::Readable, quick).await;
    world.issued("cls-1").await;
    let looking = async {
        while world.system.shards.actors().await != 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looking).await.expect("the actor stops");
    world.issued("cls-1").await;
    assert_eq!(world.registry.calls(Verb::Create), 1);
}
