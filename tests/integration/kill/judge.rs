//! What must be true, told from the registries' own record and from the rows, read beside the running service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::cluster::SILENT;
use super::scene::Database;
use super::truth::Registry;

/// The service's rows, read only. Both databases understand the same words here.
pub enum Rows {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

macro_rules! all {
    ($rows:expr, $sql:expr $(, $bind:expr)*) => {{
        let sql = $sql.to_owned();
        match $rows {
            Rows::Sqlite(db) => {
                let query = sqlx::query_as(sqlx::AssertSqlSafe(sql))$(.bind($bind))*;
                query.fetch_all(db).await.unwrap()
            }
            Rows::Postgres(db) => {
                let query = sqlx::query_as(sqlx::AssertSqlSafe(sql))$(.bind($bind))*;
                query.fetch_all(db).await.unwrap()
            }
        }
    }};
}

/// A call that nobody had answered when the process died.
#[derive(Debug, Clone)]
pub struct OpenCall {
    pub account: String,
    pub call: String,
    /// The last audit row at that time.
    pub after: i64,
}

/// One line of the audit.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Told {
    pub event_id: i64,
    pub action: String,
    pub account: String,
    pub call: Option<String>,
    pub token: Option<String>,
    pub outcome: Option<String>,
    pub adopted: Option<String>,
}

impl Told {
    /// SQLite spells a truth as a number.
    pub fn is_adopted(&self) -> bool {
        matches!(self.adopted.as_deref(), Some("1" | "true"))
    }
}

impl Rows {
    pub async fn open(database: &Database) -> Self {
        match database {
            Database::Sqlite(file) => {
                let options = SqliteConnectOptions::new().filename(file).read_only(true);
                let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options);
                Self::Sqlite(pool.await.unwrap())
            }
            Database::Postgres(_, url) => {
                let pool = PgPoolOptions::new().max_connections(2).connect(url);
                Self::Postgres(pool.await.unwrap())
            }
        }
    }

    async fn names(&self, registry: &Registry, phases: &str) -> BTreeSet<String> {
        let sql = format!("SELECT name FROM accounts WHERE registry_id = $1 AND {phases}");
        let rows: Vec<(String,)> = all!(self, sql, registry.id);
        rows.into_iter().map(|(name,)| name).collect()
    }

    /// True at every moment: nothing lives that no row names, nothing lives that a row calls gone, and no
    /// name ever comes back.
    pub async fn assert_safe(&self, registries: &[Arc<Registry>]) {
        for registry in registries {
            // The order matters: the service goes on meanwhile. A row comes before its account, and an
            // account goes before its row says so.
            let gone = self.names(registry, "phase = 'gone'").await;
            let live = registry.live();
            let named = self.names(registry, "1 = 1").await;
            let both: Vec<_> = live.intersection(&gone).collect();
            if let Some(name) = both.first() {
                let story = self.story(name).await;
                panic!("gone, but at {}: {both:?}\n{story}\n{}", registry.id, registry.story(name));
            }
            let unknown: Vec<_> = live.difference(&named).collect();
            assert!(unknown.is_empty(), "at {}, but in no row: {unknown:?}", registry.id);
            let again = registry.reused();
            assert!(again.is_empty(), "created a second time at {}: {again:?}", registry.id);
        }
    }

    /// What the audit tells of one account, a line each.
    async fn story(&self, name: &str) -> String {
        let sql = "SELECT CAST(at AS TEXT), action, CAST(detail AS TEXT) FROM audit_events \
                   WHERE account = $1 ORDER BY event_id";
        let lines: Vec<(String, String, String)> = all!(self, sql, name);
        let line =
            |(at, action, detail): &(String, String, String)| format!("{at} {action} {detail}");
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What the audit tells of one cluster, a line each.
    pub async fn story_of_cluster(&self, cluster: &str) -> String {
        let sql = "SELECT CAST(at AS TEXT), action || ' ' || coalesce(account, ''), CAST(detail AS TEXT) \
                   FROM audit_events WHERE cluster_id = $1 ORDER BY event_id DESC LIMIT 60";
        let lines: Vec<(String, String, String)> = all!(self, sql, cluster);
        let line =
            |(at, action, detail): &(String, String, String)| format!("{at} {action} {detail}");
        lines.iter().rev().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The calls that are announced and not answered.
    pub async fn open_calls(&self) -> Vec<OpenCall> {
        let sql = "SELECT name, call, (SELECT coalesce(max(event_id), 0) FROM audit_events) \
                   FROM accounts WHERE call_token IS NOT NULL";
        let rows: Vec<(String, String, i64)> = all!(self, sql);
        let open = rows.into_iter().map(|(account, call, after)| OpenCall { account, call, after });
        open.collect()
    }

    /// What is not at rest yet. Who is silent may rest between two generations.
    async fn restless(&self) -> Vec<(String, String)> {
        let sql = "SELECT name, phase FROM accounts WHERE phase NOT IN ('serving', 'gone') \
                     AND NOT (phase = 'retiring' AND cluster_id = $1) \
                   UNION ALL SELECT name, 'call ' || call FROM accounts WHERE call IS NOT NULL \
                   UNION ALL SELECT cluster_id, phase FROM rotations WHERE running \
                     AND NOT (phase IN ('dual_credential_period', 'rolling_back') AND cluster_id = $1) \
                   UNION ALL SELECT cluster_id, state FROM pull_secrets \
                     WHERE state NOT IN ('active', 'revoked') \
                     AND NOT (state = 'rotating' AND cluster_id = $1)";
        let mut rows: Vec<(String, String)> = all!(self, sql, SILENT);
        rows.sort_unstable();
        rows
    }

    /// Waits until nothing is under way any more, for as long as something changes within this time.
    pub async fn until_at_rest(&self, time: Duration) -> Result<(), String> {
        let (mut before, mut deadline) = (Vec::new(), Instant::now() + time);
        loop {
            let restless = self.restless().await;
            if restless.is_empty() {
                return Ok(());
            }
            // A slow machine takes long; what stands still has stopped.
            if restless != before {
                deadline = Instant::now() + time;
            }
            if Instant::now() > deadline {
                return Err(format!("no rest: {restless:#?}"));
            }
            before = restless;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// True at rest: each registry has exactly the accounts that are served or may still be in use, one per
    /// active cluster, two between two generations.
    pub async fn assert_exact(&self, registries: &[Arc<Registry>]) {
        for registry in registries {
            let live = registry.live();
            let named = self.names(registry, "phase IN ('serving', 'retiring')").await;
            assert_eq!(live, named, "{}", registry.id);
            let sql = "SELECT p.cluster_id, p.state, \
                         (SELECT count(*) FROM accounts a WHERE a.cluster_id = p.cluster_id \
                            AND a.registry_id = $1 AND a.phase = 'serving' \
                            AND a.born_generation = p.served_generation), \
                         (SELECT count(*) FROM accounts a WHERE a.cluster_id = p.cluster_id \
                            AND a.registry_id = $1 AND a.phase <> 'gone') FROM pull_secrets p";
            let rows: Vec<(String, String, i64, i64)> = all!(self, sql, registry.id);
            for (cluster, state, served, live) in rows {
                let expected = match state.as_str() {
                    "active" => (1, 1),
                    "rotating" => (1, 2),
                    _ => (0, 0),
                };
                assert_eq!((served, live), expected, "{cluster} {state} at {}", registry.id);
            }
        }
    }

    /// Whether some rotation is in this phase now.
    pub async fn any_in_phase(&self, phase: &str) -> bool {
        let sql = "SELECT cluster_id FROM rotations WHERE running AND phase = $1 LIMIT 1";
        let rows: Vec<(String,)> = all!(self, sql, phase);
        !rows.is_empty()
    }

    /// Whether one registry has done its part of a new generation and the other has not.
    pub async fn any_half_made(&self, done: &str, waiting: &str) -> bool {
        let sql = "SELECT r.cluster_id FROM rotations r JOIN accounts d ON d.cluster_id = r.cluster_id \
                     AND d.born_generation = r.to_generation AND d.registry_id = $1 \
                     AND d.phase = 'verified' \
                   JOIN accounts w ON w.cluster_id = r.cluster_id \
                     AND w.born_generation = r.to_generation AND w.registry_id = $2 \
                     AND w.phase IN ('planned', 'creating', 'created', 'burnt') \
                   WHERE r.running LIMIT 1";
        let rows: Vec<(String,)> = all!(self, sql, done, waiting);
        !rows.is_empty()
    }

    /// How many pull secrets are in this state.
    pub async fn in_state(&self, state: &str) -> usize {
        let sql = "SELECT count(*) FROM pull_secrets WHERE state = $1";
        let rows: Vec<(i64,)> = all!(self, sql, state);
        usize::try_from(rows[0].0).unwrap()
    }

    /// A slot of the schedule completes at most once; how many did.
    pub async fn slots_completed(&self) -> usize {
        let sql = "SELECT cluster_id, count(*) FROM rotations \
                   WHERE slot IS NOT NULL AND status = 'completed' GROUP BY cluster_id, slot";
        let rows: Vec<(String, i64)> = all!(self, sql);
        let twice: Vec<_> = rows.iter().filter(|(_, times)| *times > 1).collect();
        assert!(twice.is_empty(), "slots that completed twice: {twice:?}");
        rows.len()
    }

    /// How the rotations went: a run in which none is rolled back has not tried much.
    pub async fn rotations(&self) -> Vec<(String, String, i64)> {
        let sql = "SELECT reason, status, count(*) FROM rotations GROUP BY 1, 2 ORDER BY 1, 2";
        all!(self, sql)
    }

    /// What the audit tells of accounts.
    pub async fn told(&self) -> Vec<Told> {
        let sql = "SELECT event_id, action, account, detail ->> 'call' AS call, \
                     detail ->> 'token' AS token, detail ->> 'outcome' AS outcome, \
                     CAST(detail ->> 'adopted' AS TEXT) AS adopted \
                   FROM audit_events WHERE account IS NOT NULL ORDER BY event_id";
        all!(self, sql)
    }
}

/// Every call was announced once and answered once, and no name was created again unless the create before
/// it was definitely not applied.
pub fn assert_audit(told: &[Told]) {
    let mut announced: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut creates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in told {
        let token = line.token.as_deref().unwrap_or_default();
        match line.action.as_str() {
            "call_announced" => announced.entry(token).or_default().0 += 1,
            "call_answered" => {
                let counts = announced.entry(token).or_default();
                assert_eq!(counts.0, 1, "answered before it was announced: {line:?}");
                counts.1 += 1;
                if line.call.as_deref() == Some("create") {
                    let outcome = line.outcome.as_deref().unwrap_or_default();
                    creates.entry(&line.account).or_default().push(outcome);
                }
            }
            _ => {}
        }
    }
    let uneven: Vec<_> = announced.iter().filter(|(_, counts)| **counts != (1, 1)).collect();
    assert!(uneven.is_empty(), "not announced once and answered once: {uneven:#?}");
    for (name, outcomes) in creates {
        let (_, before) = outcomes.split_last().unwrap();
        assert!(before.iter().all(|o| *o == "call_failed"), "{name} created twice: {outcomes:?}");
    }
}

/// No change came in at the registry that had not been announced: at most one request per announced call.
pub fn assert_announced(registry: &Registry, told: &[Told]) {
    let mut announced: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in told.iter().filter(|line| line.action == "call_announced") {
        let call = line.call.as_deref().unwrap_or_default();
        *announced.entry((&line.account, call)).or_default() += 1;
    }
    for ((account, call), asked) in registry.changes_asked_for() {
        let intents = announced.get(&(account.as_str(), call)).copied().unwrap_or(0);
        assert!(asked <= intents, "{account}: {asked} times {call}, announced {intents} times");
    }
}
