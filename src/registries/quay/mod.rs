//! Quay: one robot account per account, in one organisation.
//!
//! Quay makes the secret and tells it again whenever it is asked, so a create whose answer was lost
//! can be adopted. A robot is of use only once it sits in the team and may read the repositories;
//! `create` and `lookup` both see to that before they say that it is there (decision 0010).
//!
//! Requests are in `client`, what refusals say in `errors`, robots in `robots`, rights in `rights`,
//! logins in `auth`, evidence of use in `usage` and `own_logins`.

mod auth;
mod client;
mod dates;
mod errors;
mod names;
mod own_logins;
mod rights;
mod robots;
mod settings;
#[cfg(test)]
mod tests;
mod timely;
mod token_file;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Client;
use secrecy::SecretString;
use serde_json::json;

use self::client::{Api, Failure, misconfigured};
use self::errors::Said;
use self::names::Organization;
use self::own_logins::OwnLogins;
use self::rights::Rights;
use self::robots::{Deleted, NotMade, Robot, Robots};
use self::settings::is_team;
pub use self::settings::{QuayError, QuaySettings, UsageSource};
use self::token_file::TokenFile;
use super::{
    CallContext, Capabilities, CreateIntent, CreateOutcome, ListError, ListedAccount,
    LookupOutcome, Marker, Ownership, Registry, RevokeOutcome, Trouble, TroubleKind, Usage,
    VerifyOutcome,
};
use crate::ids::AccountName;
use crate::time::{Clock, SystemClock, Timestamp};

/// Quay's own bound for a description (measured).
const LONGEST_DESCRIPTION: usize = 255;

/// One organisation of one Quay.
pub struct Quay {
    api: Api,
    organization: Organization,
    rights: Rights,
    service: String,
    usage: UsageSource,
    own_logins: OwnLogins,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
}

impl Quay {
    /// Opens nothing and connects to nothing. The client must follow no redirects; whether it may
    /// speak plain `http` is its business, the time limit comes from each call.
    ///
    /// # Errors
    /// [`QuayError`] for settings that cannot work.
    pub fn new(settings: QuaySettings, client: Client) -> Result<Self, QuayError> {
        Self::with_clock(settings, client, Arc::new(SystemClock))
    }

    /// The same with another wall clock, which only evidence of use is compared with.
    ///
    /// # Errors
    /// [`QuayError`] for settings that cannot work.
    pub fn with_clock(
        settings: QuaySettings,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QuayError> {
        let url = settings.url;
        let plain = url.username().is_empty() && url.password().is_none();
        if !plain || !matches!(url.scheme(), "http" | "https") {
            return Err(QuayError::Url);
        }
        let host = url.host_str().ok_or(QuayError::Url)?;
        let service = settings.service.unwrap_or_else(|| match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        });
        let organization =
            Organization::new(&settings.organization).ok_or(QuayError::Organization)?;
        let team = settings.team;
        if team.as_deref().is_some_and(|name| !is_team(name)) {
            return Err(QuayError::Team);
        }
        let repository = |name: &String| names::repository(&organization, name);
        let repositories: Option<Vec<String>> =
            settings.repositories.iter().map(repository).collect();
        let rights = Rights { team, repositories: repositories.ok_or(QuayError::Repository)? };
        let capabilities = Capabilities {
            secret_readable: true,
            own_secret: false,
            marker: true,
            usage_evidence: match settings.usage {
                UsageSource::Log | UsageSource::LastAccessed => true,
                UsageSource::None => false,
            },
            token_ttl: settings.token_ttl,
            max_name_length: organization.longest_short(),
        };
        Ok(Self {
            api: Api::new(url, client, TokenFile::new(settings.token_file)),
            organization,
            rights,
            service,
            usage: settings.usage,
            own_logins: OwnLogins::default(),
            clock,
            capabilities,
        })
    }

    fn robots(&self) -> Robots<'_> {
        Robots { api: &self.api, organization: &self.organization }
    }

    async fn give_rights(&self, call: &CallContext, short: &str) -> Result<(), Trouble> {
        let given = self.rights.give(call, &self.api, &self.organization, short).await;
        given.map_err(Failure::trouble)
    }

    /// The `PUT` made no robot, or nobody knows. Quay tells most of it by `400`, so what is there
    /// now decides. Where it clearly said that the name was taken, the name is spent whatever is
    /// there now: created once more, it would revive the registry tokens of the robot before.
    async fn not_made(&self, call: &CallContext, short: &str, refusal: NotMade) -> CreateOutcome {
        let NotMade { said, bad_request } = refusal;
        if let Said::RobotExists = said {
            return CreateOutcome::AlreadyExists;
        }
        if bad_request {
            match self.robots().get(call, short).await {
                Ok(Some(_)) => return CreateOutcome::AlreadyExists,
                Ok(None) => {}
                Err(trouble) => return CreateOutcome::Unavailable(trouble),
            }
        }
        match said {
            Said::Invalid => CreateOutcome::Refused(
                "the registry refuses the name or the description".to_owned(),
            ),
            said @ (Said::RobotMissing
            | Said::RobotExists
            | Said::AlreadyMember
            | Said::UsedByMirror
            | Said::Trouble(_)) => match said.failure() {
                Failure::NotApplied(trouble) => CreateOutcome::Unavailable(trouble),
                Failure::Lost(trouble) => CreateOutcome::Unknown(trouble),
            },
        }
    }

    fn ownership(robot: &Robot, marker: &Marker) -> Ownership {
        let found = robot.description.as_deref().and_then(Marker::parse);
        if found.as_ref() == Some(marker) { Ownership::ThisIntent } else { Ownership::Foreign }
    }
}

#[async_trait]
impl Registry for Quay {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn create(&self, call: &CallContext, intent: &CreateIntent) -> CreateOutcome {
        let short = intent.name.as_str();
        if intent.secret.is_some() {
            // It would be ignored without a word (measured).
            return CreateOutcome::Refused("the registry makes the secret itself".to_owned());
        }
        if !self.organization.accepts(short) {
            return CreateOutcome::Refused("the registry takes no such name".to_owned());
        }
        let marker = &intent.marker;
        let description = marker.to_text();
        if description.len() > LONGEST_DESCRIPTION {
            return CreateOutcome::Unavailable(misconfigured(
                "the installation's id is too long for a robot's description",
            ));
        }
        let body = json!({
            "description": description,
            "unstructured_metadata": {
                "managed_by": "hyperfleet-credentials",
                "installation": marker.installation,
                "cluster_id": marker.cluster_id,
                "generation": marker.generation,
            },
        });
        let robot = match self.robots().put(call, short, &body).await {
            Ok(robot) => robot,
            Err(refusal) => return self.not_made(call, short, refusal).await,
        };
        // The robot is there now. Whatever goes wrong from here on, "not applied" would be a lie;
        // `Unknown` makes the caller look it up, and the lookup gives the rights that are missing.
        match self.give_rights(call, short).await {
            Ok(()) => CreateOutcome::Created {
                remote_id: None,
                username: self.organization.full(short),
                secret: Some(robot.token),
            },
            Err(trouble) => CreateOutcome::Unknown(trouble),
        }
    }

    async fn lookup(
        &self,
        call: &CallContext,
        name: &AccountName,
        marker: &Marker,
    ) -> LookupOutcome {
        let short = name.as_str();
        if !self.organization.accepts(short) {
            return LookupOutcome::Absent;
        }
        let robot = match self.robots().get(call, short).await {
            Ok(Some(robot)) => robot,
            Ok(None) => return LookupOutcome::Absent,
            Err(trouble) => return LookupOutcome::Unavailable(trouble),
        };
        let ownership = Self::ownership(&robot, marker);
        // A create may have been lost between the robot and its rights. Ours is given them before
        // anybody hears that it is there to be adopted; nobody else's is touched.
        if ownership == Ownership::ThisIntent
            && let Err(trouble) = self.give_rights(call, short).await
        {
            return LookupOutcome::Unavailable(trouble);
        }
        LookupOutcome::Present {
            remote_id: None,
            username: self.organization.full(short),
            secret: Some(robot.token),
            ownership,
        }
    }

    async fn revoke(
        &self,
        call: &CallContext,
        name: &AccountName,
        _remote_id: Option<&str>,
    ) -> RevokeOutcome {
        let short = name.as_str();
        if !self.organization.accepts(short) {
            return RevokeOutcome::AlreadyGone;
        }
        let outcome = match self.robots().delete(call, short).await {
            Ok(Deleted::Now) => RevokeOutcome::Done,
            // `400` again, so the state has the last word.
            Ok(Deleted::Missing) => match self.robots().get(call, short).await {
                Ok(None) => RevokeOutcome::AlreadyGone,
                Ok(Some(_)) => RevokeOutcome::Unavailable(Trouble::new(
                    TroubleKind::ServerError,
                    "the registry says both that the robot is missing and that it is there",
                )),
                Err(trouble) => RevokeOutcome::Unavailable(trouble),
            },
            Ok(Deleted::UsedByMirror) => {
                RevokeOutcome::Refused("a mirror at the registry uses the robot".to_owned())
            }
            Err(Failure::NotApplied(trouble)) => RevokeOutcome::Unavailable(trouble),
            Err(Failure::Lost(trouble)) => RevokeOutcome::Unknown(trouble),
        };
        match &outcome {
            RevokeOutcome::Done | RevokeOutcome::AlreadyGone => {
                self.own_logins.forget(&self.organization.full(short));
            }
            RevokeOutcome::Refused(_)
            | RevokeOutcome::Unavailable(_)
            | RevokeOutcome::Unknown(_) => {}
        }
        outcome
    }

    async fn verify(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> VerifyOutcome {
        // Basic cannot carry such a name, so no login can succeed.
        if username.contains(':') {
            return VerifyOutcome::Invalid;
        }
        let running = (self.usage == UsageSource::LastAccessed)
            .then(|| self.own_logins.begin(username, self.clock.now()));
        let repositories = &self.rights.repositories;
        let (api, service, organization) = (&self.api, &self.service, &self.organization);
        let login =
            auth::login(call, api, service, organization, repositories, username, secret).await;
        if let Some(running) = running {
            running.ended(self.clock.now(), login.date);
        }
        login.outcome
    }

    async fn usage(
        &self,
        call: &CallContext,
        names: &[AccountName],
        since: Timestamp,
    ) -> Result<Vec<Usage>, ListError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let usage = match self.usage {
            UsageSource::None => Ok(Vec::new()),
            UsageSource::LastAccessed => {
                let (robots, own) = (self.robots(), &self.own_logins);
                usage::by_last_accessed(call, &robots, own, names, since).await
            }
            UsageSource::Log => {
                let (organization, now) = (&self.organization, self.clock.now());
                usage::by_log(call, &self.api, organization, names, since, now).await
            }
        };
        usage.map_err(ListError)
    }

    async fn list(
        &self,
        call: &CallContext,
        prefix: &str,
    ) -> Result<Vec<ListedAccount>, ListError> {
        let begin = format!("{prefix}-");
        let robots = self.robots().list(call).await.map_err(ListError)?;
        let ours = robots.into_iter().filter(|(short, _)| short.starts_with(&begin));
        Ok(ours
            .map(|(name, row)| ListedAccount {
                name,
                remote_id: None,
                marker: row.description.filter(|text| !text.is_empty()),
            })
            .collect())
    }
}
