//! The real program, killed at every named point for every kind of call, and at random times, while several
//! clusters go through their lives. It is started again at once; there is nothing to repair by hand.

pub mod arena;
mod cluster;
pub mod judge;
pub mod scene;
mod table;
pub mod truth;

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use hyperfleet_credentials::failpoints::Point;
use hyperfleet_credentials::state::pull_secret::Call;
use rand::RngExt as _;
use rand::seq::SliceRandom as _;
use serde_json::json;
use strum::VariantArray as _;

use self::arena::Arena;
use self::scene::Scene;
use crate::support::seed::{random, seed};
use crate::support::service::{Service, Setup};

const ROUNDS: usize = 3;
const RANDOM_KILLS: usize = 60;
const FIRST_MOMENTS: usize = 20;
const SIGABRT: i32 = 6;

/// A place to die at, for each kind of call; the one at start is visited between the others.
fn places() -> Vec<(Point, Call)> {
    let points = Point::VARIANTS.iter().filter(|point| **point != Point::TakenOver);
    points.flat_map(|point| Call::VARIANTS.iter().map(|call| (*point, *call))).collect()
}

/// The process dies there at the n-th time. Only a create whose answer was lost is ever looked up.
fn rules(point: Point, call: Call, n: u32) -> String {
    let lose = if call == Call::Lookup { "after_call:create=error," } else { "" };
    format!("{lose}{point}:{call}=kill@{n}")
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_it_goes_on() {
    die_everywhere(Scene::htpasswd(), ROUNDS).await;
}

/// The same beside a Quay, whose own log of what it was asked for is held against the audit.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_beside_a_quay_it_goes_on() {
    die_everywhere(Scene::quay(), ROUNDS).await;
}

async fn die_everywhere(scene: Scene, rounds: usize) {
    let seed = seed();
    let mut random = random(seed, 0);
    let mut arena = Arena::start(seed, scene).await;
    for _ in 0..rounds {
        let mut places = places();
        places.shuffle(&mut random);
        for (point, call) in places {
            arena.restart(&rules(point, call, random.random_range(1..=4))).await;
            assert_eq!(arena.service.ended().await.signal(), Some(SIGABRT), "{point}:{call}");
            arena.note_death(point.to_string(), call.to_string()).await;
            if point == Point::AfterCall && !arena.try_restart("taken_over=kill@1").await {
                arena.note_death(Point::TakenOver.to_string(), "all".to_owned()).await;
            }
        }
        arena.rest().await;
    }
    arena.finish().await;
}

/// The same points, but the process lives: an actor or a call panics, or an answer of the database or of the
/// registry is lost. Nobody starts it again.
#[tokio::test(flavor = "multi_thread")]
async fn hurt_at_every_point_it_heals() {
    let seed = seed();
    let mut random = random(seed, 0);
    let mut arena = Arena::start(seed, Scene::htpasswd()).await;
    let points = Point::VARIANTS.iter().filter(|point| **point != Point::TakenOver);
    for point in points {
        for action in ["error", "panic"] {
            let mut hurt = |call: &Call| {
                let lose = if *call == Call::Lookup { "after_call:create=error@4," } else { "" };
                format!("{lose}{point}:{call}={action}@{}", random.random_range(1..=3))
            };
            let rules: Vec<String> = Call::VARIANTS.iter().map(&mut hurt).collect();
            arena.restart(&rules.join(",")).await;
            arena.service.logged_times("a failure point acts", 4).await;
            arena.settle().await;
            arena.service.kill();
        }
    }
    arena.finish().await;
}

/// Before it was ever ready: keys, tokens and the schema are half made.
#[tokio::test]
async fn killed_in_its_first_moments_it_starts_all_the_same() {
    let mut random = random(seed(), 0);
    for _ in 0..FIRST_MOMENTS {
        let directory = tempfile::tempdir().unwrap();
        let mut service = Service::spawned(directory.path(), Setup::quick());
        tokio::time::sleep(Duration::from_micros(random.random_range(0..100_000))).await;
        service.kill();
        service.restart().await;
        let made = service.post("/v1/clusters/cls-1/pull-secrets", json!({})).await;
        assert_eq!(made.status, 200, "{}", service.whole_log());
        assert!(!service.log().contains("the audit is not sealed"), "{}", service.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_time_it_goes_on() {
    let seed = seed();
    let mut random = random(seed, 0);
    let mut arena = Arena::start(seed, Scene::htpasswd()).await;
    for kill in 1..=RANDOM_KILLS {
        let during_start = random.random_ratio(1, 8);
        let life =
            Duration::from_millis(random.random_range(0..if during_start { 150 } else { 900 }));
        if during_start {
            arena.service.start_again();
        } else {
            arena.restart("").await;
        }
        tokio::time::sleep(life).await;
        arena.service.kill();
        let when = if during_start { "while starting" } else { "while working" };
        arena.note_death("at random".to_owned(), when.to_owned()).await;
        if kill % 20 == 0 {
            arena.rest().await;
        }
    }
    arena.finish().await;
}
