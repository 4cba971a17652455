//! When robots were used last, by the organisation's log or by `last_accessed`.
//!
//! The log is the better word: it has `pull_repo` entries with the robot's name, apart from mere
//! logins, so our own verifications are not in it. `last_accessed` knows logins only.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Deserialize;

use super::client::{Api, Failure, Request, misconfigured};
use super::dates;
use super::errors::{self, no_sense};
use super::names::Organization;
use super::own_logins::OwnLogins;
use super::robots::Robots;
use crate::ids::AccountName;
use crate::registries::{CallContext, Trouble, Usage};
use crate::time::Timestamp;

const DAY: Duration = Duration::from_hours(24);
/// Whole days are asked for in any case; this matters around midnight only.
const MARGIN_OF_CLOCKS: Duration = Duration::from_mins(5);

/// The names that are asked about, by login name, and what has been found.
struct Wanted<'a> {
    names: HashMap<String, &'a AccountName>,
    found: HashMap<&'a AccountName, Timestamp>,
    since: Timestamp,
}

impl<'a> Wanted<'a> {
    fn new(organization: &Organization, names: &'a [AccountName], since: Timestamp) -> Self {
        let names = names.iter().map(|name| (organization.full(name.as_str()), name)).collect();
        Self { names, found: HashMap::new(), since }
    }

    fn note(&mut self, username: &str, at: Timestamp) {
        if at < self.since {
            return;
        }
        if let Some(name) = self.names.get(username) {
            let last = self.found.entry(name).or_insert(at);
            *last = at.max(*last);
        }
    }

    fn done(self) -> Vec<Usage> {
        let usage = |(name, at): (&AccountName, _)| Usage { name: name.clone(), last_used_at: at };
        self.found.into_iter().map(usage).collect()
    }
}

/// By the listing. A time that may be that of our own verification says nothing and is left out.
pub(super) async fn by_last_accessed(
    call: &CallContext,
    robots: &Robots<'_>,
    own: &OwnLogins,
    names: &[AccountName],
    since: Timestamp,
) -> Result<Vec<Usage>, Trouble> {
    let mut wanted = Wanted::new(robots.organization, names, since);
    for (_, row) in robots.list(call).await? {
        let Some(text) = row.last_accessed.filter(|_| wanted.names.contains_key(&row.name)) else {
            continue;
        };
        let at = dates::parse(&text).ok_or_else(|| no_sense().trouble())?;
        if own.is_foreign(&row.name, at) {
            wanted.note(&row.name, at);
        }
    }
    Ok(wanted.done())
}

#[derive(Deserialize)]
struct Page {
    logs: Vec<LogEntry>,
    #[serde(default)]
    next_page: Option<String>,
}

#[derive(Deserialize)]
struct LogEntry {
    kind: String,
    datetime: String,
    #[serde(default)]
    performer: Option<Performer>,
}

#[derive(Deserialize)]
struct Performer {
    #[serde(default)]
    name: Option<String>,
}

/// By the log. It is read to its end or not at all: a part of it would look like silence.
pub(super) async fn by_log(
    call: &CallContext,
    api: &Api,
    organization: &Organization,
    names: &[AccountName],
    since: Timestamp,
    now: Timestamp,
) -> Result<Vec<Usage>, Trouble> {
    let mut wanted = Wanted::new(organization, names, since);
    // Days of the registry's clock, which may differ from ours.
    let (start, end) = (dates::day(since.minus(MARGIN_OF_CLOCKS)), dates::day(now.plus(DAY)));
    let (Some(start), Some(end)) = (start, end) else { return Err(no_sense().trouble()) };
    let path = ["organization", organization.as_str(), "logs"];
    let mut next: Option<String> = None;
    let mut seen = HashSet::new();
    let mut order = NewestFirst::default();
    loop {
        let mut query = vec![("starttime", start.as_str()), ("endtime", end.as_str())];
        query.extend(next.as_deref().map(|next| ("next_page", next)));
        let request = Request { query: &query, ..Request::new(Method::GET, &path) };
        let answer = api.manage(call, request).await.map_err(Failure::trouble)?;
        if answer.status != StatusCode::OK {
            return Err(errors::read(&answer).failure().trouble());
        }
        let Some(page) = answer.json::<Page>() else { return Err(no_sense().trouble()) };
        for entry in &page.logs {
            let at = dates::parse(&entry.datetime).ok_or_else(|| no_sense().trouble())?;
            order.note(at);
            let performer = entry.performer.as_ref().and_then(|by| by.name.as_deref());
            if let ("pull_repo", Some(name)) = (entry.kind.as_str(), performer) {
                wanted.note(name, at);
            }
        }
        match page.next_page {
            Some(token) if !token.is_empty() && !order.is_past(since) => {
                if !seen.insert(token.clone()) {
                    return Err(misconfigured("the organisation's log leads round in a circle"));
                }
                next = Some(token);
            }
            Some(_) | None => return Ok(wanted.done()),
        }
    }
}

/// The log comes newest first. As long as that has held, what lies behind an older entry is older
/// still, and the rest of the day need not be read.
#[derive(Default)]
struct NewestFirst {
    oldest: Option<Timestamp>,
    broken: bool,
}

impl NewestFirst {
    fn note(&mut self, at: Timestamp) {
        self.broken |= self.oldest.is_some_and(|oldest| at > oldest);
        self.oldest = Some(at);
    }

    fn is_past(&self, since: Timestamp) -> bool {
        !self.broken && self.oldest.is_some_and(|oldest| oldest < since)
    }
}
