//! Three replicas whose clusters rotate without pause, while one replica after the other is killed and another
//! one sleeps beyond its lease. Every answer of every replica is held against the registries.

use std::time::{Duration, Instant};

use rand::RngExt as _;

use super::rounds;
use super::strike::{self, LEASE};
use crate::kill::arena::Arena;
use crate::kill::scene::Scene;
use crate::support::seed::{random, seed};

const REPLICAS: usize = 3;

/// Clusters, and for how long: a hundred for two minutes in a long run.
fn extent() -> (u64, Duration) {
    if rounds() > 1 { (100, Duration::from_secs(120)) } else { (24, Duration::from_secs(15)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_go_on_while_one_dies_and_another_sleeps() {
    let seed = seed();
    let mut random = random(seed, 0);
    let (clusters, time) = extent();
    let mut scene = strike::prepared(Scene::both().on_postgres(REPLICAS).await);
    scene.clusters = clusters;
    scene.pace = Duration::from_millis(8 * clusters);
    let mut arena = Arena::start(seed, scene).await;
    arena.restart("").await;
    let (began, mut deaths) = (Instant::now(), 0);
    while began.elapsed() < time {
        let dies = random.random_range(0..REPLICAS);
        let sleeps = (dies + random.random_range(1..REPLICAS)) % REPLICAS;
        one_round(&mut arena, dies, sleeps, random.random_range(500..2500)).await;
        deaths += 1;
    }
    println!("{deaths} replicas killed, as many put to sleep for twice their lease");
    arena.service.kill();
    arena.finish().await;
}

/// Both are back at its end.
async fn one_round(arena: &mut Arena, dies: usize, sleeps: usize, moment: u64) {
    arena.replica(sleeps).signal("STOP");
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(moment)).await;
    arena.replica(dies).kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    arena.replica(dies).restart().await;
    arena.tell_fronts();
    tokio::time::sleep((LEASE * 2).saturating_sub(began.elapsed())).await;
    arena.replica(sleeps).signal("CONT");
    arena.replica(sleeps).until("/readyz", |ready| ready.status == 200).await;
    arena.assert_safe().await;
}
