//! The wall clock of a running service jumps: a deadline that is suddenly over revokes nothing.

use std::time::{Duration, Instant};

use hyperfleet_credentials::time::{Clock as _, SystemClock};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::world::World;
use crate::support::clock::{HOUR, JUMPED, WallClock, YEAR};
use crate::support::service::Setup;

/// Waits until the scheduler has woken the cluster at a time after this (microseconds): then it comes back later.
async fn woken_after(world: &World, cluster: &str, at: i64) {
    let file = world.directory.path().join("data/credentials.db");
    let options = SqliteConnectOptions::new().filename(file).read_only(true);
    let mut db = SqliteConnection::connect_with(&options).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let sql = "SELECT due_at > $2 FROM pull_secrets WHERE cluster_id = $1";
    loop {
        let query = sqlx::query_scalar::<_, bool>(sql).bind(cluster).bind(at);
        if query.fetch_one(&mut db).await.unwrap() {
            return;
        }
        assert!(Instant::now() < deadline, "nobody woke it\n{}", world.service.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_deadline_that_a_jump_has_passed_revokes_nothing() {
    let clock = WallClock::right();
    let setup = Setup::quick().env("HYPERFLEET_ROTATION_ON_DEADLINE", "revoke");
    let world = World::start_with(clock.of(setup)).await;
    let cluster = world.cluster("cls-1");
    cluster.made().await;
    let rotation = cluster.in_dual_period().await;
    assert_eq!(world.accounts(), 2);
    // When the clock jumps far beyond the deadline and the scheduler looks at it,
    clock.is_off_by(YEAR);
    let soon = SystemClock.now().as_micros() + (YEAR - HOUR) * 1_000_000;
    woken_after(&world, "cls-1", soon).await;
    world.service.logged(JUMPED).await;
    // then both credentials stay, whatever else goes on;
    world.cluster("cls-2").made().await;
    cluster.until_phase(&rotation, "dual_credential_period").await;
    assert_eq!(world.accounts(), 3);
    // and when it is right again, proof ends the rotation as ever.
    clock.is_off_by(0);
    assert_eq!(cluster.heartbeat(&cluster.auth().await, "default").await.status, 200);
    cluster.until_phase(&rotation, "completed").await;
    assert_eq!(world.accounts(), 2);
}
