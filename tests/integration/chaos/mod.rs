//! The crash matrix: real processes on both databases, beside two registries, hurt at each point that matters
//! while clusters go through their lives. Judged by the registries' own record.
//!
//! A short run is one round; `HYPERFLEET_TEST_CHAOS` says how many a long one has. A run prints its seed,
//! and `HYPERFLEET_TEST_SEED` repeats what was chosen.

mod restless;
mod strike;
mod thousand;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::seq::SliceRandom as _;
use serde_json::json;

use self::strike::Strike;
use crate::kill::arena::Arena;
use crate::kill::scene::Scene;
use crate::support::postgres;
use crate::support::seed::{random, seed};
use crate::support::service::{Service, Setup};

const FIRST_MOMENTS: usize = 8;
/// Between two rests.
const STRIKES: usize = 12;

/// How many rounds over the whole matrix.
fn rounds() -> usize {
    let wanted = std::env::var("HYPERFLEET_TEST_CHAOS").ok();
    wanted.map_or(1, |text| text.parse().expect("HYPERFLEET_TEST_CHAOS: a number of rounds"))
}

/// The whole matrix, in an order of its own each time.
async fn storm(scene: Scene) {
    let seed = seed();
    let mut random = random(seed, 0);
    let scene = strike::prepared(scene);
    let mut arena = Arena::start(seed, scene).await;
    let mut book: BTreeMap<String, (usize, Duration)> = BTreeMap::new();
    for _ in 0..rounds() {
        let mut strikes = Strike::all(&arena.scene);
        strikes.shuffle(&mut random);
        for (number, strike) in strikes.iter().enumerate() {
            let began = Instant::now();
            strike.fall(&mut arena, &mut random).await;
            let entry = book.entry(strike.to_string()).or_default();
            *entry = (entry.0 + 1, entry.1 + began.elapsed());
            if (number + 1) % STRIKES == 0 {
                rest(&mut arena).await;
            }
        }
        rest(&mut arena).await;
    }
    println!("| strike | times | seconds |\n|---|---|---|");
    for (strike, (times, took)) in &book {
        println!("| {strike} | {times} | {:.1} |", took.as_secs_f64());
    }
    arena.finish().await;
}

async fn rest(arena: &mut Arena) {
    arena.rest().await;
    println!("slots completed: {}", arena.rows().await.slots_completed().await);
    for registry in &arena.scene.registries {
        // Two, and what a compromise or a lost create may leave for a settle time.
        let most = registry.most_generations();
        assert!(most <= 4, "{most} generations at once at {}", registry.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_over_sqlite() {
    storm(Scene::both()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_over_postgres() {
    storm(Scene::both().on_postgres(1).await).await;
}

/// The one that is hurt has two others beside it, which go on with its work.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_over_three_replicas() {
    storm(Scene::both().on_postgres(3).await).await;
}

/// A start that is killed while it makes the schema leaves nothing that the next one stumbles over.
#[tokio::test]
async fn a_migration_that_is_killed_halfway() {
    let mut random = random(seed(), 0);
    for _ in 0..FIRST_MOMENTS {
        let url = postgres::shared().database(None).await;
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup::quick().env("HYPERFLEET_DB_URL", &url);
        let mut service = Service::spawned(directory.path(), setup);
        tokio::time::sleep(Duration::from_millis(random.random_range(20..400))).await;
        service.kill();
        // It may have died before there was such a table, or after it said that it serves.
        postgres::execute(
            &url,
            "DO $$ BEGIN IF to_regclass('replicas') IS NOT NULL THEN \
             UPDATE replicas SET seen_at = seen_at - interval '1 hour'; END IF; END $$",
        )
        .await;
        service.restart().await;
        let made = service.post("/v1/clusters/cls-1/pull-secrets", json!({})).await;
        assert_eq!(made.status, 200, "{}", service.whole_log());
    }
}
