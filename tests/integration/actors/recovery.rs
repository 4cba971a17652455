//! The process ends without a word: whatever it had announced is settled by the next one.

use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::state::pull_secret::StateName;

use super::world::World;

#[actix_rt::test]
async fn a_create_that_was_under_way_is_adopted_or_replaced() {
    for (flavour, fault) in [
        (Flavour::Readable, Fault::HangAfter),
        (Flavour::Readable, Fault::Hang),
        (Flavour::ShownOnce, Fault::HangAfter),
        (Flavour::ShownOnce, Fault::Hang),
        (Flavour::Chosen, Fault::HangAfter),
        (Flavour::Chosen, Fault::Hang),
    ] {
        let world = World::start(flavour).await;
        world.registry.next(Verb::Create, fault.clone());
        world.issue("cls-1").await.unwrap();
        let applied = matches!(fault, Fault::HangAfter);
        while world.registry.calls(Verb::Create) == 0 || world.registry.live().is_empty() == applied
        {
            tokio::task::yield_now().await;
        }
        let world = world.die_and_start_again().await;
        world.issued("cls-1").await;
        world.until("cls-1", |record| record.unwrap().accounts.len() == 1).await;
        assert_eq!(world.registry.live().len(), 1, "{flavour:?} {fault:?}");
        assert_eq!(world.registry.reused_names(), Vec::<String>::new());
        world.assert_served_works("cls-1").await;
        let adopted = flavour != Flavour::ShownOnce && applied;
        let creates = world.registry.calls(Verb::Create);
        // On a slow machine a further create may run out of time as well; an adopted account never needs one.
        let as_expected = if adopted { creates == 1 } else { creates >= 2 };
        assert!(as_expected, "{flavour:?} {fault:?}: {creates} creates");
    }
}

#[actix_rt::test]
async fn a_deletion_that_was_under_way_is_repeated() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    world.registry.next(Verb::Revoke, Fault::HangAfter);
    world
        .execute("cls-1", hyperfleet_credentials::state::pull_secret::Command::Revoke)
        .await
        .unwrap();
    while world.registry.calls(Verb::Revoke) == 0 {
        tokio::task::yield_now().await;
    }
    let world = world.die_and_start_again().await;
    world.until("cls-1", |record| record.unwrap().state.name() == StateName::Revoked).await;
    assert_eq!(world.registry.live().len(), 0);
}
