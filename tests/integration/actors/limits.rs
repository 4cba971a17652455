//! What one registry, one kind of work or one cluster takes from the others: nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use hyperfleet_credentials::registries::lane::{BreakerSettings, BreakerState, LaneSettings};
use hyperfleet_credentials::registries::scripted::{
    Entry, Fault, Flavour, Gate, Scripted, Verb, What, When,
};
use hyperfleet_credentials::state::pull_secret::{AccountPhase, PullSecret, StateName};
use hyperfleet_credentials::time::Clock as _;
use tokio::time::Instant;

use super::world::{Setting, World, tuning};

const HOUR: Duration = Duration::from_secs(3600);

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

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("cls-{number:02}")).collect()
}

/// When each call came in.
fn begins(registry: &Scripted) -> Vec<Instant> {
    let log = registry.log();
    let begins = log.iter().filter(|entry| matches!(entry.what, What::Begin { .. }));
    begins.map(|entry| entry.at).collect()
}

async fn until_all_active(world: &World, names: &[String]) {
    for name in names {
        world.until(name, |it| it.is_some_and(|it| it.state.name() == StateName::Active)).await;
    }
}

#[actix_rt::test]
async fn no_more_rotations_are_at_work_than_the_fleet_may_have() {
    let tuning = hyperfleet_credentials::actors::deps::Tuning { max_rotations: 3, ..tuning() };
    let world = World::start_with(Flavour::Readable, tuning).await;
    let names = names(12);
    for name in &names {
        world.plant_active(name).await;
    }
    let gate = Gate::new();
    let held = gate.clone();
    world.registry.script(move |call| {
        (call.verb == Verb::Create).then(|| Fault::Hold(When::Opened(held.clone())))
    });
    for name in &names {
        world.rotate(name).await;
    }
    let waiting = async || {
        let phases = world.deps.store.phase_counts().await.unwrap();
        let count = |phase: &str| phases.get(phase).copied().unwrap_or(0);
        (count("pending"), count("creating_credentials"))
    };
    let settled = async {
        while waiting().await != (9, 3) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(30), settled).await;
    assert!(settled.is_ok(), "{:?}", waiting().await);
    gate.open();
    for name in &names {
        world.until_generation(name, 2).await;
    }
    assert!(most_at_once(&world.registry.log(), Verb::Create) <= 3);
}

#[actix_rt::test]
async fn a_registry_sees_no_more_calls_at_once_than_it_may() {
    let setting = Setting::new(Flavour::Readable);
    let lane = LaneSettings { max_concurrent: 2, ..setting.lane.clone() };
    let world = World::start_as(Setting { lane, ..setting }).await;
    let gate = Gate::new();
    let held = gate.clone();
    world.registry.script(move |_| Some(Fault::Hold(When::Opened(held.clone()))));
    let names = names(10);
    for name in &names {
        world.issue(name).await.unwrap();
    }
    gate.open();
    until_all_active(&world, &names).await;
    assert_eq!(world.registry.most_at_once(), 2);
}

#[actix_rt::test]
async fn calls_begin_no_more_often_than_the_rate_says() {
    const BURST: usize = 5;
    let interval = Duration::from_millis(100);
    let setting = Setting::new(Flavour::Readable);
    let lane = LaneSettings { rate: "5/500ms".parse().unwrap(), ..setting.lane.clone() };
    let world = World::start_as(Setting { lane, ..setting }).await;
    let start = Instant::now();
    let names = names(10);
    for name in &names {
        world.issue(name).await.unwrap();
    }
    until_all_active(&world, &names).await;
    let begins = begins(&world.registry);
    // Readings of use are calls, too.
    assert!(begins.len() >= 20, "{}", begins.len());
    // However late a call comes in, its token was not there before its time.
    for (number, at) in begins.iter().enumerate().skip(BURST) {
        let earliest = start + interval * u32::try_from(number + 1 - BURST).unwrap();
        // The bucket was full since before `start`, and a timer may be a millisecond early.
        assert!(*at + interval >= earliest, "call {number} came {:?} too early", earliest - *at);
    }
}

#[actix_rt::test]
async fn a_registry_that_fails_is_left_alone_whoever_wants_something_of_it() {
    let setting = Setting::new(Flavour::Readable);
    let breaker =
        BreakerSettings { min_pause: HOUR, max_pause: HOUR, ..BreakerSettings::default() };
    let lane = LaneSettings { breaker, ..setting.lane.clone() };
    let world = World::start_as(Setting { lane, ..setting }).await;
    world.registry.break_down(Fault::ServerError);
    let names = names(30);
    for name in &names {
        world.issue(name).await.unwrap();
    }
    let later = world.clock.now().plus(HOUR / 4);
    let put_off = |record: Option<&PullSecret>| {
        let accounts = record.map(|record| record.accounts.as_slice()).unwrap_or_default();
        accounts.iter().all(|account| account.next_attempt_at > later) && !accounts.is_empty()
    };
    for name in &names {
        world.until(name, put_off).await;
    }
    // Five that fail open it; as many as the lane lets through were under way by then.
    let calls = world.registry.calls(Verb::Create);
    assert!((5..=5 + 8).contains(&calls), "{calls} calls");
}

#[actix_rt::test]
async fn a_registry_that_hangs_delays_no_other() {
    let world = World::start_as(Setting { two: true, ..Setting::new(Flavour::Readable) }).await;
    world.registry.break_down(Fault::Hang);
    let stuck: Vec<String> = (0..20).map(|number| format!("stuck-{number}")).collect();
    for name in &stuck {
        world.issue_at(name, &["scripted"]).await;
    }
    world.issue_at("both", &["scripted", "other"]).await;
    let names = names(10);
    for name in &names {
        world.issue_at(name, &["other"]).await;
    }
    until_all_active(&world, &names).await;
    // Also within one cluster: its account at the other registry is made and verified.
    let half = |record: Option<&PullSecret>| {
        let accounts = record.map(|record| record.accounts.as_slice()).unwrap_or_default();
        let mut there = accounts.iter().filter(|account| account.registry_id.as_str() == "other");
        there.any(|account| account.phase == AccountPhase::Verified)
    };
    world.until("both", half).await;
    assert_eq!(world.registry.live().len(), 0, "nothing came of the one that hangs");
}

#[actix_rt::test]
async fn a_registry_that_asks_to_be_called_later_is_called_later() {
    let setting = Setting::new(Flavour::Readable);
    let lane = LaneSettings { max_concurrent: 1, ..setting.lane.clone() };
    let world = World::start_as(Setting { lane, ..setting }).await;
    let wait = Duration::from_secs(2);
    world.registry.next(Verb::Create, Fault::RateLimited(Some(wait)));
    let names = names(5);
    for name in &names {
        world.issue(name).await.unwrap();
    }
    until_all_active(&world, &names).await;
    let log = world.registry.log();
    let asked = log.iter().find(|entry| matches!(entry.what, What::End { .. })).unwrap().at;
    let next = begins(&world.registry)[1];
    assert!(next >= asked + wait, "called {:?} too early", asked + wait - next);
    // It cost nobody an account: each name was made once.
    assert_eq!(world.registry.live().len(), 5);
}
