//! Twenty thousand credentials whose time came while the service stood still for ten minutes: it works them off
//! within its limits, and its callers do not feel it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyperfleet_credentials::crypto::SharedKeyring;
use hyperfleet_credentials::registries::Marker;
use hyperfleet_credentials::state::pull_secret::Account;
use hyperfleet_credentials::store::{SqliteStore, Store};
use hyperfleet_credentials::time::{Clock as _, SystemClock, Timestamp};
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::store::script::policy;
use crate::support::fake_quay::{self, FakeQuay, Fault, Op, What, When};
use crate::support::service::{Service, Setup};
use crate::support::stock::Stock;

const CLUSTERS: usize = 20_000;
const WATCHED: Duration = Duration::from_secs(120);
/// A request of one kind or another so often.
const EVERY: Duration = Duration::from_millis(10);
const BAR: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 8;
const INSTALLATION: &str = "bench-1";
/// The shared ids of both registries.
const REGISTRIES: [&str; 2] = ["first", "second"];

/// What one registry may be asked: so many calls in any minute.
#[derive(Clone, Copy)]
struct Limit(Option<usize>);

impl Limit {
    fn rate(self) -> String {
        self.0.map_or_else(|| "off".to_owned(), |count| format!("{count}/1m"))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: make bench"]
async fn after_ten_minutes_of_standstill_with_a_rate() {
    measure(Limit(Some(1200))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: make bench"]
async fn after_ten_minutes_of_standstill_as_fast_as_it_goes() {
    measure(Limit(None)).await;
}

async fn measure(limit: Limit) {
    let directory = tempfile::tempdir().unwrap();
    let fakes = [fake_quay::start(), fake_quay::start()];
    for fake in &fakes {
        fake.add_team("pullers");
        // A registry is not in the next room.
        let far = Fault::Before(When::After(Duration::from_millis(20)));
        fake.script(move |_| Some(far.clone()));
    }
    let setup = setup(directory.path(), &fakes, limit);
    let mut service = Service::start(directory.path(), setup).await;
    service.kill();
    let began = Instant::now();
    let auths = Arc::new(seed(directory.path(), &fakes).await);
    println!("{CLUSTERS} clusters were made in {:.0} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    service.restart().await;
    println!("ready {:.1} s after the start", began.elapsed().as_secs_f64());
    let times = load(&service, &auths).await;
    tell(&service).await;
    service.kill();
    for (what, phase) in
        [("waiting for their turn", "pending"), ("served anew", "dual_credential_period")]
    {
        println!("{what}: {}", in_phase(directory.path(), phase).await);
    }
    for (id, fake) in REGISTRIES.iter().zip(&fakes) {
        judge(id, fake, limit);
    }
    report(times);
}

fn setup(directory: &Path, fakes: &[FakeQuay; 2], limit: Limit) -> Setup {
    let registry = |(id, fake): (&&str, &FakeQuay)| {
        let token_file = directory.join(format!("{id}.token"));
        std::fs::write(&token_file, &fake.token).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token_file, private).unwrap();
        json!({
            "id": id, "type": "quay", "host": format!("{id}.test"), "url": fake.url,
            "organization": fake.organization, "team": "pullers", "token_file": token_file,
            "rate": limit.rate(), "max_concurrent": AT_ONCE,
        })
    };
    let registries: Vec<_> = REGISTRIES.iter().zip(fakes).map(registry).collect();
    let file = directory.join("config.yaml");
    std::fs::write(&file, json!({"registries": registries}).to_string()).unwrap();
    // Everything else as it is without configuration.
    Setup::default()
        .env("HYPERFLEET_CONFIG", &file.to_string_lossy())
        .env("HYPERFLEET_INSTALLATION_ID", INSTALLATION)
        .env("HYPERFLEET_LIMITS_REQUESTS", "off")
        .env("HYPERFLEET_ROTATION_PROOF", "heartbeat,adapter")
}

/// Clusters with an account at each registry, due at some moment of the last ten minutes. Answers what each of
/// them presents.
async fn seed(directory: &Path, fakes: &[FakeQuay; 2]) -> Vec<(String, String)> {
    let database = directory.join("data/credentials.db");
    let store = SqliteStore::open(&format!("sqlite://{}", database.display()), 2).await.unwrap();
    let keyring = SharedKeyring::load(&directory.join("data/keys"), None).unwrap();
    let mut policy = policy();
    let rules = policy.registries.values().next().unwrap().clone();
    policy.registries = REGISTRIES
        .iter()
        .map(|id| (id.parse().unwrap(), rules.clone()))
        .collect::<BTreeMap<_, _>>();
    let username = |account: &Account| fakes[0].full(account.name.as_str());
    let mut auths = Vec::with_capacity(CLUSTERS);
    for number in 0..CLUSTERS {
        let name = format!("cls-{number}");
        let stock = Stock::active(&policy, SystemClock.now(), &name, &username);
        for (account, secret) in stock.store(&store, &keyring).await {
            let marker = Marker {
                installation: INSTALLATION.to_owned(),
                cluster_id: Some(stock.record().cluster_id.clone()),
                generation: account.born_generation,
            };
            let at = usize::from(account.registry_id.as_str() == REGISTRIES[1]);
            let full = fakes[at].full(account.name.as_str());
            fakes[at].add_robot(&full, secret.expose_secret(), &marker.to_text());
            if at == 0 {
                let pair = format!("{full}:{}", secret.expose_secret());
                auths.push((name.clone(), data_encoding::BASE64.encode(pair.as_bytes())));
            }
        }
    }
    store.close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&database);
    let mut shell = sqlx::sqlite::SqliteConnection::connect_with(&options).await.unwrap();
    let past = "(CAST(unixepoch('subsec') * 1e6 AS INTEGER) - abs(random() % 600000000))";
    let sql = format!(
        "UPDATE pull_secrets SET schedule_next_at = {past}; \
         UPDATE pull_secrets SET next_rotation_at = schedule_next_at, due_at = schedule_next_at"
    );
    shell.execute(AssertSqlSafe(sql)).await.unwrap();
    shell.close().await.unwrap();
    auths
}

type Times = BTreeMap<&'static str, Vec<Duration>>;

/// Asks for as long as is watched, at a steady pace, whatever the answers take.
async fn load(service: &Service, auths: &Arc<Vec<(String, String)>>) -> Times {
    let times = Arc::new(Mutex::new(Times::new()));
    let mut tasks = tokio::task::JoinSet::new();
    let mut pace = tokio::time::interval(EVERY);
    let (began, mut told) = (Instant::now(), Instant::now());
    let mut number = 0_usize;
    while began.elapsed() < WATCHED {
        pace.tick().await;
        number += 1;
        // Somebody else each time.
        let (cluster, auth) = &auths[number * 7919 % CLUSTERS];
        let path = format!("/v1/clusters/{cluster}/pull-secrets");
        let (kind, request) = match number % 5 {
            0 => ("POST a pull secret", service.request(Method::POST, &path).json(&json!({}))),
            1 | 2 => {
                let beat = service.anonymous(Method::POST, &format!("{path}/heartbeats"));
                ("heartbeat", beat.header("Authorization", format!("Basic {auth}")))
            }
            _ => ("GET a pull secret", service.request(Method::GET, &path)),
        };
        let times = times.clone();
        tasks.spawn(async move {
            let asked = Instant::now();
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            answer.bytes().await.unwrap();
            // Before its account is verified anew, a POST answers with what is served.
            assert_eq!(status, 200, "{kind}");
            times.lock().unwrap().entry(kind).or_default().push(asked.elapsed());
        });
        while let Some(done) = tasks.try_join_next() {
            done.unwrap();
        }
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            println!("{:>4} s", began.elapsed().as_secs());
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    Arc::into_inner(times).unwrap().into_inner().unwrap()
}

/// The number behind a name of the metrics page, of the series that has this label.
fn metric(page: &str, name: &str, label: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(name) && line.contains(label));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(f64::NAN)
}

async fn tell(service: &Service) {
    let page = service.metrics_page().await;
    let of = |name: &str| metric(&page, name, "op=\"commit\"");
    let commits = of("hyperfleet_credentials_db_duration_seconds_count");
    let took = of("hyperfleet_credentials_db_duration_seconds_sum");
    println!("{commits} commits of {:.2} ms with their waits", took * 1000.0 / commits);
    println!("due and not taken: {}", metric(&page, "hyperfleet_credentials_due_items", ""));
    let memory = metric(&page, "process_resident_memory_bytes", "");
    println!("resident memory {:.0} MB", memory / 1e6);
}

async fn in_phase(directory: &Path, phase: &str) -> u64 {
    let database = directory.join("data/credentials.db");
    let store = SqliteStore::open(&format!("sqlite://{}", database.display()), 1).await.unwrap();
    let phases = store.phase_counts().await.unwrap();
    store.close().await;
    phases.get(phase).copied().unwrap_or(0)
}

/// What the registry itself has seen.
fn judge(id: &str, fake: &FakeQuay, limit: Limit) {
    let mut calls: Vec<Timestamp> = Vec::new();
    let (mut open, mut most) = (0_usize, 0_usize);
    for entry in fake.log() {
        match entry.what {
            What::Request { op, .. } => {
                open += 1;
                most = most.max(open);
                // A create is two requests.
                if op != Op::JoinTeam {
                    calls.push(entry.at);
                }
            }
            What::Answered { .. } | What::Lost => open -= 1,
            What::Created { .. }
            | What::Deleted { .. }
            | What::SecretChanged { .. }
            | What::Joined { .. }
            | What::Left { .. }
            | What::Granted { .. }
            | What::LoggedIn { .. }
            | What::Pulled { .. } => {}
        }
    }
    let minute = Duration::from_secs(60);
    let mut within = 0;
    let mut first = 0;
    for (last, at) in calls.iter().enumerate() {
        while calls[first].plus(minute) <= *at {
            first += 1;
        }
        within = within.max(last + 1 - first);
    }
    println!("{id}: {} calls, at most {most} at once and {within} in a minute", calls.len());
    assert!(most <= AT_ONCE, "{id}: {most} at once");
    if let Some(allowed) = limit.0 {
        assert!(within <= allowed, "{id}: {within} calls in a minute");
    }
    assert_eq!(fake.reused_names(), Vec::<String>::new());
}

fn report(times: Times) {
    let mut missed = Vec::new();
    println!("| request | number | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|");
    for (kind, mut times) in times {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)];
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (half, most, last) = (at(500), at(990), times[times.len() - 1]);
        println!(
            "| {kind} | {} | {:.1} | {:.1} | {:.1} |",
            times.len(),
            ms(half),
            ms(most),
            ms(last)
        );
        if most > BAR {
            missed.push(kind);
        }
    }
    assert_eq!(missed, [""; 0], "p99 above {BAR:?}");
}
