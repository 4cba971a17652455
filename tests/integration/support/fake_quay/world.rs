//! What there is at the fake: organisations, robots, tokens, the organisation's log.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use hyperfleet_credentials::time::{Clock, SystemClock, Timestamp};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::fault::{CallInfo, Fault, Op};
use super::truth::{Entry, What};

pub type Script = Arc<dyn Fn(&CallInfo) -> Option<Fault> + Send + Sync>;

#[derive(Default)]
pub struct Organization {
    pub teams: BTreeMap<String, Team>,
    /// Who may read each repository of its own right.
    pub repositories: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Default)]
pub struct Team {
    pub members: BTreeSet<String>,
    pub repositories: BTreeSet<String>,
}

pub struct Robot {
    pub token: String,
    pub created: Timestamp,
    pub last_accessed: Option<Timestamp>,
    pub description: String,
    pub metadata: Value,
    pub mirrors: bool,
}

pub struct LogRow {
    pub organization: String,
    pub at: Timestamp,
    pub kind: &'static str,
    pub performer: String,
    pub metadata: Value,
}

/// Everything under one lock.
pub struct World {
    pub host: String,
    pub ahead: Duration,
    pub organizations: BTreeMap<String, Organization>,
    pub robots: BTreeMap<String, Robot>,
    /// OAuth tokens, each with the organisations that it administers.
    pub tokens: HashMap<String, BTreeSet<String>>,
    pub robots_disallowed: bool,
    pub read_only: bool,
    pub rows: Vec<LogRow>,
    pub log: Vec<Entry>,
    pub requests: u64,
    pub secrets_listed: usize,
    pub calls_of: HashMap<Op, usize>,
    pub queues: HashMap<Op, VecDeque<Option<Fault>>>,
    pub script: Option<Script>,
    seed: String,
    drawn: u64,
}

impl World {
    pub fn new(host: String) -> Self {
        Self {
            host,
            ahead: Duration::ZERO,
            organizations: BTreeMap::new(),
            robots: BTreeMap::new(),
            tokens: HashMap::new(),
            robots_disallowed: false,
            read_only: false,
            rows: Vec::new(),
            log: Vec::new(),
            requests: 0,
            secrets_listed: 0,
            calls_of: HashMap::new(),
            queues: HashMap::new(),
            script: None,
            seed: uuid::Uuid::now_v7().to_string(),
            drawn: 0,
        }
    }

    pub fn now(&self) -> Timestamp {
        SystemClock.now().plus(self.ahead)
    }

    pub fn note(&mut self, request: Option<u64>, what: What) {
        let seq = self.log.len() as u64 + 1;
        self.log.push(Entry { seq, request, at: self.now(), what });
    }

    /// So many characters of `A-Z0-9`, as robots' tokens are.
    pub fn random(&mut self, length: usize) -> String {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let mut text = String::new();
        while text.len() < length {
            self.drawn += 1;
            let bytes = Sha256::digest(format!("{} {}", self.seed, self.drawn));
            text.extend(bytes.iter().map(|byte| char::from(alphabet[usize::from(*byte) % 36])));
        }
        text.truncate(length);
        text
    }

    pub fn create(&mut self, request: Option<u64>, full: &str, description: &str, metadata: Value) {
        let robot = Robot {
            token: self.random(64),
            created: self.now(),
            last_accessed: None,
            description: description.to_owned(),
            metadata,
            mirrors: false,
        };
        self.robots.insert(full.to_owned(), robot);
        self.note(request, What::Created { robot: full.to_owned() });
    }

    /// Memberships and permissions go with the robot (measured).
    pub fn delete(&mut self, request: Option<u64>, full: &str) -> bool {
        let existed = self.robots.remove(full).is_some();
        for organization in self.organizations.values_mut() {
            for team in organization.teams.values_mut() {
                team.members.remove(full);
            }
            for readers in organization.repositories.values_mut() {
                readers.remove(full);
            }
        }
        if existed {
            self.note(request, What::Deleted { robot: full.to_owned() });
        }
        existed
    }

    /// A Basic credential. A success is written down, at most once in 60 s (measured).
    pub fn login(&mut self, request: Option<u64>, username: &str, secret: &str) -> bool {
        let now = self.now();
        let read_only = self.read_only;
        let Some(robot) = self.robots.get_mut(username).filter(|robot| robot.token == secret)
        else {
            return false;
        };
        let due = |last: Timestamp| now.since(last) >= Duration::from_secs(60);
        if !read_only && robot.last_accessed.is_none_or(due) {
            robot.last_accessed = Some(now);
        }
        self.row("login_success", username, json!({ "type": "v2auth", "kind": "robot" }));
        self.note(request, What::LoggedIn { robot: username.to_owned() });
        true
    }

    pub fn row(&mut self, kind: &'static str, performer: &str, metadata: Value) {
        let organization = performer.split('+').next().unwrap_or_default().to_owned();
        let (at, performer) = (self.now(), performer.to_owned());
        self.rows.push(LogRow { organization, at, kind, performer, metadata });
    }

    pub fn may_read(&self, robot: &str, organization: &str, repository: &str) -> bool {
        self.organizations.get(organization).is_some_and(|organization| {
            let readers = organization.repositories.get(repository);
            let by_team = |team: &Team| {
                team.members.contains(robot) && team.repositories.contains(repository)
            };
            readers.is_some_and(|readers| {
                readers.contains(robot) || organization.teams.values().any(by_team)
            })
        })
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = BASE64URL_NOPAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
        let text = format!("{header}.{}", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
        format!("{text}.{}", self.signature(&text))
    }

    /// The claims of a token of ours that has not expired.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        if signature != self.signature(text) {
            return None;
        }
        let payload = BASE64URL_NOPAD.decode(text.split_once('.')?.1.as_bytes()).ok()?;
        let claims: Value = serde_json::from_slice(&payload).ok()?;
        let expires = claims["exp"].as_i64()?.checked_mul(1_000_000)?;
        (self.now() < Timestamp::from_micros(expires)).then_some(claims)
    }

    fn signature(&self, text: &str) -> String {
        BASE64URL_NOPAD.encode(&Sha256::digest(format!("{} {text}", self.seed)))
    }
}

/// As Quay writes times: "Mon, 30 Nov 2026 20:01:34 -0000".
pub fn rfc_2822(at: Timestamp) -> String {
    DateTimePrinter::new().timestamp_to_string(&to_jiff(at)).unwrap()
}

/// As HTTP writes them.
pub fn http_date(at: Timestamp) -> String {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&to_jiff(at)).unwrap()
}

fn to_jiff(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(at.as_micros()).unwrap()
}
