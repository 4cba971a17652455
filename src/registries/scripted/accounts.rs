//! The accounts of the scripted registry and everything that happened to them, under one lock.
//!
//! Knows no faults and no trait: it does what it is told and writes it down.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::fault::{CallInfo, Fault, Verb};
use super::truth::{Answer, Entry, What};
use crate::registries::Marker;
use crate::time::Timestamp;

/// One account that exists at the moment.
#[derive(Debug, Clone)]
pub struct LiveAccount {
    /// The short name.
    pub name: String,
    /// The full login name.
    pub username: String,
    /// The registry's own id.
    pub remote_id: String,
    /// The intent it was made for; none for a foreign account.
    pub marker: Option<Marker>,
    pub(super) secret: SecretString,
}

pub(super) type Script = Arc<dyn Fn(&CallInfo) -> Option<Fault> + Send + Sync>;

#[derive(Default)]
pub(super) struct World {
    pub(super) accounts: BTreeMap<String, LiveAccount>,
    pub(super) log: Vec<Entry>,
    pub(super) queues: HashMap<Verb, VecDeque<Option<Fault>>>,
    pub(super) script: Option<Script>,
    pub(super) used: BTreeMap<String, Timestamp>,
    pub(super) calls_of: HashMap<Verb, usize>,
    calls: u64,
    made: u64,
    running: usize,
    pub(super) peak: usize,
}

impl World {
    fn write(&mut self, call: Option<u64>, what: What) {
        let seq = self.log.len() as u64 + 1;
        self.log.push(Entry { seq, call, at: Instant::now(), what });
    }

    /// Opens a call; its number and what is to go wrong with it: the queue first, then the script.
    pub(super) fn begin(&mut self, verb: Verb, name: &str) -> (u64, CallInfo) {
        let count = self.calls_of.entry(verb).or_default();
        let nth = *count;
        *count += 1;
        self.calls += 1;
        self.running += 1;
        self.peak = self.peak.max(self.running);
        self.write(Some(self.calls), What::Begin { verb, name: name.to_owned() });
        (self.calls, CallInfo { verb, name: name.to_owned(), nth })
    }

    pub(super) fn end(&mut self, call: u64, answer: Answer) {
        self.running -= 1;
        self.write(Some(call), What::End { answer });
    }

    /// Makes an account unless the name is taken. Without a secret the registry makes one.
    pub(super) fn create(
        &mut self,
        call: Option<u64>,
        name: &str,
        username: String,
        marker: Option<Marker>,
        secret: Option<SecretString>,
    ) -> Option<LiveAccount> {
        if self.accounts.contains_key(name) {
            return None;
        }
        self.made += 1;
        // Predictable on purpose: a failing run can be repeated. Never twice the same.
        let own = || SecretString::from(format!("scripted-secret-{}-of-{name}", self.made));
        let account = LiveAccount {
            name: name.to_owned(),
            username,
            remote_id: format!("id-{}", self.made),
            marker: marker.clone(),
            secret: secret.unwrap_or_else(own),
        };
        self.accounts.insert(name.to_owned(), account.clone());
        self.write(call, What::Created { name: name.to_owned(), marker });
        Some(account)
    }

    pub(super) fn delete(&mut self, call: Option<u64>, name: &str) -> bool {
        let existed = self.accounts.remove(name).is_some();
        if existed {
            self.write(call, What::Deleted { name: name.to_owned() });
        }
        existed
    }

    pub(super) fn by_username(&self, username: &str) -> Option<&LiveAccount> {
        self.accounts.values().find(|account| account.username == username)
    }

    pub(super) fn login(&self, username: &str, secret: &str) -> bool {
        let account = self.by_username(username);
        account.is_some_and(|account| account.secret.expose_secret() == secret)
    }

    /// Names that came into being more than once.
    pub(super) fn reused(&self) -> Vec<String> {
        let mut times = BTreeMap::<&str, usize>::new();
        for entry in &self.log {
            if let What::Created { name, .. } = &entry.what {
                *times.entry(name).or_default() += 1;
            }
        }
        times.into_iter().filter(|(_, n)| *n > 1).map(|(name, _)| name.to_owned()).collect()
    }
}
