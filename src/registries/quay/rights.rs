//! What a robot needs beyond being there: a seat in the team and the right to read repositories.
//!
//! Each change may be repeated without harm and adds only what is configured; nothing is taken away.

use reqwest::Method;
use serde_json::json;

use super::client::{Api, Failure, Request, misconfigured};
use super::errors::{self, Said};
use super::names::Organization;
use crate::registries::{CallContext, Trouble, TroubleKind};

pub(super) struct Rights {
    pub(super) team: Option<String>,
    /// Without the organisation in front.
    pub(super) repositories: Vec<String>,
}

impl Rights {
    /// Gives a robot all of them. The first trouble ends it; another call begins from the start.
    pub(super) async fn give(
        &self,
        call: &CallContext,
        api: &Api,
        organization: &Organization,
        short: &str,
    ) -> Result<(), Failure> {
        let full = organization.full(short);
        if let Some(team) = &self.team {
            let path = ["organization", organization.as_str(), "team", team, "members", &full];
            let missing = "the team does not exist in the organisation";
            change(call, api, Request::new(Method::PUT, &path), missing).await?;
        }
        let body = json!({ "role": "read" });
        for repository in &self.repositories {
            let mut path = vec!["repository", organization.as_str()];
            path.extend(repository.split('/'));
            path.extend(["permissions", "user", &full]);
            let request = Request { body: Some(&body), ..Request::new(Method::PUT, &path) };
            change(call, api, request, "a configured repository does not exist").await?;
        }
        Ok(())
    }
}

async fn change(
    call: &CallContext,
    api: &Api,
    request: Request<'_>,
    missing: &str,
) -> Result<(), Failure> {
    let answer = api.manage(call, request).await?;
    if answer.status.is_success() {
        return Ok(());
    }
    match errors::read(&answer) {
        Said::AlreadyMember => Ok(()),
        Said::Trouble(_) if answer.status == reqwest::StatusCode::NOT_FOUND => {
            Err(Failure::NotApplied(misconfigured(missing)))
        }
        // "Unknown user": the robot went away between two calls.
        Said::Invalid | Said::RobotMissing => Err(Failure::NotApplied(Trouble::new(
            TroubleKind::ServerError,
            "the registry does not let the robot in",
        ))),
        said @ (Said::RobotExists | Said::UsedByMirror | Said::Trouble(_)) => Err(said.failure()),
    }
}
