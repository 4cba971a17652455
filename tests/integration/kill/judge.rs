//! What must be true, told from the registry's own file and from the rows, read beside the running service.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::cluster::SILENT;

/// The service's rows, read only.
pub struct Rows(SqlitePool);

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
    pub adopted: Option<bool>,
}

/// The accounts that the registry knows now.
pub fn accounts_in(htpasswd: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(htpasswd).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect()
}

/// A login with this entry of a pull secret would succeed.
pub async fn assert_works(htpasswd: &Path, auth: &str) {
    let plain = base64::engine::general_purpose::STANDARD.decode(auth).unwrap();
    let plain = String::from_utf8(plain).unwrap();
    let (name, secret) = plain.split_once(':').unwrap();
    let hash = accounts_in(htpasswd).remove(name);
    let Some(hash) = hash else { panic!("handed out, but not at the registry: {name}") };
    let secret = secret.to_owned();
    let verified = tokio::task::spawn_blocking(move || bcrypt::verify(secret, &hash).unwrap());
    assert!(verified.await.unwrap(), "handed out, but the registry refuses it: {name}");
}

impl Rows {
    pub async fn open(database: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(database).read_only(true);
        Self(SqlitePoolOptions::new().max_connections(2).connect_with(options).await.unwrap())
    }

    async fn names(&self, phases: &str) -> BTreeSet<String> {
        let sql = format!("SELECT name FROM accounts WHERE {phases}");
        let rows: Vec<(String,)> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.0).await.unwrap();
        rows.into_iter().map(|(name,)| name).collect()
    }

    /// True at every moment: nothing lives that no row names, nothing lives that a row calls gone.
    pub async fn assert_safe(&self, htpasswd: &Path) {
        // The order matters: the service goes on meanwhile. A row comes before its account, and an account
        // goes before its row says so.
        let gone = self.names("phase = 'gone'").await;
        let live: BTreeSet<String> = accounts_in(htpasswd).into_keys().collect();
        let named = self.names("1").await;
        let both: Vec<_> = live.intersection(&gone).collect();
        assert!(both.is_empty(), "gone, but at the registry: {both:?}");
        let unknown: Vec<_> = live.difference(&named).collect();
        assert!(unknown.is_empty(), "at the registry, but in no row: {unknown:?}");
    }

    /// The calls that are announced and not answered.
    pub async fn open_calls(&self) -> Vec<OpenCall> {
        let sql = "SELECT name, call, (SELECT coalesce(max(event_id), 0) FROM audit_events) \
                   FROM accounts WHERE call_token IS NOT NULL";
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as(sql).fetch_all(&self.0).await.unwrap();
        let open = rows.into_iter().map(|(account, call, after)| OpenCall { account, call, after });
        open.collect()
    }

    /// What is not at rest yet. Who is silent may rest between two generations.
    async fn restless(&self) -> Vec<(String, String)> {
        let sql = "SELECT name, phase FROM accounts WHERE phase NOT IN ('serving', 'gone') \
                     AND NOT (phase = 'retiring' AND cluster_id = ?1) \
                   UNION ALL SELECT name, 'call ' || call FROM accounts WHERE call IS NOT NULL \
                   UNION ALL SELECT cluster_id, phase FROM rotations WHERE running = 1 \
                     AND NOT (phase IN ('dual_credential_period', 'rolling_back') AND cluster_id = ?1) \
                   UNION ALL SELECT cluster_id, state FROM pull_secrets \
                     WHERE state NOT IN ('active', 'revoked') \
                     AND NOT (state = 'rotating' AND cluster_id = ?1)";
        sqlx::query_as(sql).bind(SILENT).fetch_all(&self.0).await.unwrap()
    }

    /// Waits until nothing is under way any more.
    pub async fn until_at_rest(&self, time: Duration) -> Result<(), String> {
        let deadline = Instant::now() + time;
        loop {
            let restless = self.restless().await;
            if restless.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("no rest: {restless:#?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// True at rest: the registry has exactly the accounts that are served or may still be in use, one per
    /// active cluster, two between two generations.
    pub async fn assert_exact(&self, htpasswd: &Path) {
        let live: BTreeSet<String> = accounts_in(htpasswd).into_keys().collect();
        assert_eq!(live, self.names("phase IN ('serving', 'retiring')").await);
        let sql = "SELECT p.cluster_id, p.state, \
                     (SELECT count(*) FROM accounts a WHERE a.cluster_id = p.cluster_id \
                        AND a.phase = 'serving' AND a.born_generation = p.served_generation), \
                     (SELECT count(*) FROM accounts a WHERE a.cluster_id = p.cluster_id \
                        AND a.phase <> 'gone') FROM pull_secrets p";
        let rows: Vec<(String, String, i64, i64)> =
            sqlx::query_as(sql).fetch_all(&self.0).await.unwrap();
        for (cluster, state, served, live) in rows {
            let expected = match state.as_str() {
                "active" => (1, 1),
                "rotating" => (1, 2),
                _ => (0, 0),
            };
            assert_eq!((served, live), expected, "{cluster} {state}");
        }
    }

    /// How the rotations went: a run in which none is rolled back has not tried much.
    pub async fn rotations(&self) -> Vec<(String, String, i64)> {
        let sql = "SELECT reason, status, count(*) FROM rotations GROUP BY 1, 2 ORDER BY 1, 2";
        sqlx::query_as(sql).fetch_all(&self.0).await.unwrap()
    }

    /// What the audit tells of accounts.
    pub async fn told(&self) -> Vec<Told> {
        let sql = "SELECT event_id, action, account, json_extract(detail, '$.call') AS call, \
                     json_extract(detail, '$.token') AS token, \
                     json_extract(detail, '$.outcome') AS outcome, \
                     json_extract(detail, '$.adopted') AS adopted \
                   FROM audit_events WHERE account IS NOT NULL ORDER BY event_id";
        sqlx::query_as(sql).fetch_all(&self.0).await.unwrap()
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
