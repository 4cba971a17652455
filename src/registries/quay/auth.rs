//! A real login: the registry's token service is asked for a token with the robot's credential.
//!
//! `/v2/` itself ignores Basic credentials (measured), so `/v2/auth` it is. Without permission Quay
//! still gives a token, with no actions in it; whether a robot may pull stands in the token.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::client::{Answer, Api, misconfigured, secret_header};
use super::errors::no_sense;
use super::names::Organization;
use crate::registries::{CallContext, Trouble, TroubleKind, VerifyOutcome};
use crate::time::Timestamp;

/// A login's outcome, and when it was by the registry's own clock.
pub(super) struct Login {
    pub(super) outcome: VerifyOutcome,
    pub(super) date: Option<Timestamp>,
}

/// Logs in once for each repository, or once without any.
pub(super) async fn login(
    call: &CallContext,
    api: &Api,
    service: &str,
    organization: &Organization,
    repositories: &[String],
    username: &str,
    secret: &SecretString,
) -> Login {
    let mut date = None;
    let mut can_pull = true;
    let names: Vec<Option<String>> = if repositories.is_empty() {
        vec![None]
    } else {
        let full = |name: &String| Some(format!("{}/{name}", organization.as_str()));
        repositories.iter().map(full).collect()
    };
    for repository in names {
        let scope = repository.as_ref().map(|name| format!("repository:{name}:pull"));
        let mut query = vec![("service", service)];
        query.extend(scope.as_deref().map(|scope| ("scope", scope)));
        let header = {
            let pair = Zeroizing::new(format!("{username}:{}", secret.expose_secret()));
            secret_header("Basic", &Zeroizing::new(STANDARD.encode(&*pair)))
        };
        let answer = match api.login(call, header, &query).await {
            Ok(answer) => answer,
            Err(failure) => {
                return Login { outcome: VerifyOutcome::Unavailable(failure.trouble()), date };
            }
        };
        date = date.max(answer.date);
        match judge(&answer, repository.as_deref()) {
            Ok(Some(allowed)) => can_pull &= allowed,
            Ok(None) => return Login { outcome: VerifyOutcome::Invalid, date },
            Err(trouble) => return Login { outcome: VerifyOutcome::Unavailable(trouble), date },
        }
    }
    Login { outcome: VerifyOutcome::Valid { can_pull }, date }
}

/// Whether the login may pull; none when it is refused.
fn judge(answer: &Answer, repository: Option<&str>) -> Result<Option<bool>, Trouble> {
    match answer.status {
        StatusCode::OK => granted(answer, repository).map(Some),
        StatusCode::UNAUTHORIZED => refused(answer).map(|()| None),
        StatusCode::BAD_REQUEST => {
            Err(misconfigured("the registry does not understand the scope of a repository"))
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let trouble = Trouble::new(TroubleKind::RateLimited, "the registry answered 429");
            Err(trouble.retry_after(answer.retry_after))
        }
        status if status == StatusCode::NOT_FOUND || status.is_redirection() => {
            let words = format!("there is no /v2/auth at url: it answered {}", status.as_u16());
            Err(misconfigured(&words))
        }
        status => {
            let words = format!("the registry answered {} to a login", status.as_u16());
            let trouble = Trouble::new(TroubleKind::ServerError, words);
            Err(trouble.retry_after(answer.retry_after))
        }
    }
}

/// The registry's own refusal, whichever of its two texts: a wrong secret, or no such robot. A
/// `401` of anything in front of it says nothing about the credential.
fn refused(answer: &Answer) -> Result<(), Trouble> {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors: Option<Errors> = answer.json();
    let own = errors
        .and_then(|errors| errors.errors.into_iter().find(|error| error.code == "UNAUTHORIZED"));
    let Some(own) = own else {
        return Err(misconfigured("something in front of the registry answered 401"));
    };
    if own.message.starts_with("Robot accounts have been disabled") {
        return Err(misconfigured("robot accounts are disabled at the registry"));
    }
    Ok(())
}

/// The token is not ours to believe but the registry's to give: it came from the registry itself,
/// so its signature is not checked.
fn granted(answer: &Answer, repository: Option<&str>) -> Result<bool, Trouble> {
    #[derive(Deserialize)]
    struct Token {
        token: SecretString,
    }
    let no_sense = || no_sense().trouble();
    let Token { token } = answer.json().ok_or_else(no_sense)?;
    let Some(repository) = repository else {
        return if token.expose_secret().is_empty() { Err(no_sense()) } else { Ok(true) };
    };
    may_pull(token.expose_secret(), repository).ok_or_else(no_sense)
}

/// None for what is no token.
fn may_pull(token: &str, repository: &str) -> Option<bool> {
    #[derive(Deserialize)]
    struct Claims {
        access: Vec<Access>,
    }
    #[derive(Deserialize)]
    struct Access {
        #[serde(rename = "type")]
        kind: String,
        name: String,
        actions: Vec<String>,
    }
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    let pulls = |access: &Access| {
        access.kind == "repository"
            && access.name == repository
            && access.actions.iter().any(|action| action == "pull")
    };
    Some(claims.access.iter().any(pulls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload))
    }

    #[test]
    fn only_an_action_on_this_repository_counts() {
        let with = |name: &str, actions: &str| {
            let access = format!(r#"{{"type":"repository","name":"{name}","actions":{actions}}}"#);
            token(&format!(r#"{{"sub":"acme+a","access":[{access}]}}"#))
        };
        assert_eq!(may_pull(&with("acme/app", r#"["pull"]"#), "acme/app"), Some(true));
        assert_eq!(may_pull(&with("acme/app", r#"["push","pull"]"#), "acme/app"), Some(true));
        assert_eq!(may_pull(&with("acme/app", "[]"), "acme/app"), Some(false));
        assert_eq!(may_pull(&with("acme/app", r#"["push"]"#), "acme/app"), Some(false));
        assert_eq!(may_pull(&with("acme/app2", r#"["pull"]"#), "acme/app"), Some(false));
        assert_eq!(may_pull(&token(r#"{"access":[]}"#), "acme/app"), Some(false));
        for bad in ["", "x", "e30.!!.x", &token("{}"), &token("no json")] {
            assert_eq!(may_pull(bad, "acme/app"), None, "{bad}");
        }
    }
}
