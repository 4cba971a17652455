//! One way to be hurt. Each begins with a service that was just started and ends with a dead one, so that the
//! next may come in any order.

use std::fmt::{self, Display, Formatter};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyperfleet_credentials::failpoints::Point;
use hyperfleet_credentials::state::pull_secret::Call;
use rand::RngExt as _;
use rand::rngs::StdRng;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Executor as _};
use strum::VariantArray as _;

use crate::kill::arena::Arena;
use crate::kill::scene::{Database, Scene};
use crate::support::fake_quay::Fault;
use crate::support::postgres;

const SIGABRT: i32 = 6;
/// Three times the registries' time limit, which is the least that is allowed.
pub const LEASE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(240);
const YEAR: i64 = 365 * 24 * 3600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// Killed before or after a commit, a call, or the commit of its outcome.
    Die(Point, Call),
    /// The answers of the registries and of the database are lost, and nobody dies.
    LoseAnswers,
    /// Killed while a rotation is in this phase.
    InPhase(&'static str),
    /// Killed when one registry has done its part and the other has not.
    OneOfTwo,
    /// Somebody deletes the pull secret in a rotation, and the service is killed.
    DeleteInRotation,
    /// The database goes away and comes back; with SQLite somebody holds its file.
    DatabaseGone,
    /// Every connection to the database is cut, again and again.
    ConnectionsCut,
    /// The process sleeps for twice its lease, and does not know it.
    Frozen,
    /// The wall clock jumps a year forward, and back.
    ClockJumps,
    /// Slots of the schedule are due while the service is killed and a second one tries to begin.
    SlotDue,
}

impl Display for Strike {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Die(point, call) => write!(f, "killed: {point}, {call}"),
            Self::LoseAnswers => f.write_str("answers lost"),
            Self::InPhase(phase) => write!(f, "killed in {phase}"),
            Self::OneOfTwo => f.write_str("killed with one registry of two done"),
            Self::DeleteInRotation => f.write_str("deleted in a rotation, and killed"),
            Self::DatabaseGone => f.write_str("database gone and back"),
            Self::ConnectionsCut => f.write_str("connections cut"),
            Self::Frozen => f.write_str("frozen for twice the lease"),
            Self::ClockJumps => f.write_str("clock a year forward and back"),
            Self::SlotDue => f.write_str("slots due, killed, a second process"),
        }
    }
}

/// What the strikes need of the configuration.
pub fn prepared(mut scene: Scene) -> Scene {
    let clock = scene.directory.path().join("clock");
    std::fs::write(&clock, "0").unwrap();
    scene.setup = scene
        .setup
        .env("HYPERFLEET_CLOCK_FILE", &clock.to_string_lossy())
        .env("HYPERFLEET_SCHEDULER_LEASE", &format!("{}s", LEASE.as_secs()));
    scene
}

impl Strike {
    /// The whole matrix.
    pub fn all(scene: &Scene) -> Vec<Self> {
        let points = Point::VARIANTS.iter().filter(|point| **point != Point::TakenOver);
        let die = |point: &Point| {
            let point = *point;
            // Only a create whose answer was lost is ever looked up, which `kill` does at length.
            let calls = Call::VARIANTS.iter().filter(|call| **call != Call::Lookup);
            calls.map(move |call| Self::Die(point, *call)).collect::<Vec<_>>()
        };
        let mut all: Vec<Self> = points.flat_map(die).collect();
        all.extend([
            Self::LoseAnswers,
            Self::InPhase("dual_credential_period"),
            Self::InPhase("revoking_old"),
            Self::InPhase("rolling_back"),
            Self::OneOfTwo,
            Self::DeleteInRotation,
            Self::DatabaseGone,
            Self::Frozen,
            Self::ClockJumps,
            Self::SlotDue,
        ]);
        match scene.database {
            Database::Sqlite(_) => {}
            Database::Postgres(..) => all.push(Self::ConnectionsCut),
        }
        all
    }

    pub async fn fall(self, arena: &mut Arena, random: &mut StdRng) {
        match self {
            Self::Die(point, call) => die(arena, random, point, call).await,
            Self::LoseAnswers => lose_answers(arena).await,
            Self::InPhase(phase) => in_phase(arena, phase).await,
            Self::OneOfTwo => one_of_two(arena).await,
            Self::DeleteInRotation => delete_in_rotation(arena).await,
            Self::DatabaseGone => database_gone(arena, random).await,
            Self::ConnectionsCut => connections_cut(arena).await,
            Self::Frozen => frozen(arena).await,
            Self::ClockJumps => clock_jumps(arena).await,
            Self::SlotDue => slot_due(arena, random).await,
        }
    }
}

async fn die(arena: &mut Arena, random: &mut StdRng, point: Point, call: Call) {
    arena.restart(&format!("{point}:{call}=kill@{}", random.random_range(1..=4))).await;
    let ended = arena.service.ended().await;
    assert_eq!(ended.signal(), Some(SIGABRT), "{point}:{call}\n{}", arena.service.log());
}

async fn lose_answers(arena: &mut Arena) {
    let rules = "after_call:create=error@2,after_call:revoke=error@2,after_call:verify=error@3,\
                 after_commit:create=error@4,before_outcome_commit:create=error@3";
    arena.restart(rules).await;
    arena.service.logged_times("a failure point acts", 4).await;
    arena.service.kill();
}

async fn in_phase(arena: &mut Arena, phase: &str) {
    arena.restart("").await;
    let rows = arena.rows().await;
    until("a rotation gets there", async || rows.any_in_phase(phase).await).await;
    arena.service.kill();
}

async fn one_of_two(arena: &mut Arena) {
    arena.restart("").await;
    let quay = arena.scene.quay.clone().unwrap();
    quay.break_down(Fault::LoseBefore);
    let rows = arena.rows().await;
    let began = Instant::now();
    // Whoever has to delete something first waits for the same registry; it is well for a while then.
    while !soon(async || rows.any_half_made("local", "quay").await).await {
        assert!(began.elapsed() < PATIENCE, "in vain: one is done\n{}", arena.service.log());
        quay.heal();
        soon(async || rows.in_state("active").await > 0).await;
        quay.break_down(Fault::LoseBefore);
    }
    arena.service.kill();
    quay.heal();
}

async fn delete_in_rotation(arena: &mut Arena) {
    arena.restart("").await;
    let order = arena.orders.delete_in_rotation.clone();
    order.store(true, Ordering::SeqCst);
    until("somebody deletes", async || !order.load(Ordering::SeqCst)).await;
    // The request is under way.
    tokio::time::sleep(Duration::from_millis(10)).await;
    arena.service.kill();
}

async fn database_gone(arena: &mut Arena, random: &mut StdRng) {
    arena.restart("").await;
    tokio::time::sleep(Duration::from_millis(random.random_range(100..500))).await;
    let gone = Duration::from_millis(random.random_range(200..2500));
    match &mut arena.scene.database {
        Database::Sqlite(file) => hold(file, gone).await,
        Database::Postgres(server, _) => {
            tokio::task::block_in_place(|| server.crash());
            tokio::time::sleep(gone).await;
            tokio::task::block_in_place(|| server.start_again());
        }
    }
    ready(arena).await;
    arena.assert_safe().await;
    arena.service.kill();
}

async fn hold(file: &Path, time: Duration) {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(LEASE);
    let mut shell = SqliteConnection::connect_with(&options).await.unwrap();
    shell.execute("BEGIN IMMEDIATE").await.unwrap();
    tokio::time::sleep(time).await;
    shell.execute("ROLLBACK").await.unwrap();
}

async fn connections_cut(arena: &mut Arena) {
    arena.restart("").await;
    let Database::Postgres(server, url) = &arena.scene.database else { return };
    let (postgres, name) = (server.url("postgres"), url.rsplit('/').next().unwrap());
    let cut =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    for _ in 0..10 {
        postgres::execute(&postgres, &cut).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    ready(arena).await;
    arena.assert_safe().await;
    arena.service.kill();
}

async fn frozen(arena: &mut Arena) {
    arena.restart("").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    arena.service.signal("STOP");
    tokio::time::sleep(LEASE * 2).await;
    arena.service.signal("CONT");
    ready(arena).await;
    arena.assert_safe().await;
    arena.service.kill();
}

async fn clock_jumps(arena: &mut Arena) {
    arena.orders.jumped.store(true, Ordering::SeqCst);
    arena.restart("").await;
    let clock = arena.scene.directory.path().join("clock");
    for seconds in [YEAR, 0, -YEAR, 0] {
        std::fs::write(&clock, seconds.to_string()).unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        ready(arena).await;
        arena.assert_safe().await;
    }
    arena.service.kill();
}

async fn slot_due(arena: &mut Arena, random: &mut StdRng) {
    let sql = match &arena.scene.database {
        Database::Sqlite(_) => {
            "UPDATE pull_secrets SET schedule_next_at = CAST(unixepoch('subsec') * 1e6 AS INTEGER), \
             next_rotation_at = CAST(unixepoch('subsec') * 1e6 AS INTEGER), \
             due_at = CAST(unixepoch('subsec') * 1e6 AS INTEGER) WHERE state = 'active'"
        }
        Database::Postgres(..) => {
            "UPDATE pull_secrets SET schedule_next_at = now(), next_rotation_at = now(), \
             due_at = now() WHERE state = 'active'"
        }
    };
    for _ in 0..3 {
        match &arena.scene.database {
            Database::Sqlite(file) => {
                let options = SqliteConnectOptions::new().filename(file);
                let mut shell = SqliteConnection::connect_with(&options).await.unwrap();
                shell.execute(sql).await.unwrap();
                shell.close().await.unwrap();
            }
            Database::Postgres(_, url) => postgres::execute(url, sql).await,
        }
        arena.restart("").await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..600))).await;
        if let Database::Sqlite(_) = arena.scene.database {
            second_process(arena).await;
        }
        arena.service.kill();
        arena.rows().await.slots_completed().await;
    }
}

/// Who is alone stays alone.
async fn second_process(arena: &Arena) {
    let mut second = arena.service.second();
    let ended = tokio::time::timeout(Duration::from_secs(30), second.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(1), "a second process serves");
}

async fn ready(arena: &Arena) {
    arena.service.until("/readyz", |ready| ready.status == 200).await;
}

async fn until(what: &str, there: impl AsyncFn() -> bool) {
    assert!(within(PATIENCE, there).await, "in vain: {what}");
}

/// Whether it comes about in a few seconds.
async fn soon(there: impl AsyncFn() -> bool) -> bool {
    within(Duration::from_secs(5), there).await
}

async fn within(time: Duration, there: impl AsyncFn() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !there().await {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}
