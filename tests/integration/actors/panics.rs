//! Panics in handlers and in calls: the actor comes back, its neighbours do not notice, it is counted.

use std::time::Duration;

use hyperfleet_credentials::actors::shard::CommandError;
use hyperfleet_credentials::actors::step::StepError;
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::state::pull_secret::Rejection;

use super::world::{World, tuning};

#[actix_rt::test]
async fn a_panic_in_a_call_is_an_ordinary_outcome() {
    for (fault, flavour) in [
        (Fault::Panic, Flavour::Readable),
        (Fault::PanicAfter, Flavour::Readable),
        (Fault::PanicAfter, Flavour::ShownOnce),
        (Fault::PanicAfter, Flavour::Chosen),
    ] {
        let world = World::start(flavour).await;
        world.registry.next(Verb::Create, fault.clone());
        world.issued("cls-1").await;
        world.issued("cls-2").await;
        assert!(world.metric("hyperfleet_credentials_panics_total") >= 1.0, "it is counted");
        assert!(world.metric("hyperfleet_credentials_actor_restarts_total") < 1.0);
        world.assert_served_works("cls-1").await;
        // What the lost create made is either adopted or deleted once its time has passed.
        world.until("cls-1", |record| record.unwrap().accounts.len() == 1).await;
        assert_eq!(world.registry.live().len(), 2);
    }
}

#[actix_rt::test]
async fn a_panicked_actor_comes_back_and_its_neighbours_do_not_notice() {
    let mut one_shard = tuning();
    one_shard.shards = 1;
    // The scheduler looks at the clock, too; the panic is meant for the credential.
    one_shard.tick = Duration::from_secs(3600);
    let world = World::start_with(Flavour::Readable, one_shard).await;
    world.issued("cls-neighbour").await;
    world.issued("cls-1").await;
    quiet(&world).await;
    world.clock.panic(1);
    let hit = world.issue("cls-1").await;
    assert!(matches!(hit, Err(CommandError::Restarting)), "{hit:?}");
    assert!(world.heartbeat("cls-neighbour").await.current);
    world.issued("cls-neighbour").await;
    comes_back(&world, "cls-1").await;
    assert!(world.metric("hyperfleet_credentials_actor_restarts_total") >= 1.0);
    assert!(world.metric("hyperfleet_credentials_panics_total") >= 1.0);
    world.rotate("cls-1").await;
    world.until("cls-1", |record| record.unwrap().generation().0 == 2).await;
}

#[actix_rt::test]
async fn the_fifth_panic_puts_it_in_quarantine() {
    let mut slow_ticks = tuning();
    slow_ticks.tick = Duration::from_secs(3600);
    slow_ticks.restart_pause = Duration::from_millis(1);
    let world = World::start_with(Flavour::Readable, slow_ticks).await;
    world.issued("cls-neighbour").await;
    world.issued("cls-1").await;
    for _ in 0..5 {
        comes_back(&world, "cls-1").await;
        world.clock.panic(1);
        let hit = world.issue("cls-1").await;
        assert!(matches!(hit, Err(CommandError::Restarting)), "{hit:?}");
    }
    world.until("cls-1", |record| record.unwrap().quarantine.is_some()).await;
    let refused = world.issue("cls-1").await;
    assert!(
        matches!(
            refused,
            Err(CommandError::Step(StepError::Rejected(Rejection::Quarantined { .. })))
        ),
        "{refused:?}"
    );
    world.assert_served_works("cls-1").await;
    assert!(world.heartbeat("cls-1").await.current, "heartbeats go on");
    world.issued("cls-neighbour").await;
}

/// Waits until no step is running, so that the next one to look at the clock is ours.
async fn quiet(world: &World) {
    for name in ["cls-1", "cls-neighbour"] {
        world.until(name, |record| record.unwrap().accounts.iter().all(|a| a.call.is_none())).await;
    }
}

async fn comes_back(world: &World, name: &str) {
    let asking = async {
        while world.issue(name).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("it comes back");
}
