//! Robots: the four calls about them, in Quay's words.
//!
//! What an answer means for the service is decided in `mod`.

use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Answer, Api, Failure, LISTING, Request, misconfigured};
use super::errors::{self, Said, no_sense};
use super::names::Organization;
use crate::registries::{CallContext, Trouble};

/// One answer holds all robots of the organisation; more than this are not asked for.
const MOST_ROBOTS: usize = 100_000;

/// A robot as its own address tells it.
#[derive(Deserialize)]
pub(super) struct Robot {
    name: String,
    pub(super) token: SecretString,
    #[serde(default)]
    pub(super) description: Option<String>,
}

/// A robot as the listing tells it.
#[derive(Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) last_accessed: Option<String>,
}

/// A `PUT` that made no robot.
pub(super) struct NotMade {
    pub(super) said: Said,
    /// Quay says `400` to everything about a robot, so the state has to tell.
    pub(super) bad_request: bool,
}

/// How a robot went.
pub(super) enum Deleted {
    Now,
    Missing,
    UsedByMirror,
}

pub(super) struct Robots<'a> {
    pub(super) api: &'a Api,
    pub(super) organization: &'a Organization,
}

impl Robots<'_> {
    /// `body` is always valid JSON: malformed one is taken for an empty one and makes a robot all
    /// the same (measured).
    pub(super) async fn put(
        &self,
        call: &CallContext,
        short: &str,
        body: &Value,
    ) -> Result<Robot, NotMade> {
        let path = ["organization", self.organization.as_str(), "robots", short];
        let request = Request { body: Some(body), ..Request::new(Method::PUT, &path) };
        let trouble = |failure| NotMade { said: Said::Trouble(failure), bad_request: false };
        let answer = self.api.manage(call, request).await.map_err(trouble)?;
        if answer.status.is_success() {
            // It may have been made, whatever the answer looks like.
            return self.robot(&answer, short).ok_or_else(|| trouble(no_sense()));
        }
        let bad_request = answer.status == StatusCode::BAD_REQUEST;
        Err(NotMade { said: errors::read(&answer), bad_request })
    }

    /// None when there is no such robot.
    pub(super) async fn get(
        &self,
        call: &CallContext,
        short: &str,
    ) -> Result<Option<Robot>, Trouble> {
        let path = ["organization", self.organization.as_str(), "robots", short];
        let request = Request::new(Method::GET, &path);
        let answer = self.api.manage(call, request).await.map_err(Failure::trouble)?;
        if answer.status == StatusCode::OK {
            return match self.robot(&answer, short) {
                Some(robot) => Ok(Some(robot)),
                None => Err(no_sense().trouble()),
            };
        }
        match errors::read(&answer) {
            Said::RobotMissing => Ok(None),
            said @ (Said::RobotExists
            | Said::AlreadyMember
            | Said::UsedByMirror
            | Said::Invalid
            | Said::Trouble(_)) => Err(said.failure().trouble()),
        }
    }

    pub(super) async fn delete(&self, call: &CallContext, short: &str) -> Result<Deleted, Failure> {
        let path = ["organization", self.organization.as_str(), "robots", short];
        let answer = self.api.manage(call, Request::new(Method::DELETE, &path)).await?;
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(Deleted::Now);
        }
        match errors::read(&answer) {
            Said::RobotMissing => Ok(Deleted::Missing),
            Said::UsedByMirror => Ok(Deleted::UsedByMirror),
            said @ (Said::RobotExists | Said::AlreadyMember | Said::Invalid | Said::Trouble(_)) => {
                Err(said.failure())
            }
        }
    }

    /// Every robot of exactly our organisation, with its short name; never a secret.
    pub(super) async fn list(&self, call: &CallContext) -> Result<Vec<(String, Row)>, Trouble> {
        #[derive(Deserialize)]
        struct Listing {
            robots: Vec<Row>,
        }
        let path = ["organization", self.organization.as_str(), "robots"];
        let limit = MOST_ROBOTS.to_string();
        // Left out, `token` means true: every secret of the organisation in one answer (measured).
        let query = [("permissions", "false"), ("token", "false"), ("limit", limit.as_str())];
        let request = Request { query: &query, limit: LISTING, ..Request::new(Method::GET, &path) };
        let answer = self.api.manage(call, request).await.map_err(Failure::trouble)?;
        if answer.status != StatusCode::OK {
            return Err(errors::read(&answer).failure().trouble());
        }
        let Some(Listing { robots }) = answer.json() else { return Err(no_sense().trouble()) };
        if robots.len() >= MOST_ROBOTS {
            // A part of the robots would look like the loss of the others.
            return Err(misconfigured("the organisation has more robots than can be listed"));
        }
        let own = |row: Row| {
            let short = self.organization.short(&row.name)?.to_owned();
            Some((short, row))
        };
        Ok(robots.into_iter().filter_map(own).collect())
    }

    /// The robot of an answer, if it is the one that was asked for.
    fn robot(&self, answer: &Answer, short: &str) -> Option<Robot> {
        let robot: Robot = answer.json()?;
        let usable = !secrecy::ExposeSecret::expose_secret(&robot.token).is_empty();
        (usable && robot.name == self.organization.full(short)).then_some(robot)
    }
}
