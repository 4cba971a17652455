//! What an answer that is no success says.
//!
//! Quay answers `400` to nearly everything about robots, in two shapes of JSON; a refused token is
//! `403` in a third shape when something would change (measured). This table reads them; whoever
//! asked decides what it means, and where that matters looks at the state again. No text of an
//! answer goes further than this file.

use reqwest::StatusCode;
use serde::Deserialize;

use super::client::{Answer, Failure, refuses_token};
use crate::registries::{Trouble, TroubleKind};

/// What a refusal is about.
#[derive(Debug)]
pub(super) enum Said {
    /// There is no such robot.
    RobotMissing,
    /// The name is taken, by the ordinary words or, after a lost race, by the database's.
    RobotExists,
    /// The robot is in the team already, which is a success by another name.
    AlreadyMember,
    /// The robot cannot be deleted while a mirror uses it.
    UsedByMirror,
    /// The request's own contents are at fault, in Quay's own form.
    Invalid,
    /// Anything else; a `Failure` says whether the request may have been applied.
    Trouble(Failure),
}

impl Said {
    /// For questions to which none of the known refusals is an answer.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Trouble(failure) => failure,
            Self::RobotMissing
            | Self::RobotExists
            | Self::AlreadyMember
            | Self::UsedByMirror
            | Self::Invalid => {
                let words = "the registry refused the request, which makes no sense here";
                Failure::NotApplied(Trouble::new(TroubleKind::ServerError, words))
            }
        }
    }
}

/// Shape A has `error_type` and its text in `detail` and `error_message`; shape B has `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    error_type: Option<String>,
    error_message: Option<String>,
    detail: Option<String>,
    message: Option<String>,
    is_readonly: bool,
}

impl Body {
    fn text(&self) -> &str {
        let texts = [&self.error_message, &self.detail, &self.message];
        texts.into_iter().flatten().next().map(String::as_str).unwrap_or_default()
    }

    fn is_type(&self, error_type: &str) -> bool {
        self.error_type.as_deref() == Some(error_type)
    }
}

pub(super) fn read(answer: &Answer) -> Said {
    // Shape C is called HTML and is JSON all the same; its one field is looked for in the text.
    let body: Option<Body> = if answer.html { None } else { answer.json() };
    let status = answer.status;
    match (status, body) {
        _ if refuses_token(answer) => {
            not_applied(TroubleKind::OwnCredential, "the registry refuses the service's token")
        }
        (StatusCode::BAD_REQUEST, Some(body)) => bad_request(&body),
        (StatusCode::FORBIDDEN, Some(body)) if body.is_type("insufficient_scope") => not_applied(
            TroubleKind::Misconfigured,
            "the organisation does not exist, or the service's token has too little scope in it",
        ),
        (StatusCode::FORBIDDEN, _) => {
            not_applied(TroubleKind::Misconfigured, "something in front of the registry refuses us")
        }
        (StatusCode::NOT_FOUND, Some(body)) if body.is_type("not_found") => {
            not_applied(TroubleKind::Misconfigured, "the registry does not know what was asked for")
        }
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
            let words = format!("url is no Quay API: it answered {}", status.as_u16());
            not_applied(TroubleKind::Misconfigured, &words)
        }
        (StatusCode::TOO_MANY_REQUESTS, _) => {
            let words = "the registry answered 429";
            let trouble = Trouble::new(TroubleKind::RateLimited, words);
            Said::Trouble(Failure::NotApplied(trouble.retry_after(answer.retry_after)))
        }
        (StatusCode::SERVICE_UNAVAILABLE, Some(body)) if body.is_readonly => {
            unavailable(answer, "the registry is read-only")
        }
        (StatusCode::SERVICE_UNAVAILABLE, _) if !broken_behind_a_proxy(answer) => {
            unavailable(answer, "the registry answered 503")
        }
        _ if status.is_redirection() => {
            let words = format!("url leads elsewhere: it answered {}", status.as_u16());
            not_applied(TroubleKind::Misconfigured, &words)
        }
        _ if status.is_client_error() => {
            let words = format!("the registry answered {}", status.as_u16());
            not_applied(TroubleKind::ServerError, &words)
        }
        // Not only gateways: Quay's own 500 says nothing about what was done before it.
        _ if status.is_server_error() => {
            let words = format!("the registry answered {}", status.as_u16());
            let trouble = Trouble::new(TroubleKind::ServerError, words);
            Said::Trouble(Failure::Lost(trouble.retry_after(answer.retry_after)))
        }
        _ => Said::Trouble(no_sense()),
    }
}

/// A success that is none: something was done, nobody knows what.
pub(super) fn no_sense() -> Failure {
    Failure::Lost(Trouble::new(TroubleKind::ServerError, "the registry's answer makes no sense"))
}

fn bad_request(body: &Body) -> Said {
    let text = body.text();
    if text == "Could not find robot with specified username" {
        Said::RobotMissing
    } else if text.starts_with("Existing robot with name")
        || text.starts_with("duplicate key value violates unique constraint")
    {
        Said::RobotExists
    } else if text.contains("is already a member of team") {
        Said::AlreadyMember
    } else if text == "Robot is being used by a mirror" {
        Said::UsedByMirror
    } else if text.starts_with("Robot accounts have been disabled") {
        not_applied(TroubleKind::Misconfigured, "robot accounts are disabled at the registry")
    } else if body.is_type("invalid_request") || text.starts_with("value too long for type") {
        Said::Invalid
    } else {
        // Errors of the database come as 400, too.
        not_applied(TroubleKind::ServerError, "the registry answered 400")
    }
}

/// Envoy says `503` also when the connection broke after it had passed the request on.
fn broken_behind_a_proxy(answer: &Answer) -> bool {
    answer.text().starts_with("upstream connect error or disconnect/reset before headers")
}

fn unavailable(answer: &Answer, words: &str) -> Said {
    let trouble = Trouble::new(TroubleKind::ServerError, words);
    Said::Trouble(Failure::NotApplied(trouble.retry_after(answer.retry_after)))
}

fn not_applied(kind: TroubleKind, words: &str) -> Said {
    Said::Trouble(Failure::NotApplied(Trouble::new(kind, words)))
}
