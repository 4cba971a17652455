//! What one registry, one kind of work or one cluster takes from the others: nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use hyperfleet_credentials::registries::lane::BreakerState;
use hyperfleet_credentials::registries::scripted::{Entry, Fault, Flavour, Verb, What};

use super::world::World;

/// How many calls of a verb were under way at once, at most.
fn most_at_once(log: &[Entry], wanted: Verb) -> usize {
    let mut open = BTreeSet::new();
    let mut most = 0;
    for entry in log {
        match &entry.what {
            What::Begin { verb, .. } if *verb == wanted => {
                open.insert(entry.call);
                most = most.max(open.len());
            }
            What::End { .. } => {
                open.remove(&entry.call);
            }
            What::Begin { .. } | What::Created { .. } | What::Deleted { .. } => {}
        }
    }
    most
}

#[actix_rt::test]
async fn a_thousand_accounts_that_are_not_let_go_keep_ten_fresh_ones_from_nothing() {
    const HOPELESS: usize = 1000;
    let world = World::start(Flavour::Readable).await;
    // The worst that can happen to whoever shares a lane with them: no answer at all.
    world.registry.script(|call| (call.verb == Verb::Revoke).then_some(Fault::Hang));
    for number in 0..HOPELESS {
        world.plant_residue(&format!("old-{number}")).await;
    }
    let lane = world.deps.registries[&"scripted".parse().unwrap()].lane.clone();
    let mut residue = lane.residue().subscribe();
    let hangs = residue.wait_for(|breaker| *breaker == BreakerState::Open);
    tokio::time::timeout(Duration::from_secs(30), hangs).await.expect("they are tried").unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("new-{number}")).collect();
    for name in &names {
        world.issued(name).await;
    }
    let log = world.registry.log();
    assert_eq!(most_at_once(&log, Verb::Revoke), 1, "a lane of their own");
    assert_eq!(lane.status().breaker, BreakerState::Closed, "and a breaker of their own");
    assert!(lane.residue().waiting() <= 16, "the others wait in the database");
    for name in &names {
        world.assert_served_works(name).await;
    }
}
