//! A real login at the registry that reads the file: `GET /v2/` with a Basic credential.
//!
//! Knows HTTP and nothing of the file. An answer counts only when it can come from a registry
//! that checks this very file; anything else says nothing about the credential.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::registries::{CallContext, Trouble, TroubleKind, VerifyOutcome};

pub(super) struct Login {
    url: Url,
    client: Client,
}

impl Login {
    /// `base` is an `http` or `https` address without credentials.
    pub(super) fn new(base: &Url, client: Client) -> Self {
        let mut url = base.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.set_path(&format!("{}/v2/", base.path().trim_end_matches('/')));
        Self { url, client }
    }

    pub(super) async fn verify(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> VerifyOutcome {
        let verdict = match self.get(call, Some(basic(username, secret))).await {
            Ok(answer) => self.judge(&answer),
            Err(trouble) => Err(trouble),
        };
        match verdict {
            Ok(true) => match self.asks_for_credentials(call).await {
                Ok(()) => VerifyOutcome::Valid { can_pull: true },
                Err(trouble) => VerifyOutcome::Unavailable(trouble),
            },
            Ok(false) => VerifyOutcome::Invalid,
            Err(trouble) => VerifyOutcome::Unavailable(trouble),
        }
    }

    /// After each success: an open registry would accept every credential, and one may turn open any day.
    async fn asks_for_credentials(&self, call: &CallContext) -> Result<(), Trouble> {
        let answer = self.get(call, None).await?;
        if self.judge(&answer)? {
            return Err(misconfigured("verify_url answers without asking for a credential"));
        }
        Ok(())
    }

    async fn get(
        &self,
        call: &CallContext,
        credential: Option<HeaderValue>,
    ) -> Result<Response, Trouble> {
        call.in_time()?;
        let mut request = self.client.get(self.url.clone()).timeout(call.remaining());
        if let Some(credential) = credential {
            request = request.header(AUTHORIZATION, credential);
        }
        // The address is not part of the message: an operator's may carry more than a host.
        request.send().await.map_err(|error| {
            if error.is_timeout() {
                Trouble::timeout()
            } else if error.is_connect() {
                Trouble::new(TroubleKind::Connect, "the registry cannot be reached")
            } else {
                Trouble::new(TroubleKind::ServerError, "the registry broke the answer off")
            }
        })
    }

    /// True for "come in", false for "wrong credential".
    fn judge(&self, answer: &Response) -> Result<bool, Trouble> {
        if answer.url() != &self.url {
            return Err(misconfigured("verify_url leads to another address"));
        }
        match answer.status() {
            StatusCode::OK => Ok(true),
            StatusCode::UNAUTHORIZED if wants_basic(answer.headers()) => Ok(false),
            StatusCode::UNAUTHORIZED => {
                Err(misconfigured("the registry at verify_url does not ask for Basic credentials"))
            }
            StatusCode::BAD_REQUEST => Err(misconfigured(
                "the registry answered 400: its htpasswd file is missing or malformed",
            )),
            StatusCode::TOO_MANY_REQUESTS => {
                Err(trouble(TroubleKind::RateLimited, answer, "the registry answered 429"))
            }
            status if status.is_redirection() || status == StatusCode::NOT_FOUND => {
                let words = format!("verify_url is no registry: it answered {}", status.as_u16());
                Err(misconfigured(&words))
            }
            status => {
                let words = format!("the registry answered {}", status.as_u16());
                Err(trouble(TroubleKind::ServerError, answer, &words))
            }
        }
    }
}

fn misconfigured(words: &str) -> Trouble {
    Trouble::new(TroubleKind::Misconfigured, words)
}

fn trouble(kind: TroubleKind, answer: &Response, words: &str) -> Trouble {
    Trouble::new(kind, words).retry_after(retry_after(answer.headers()))
}

/// Seconds only; a date would need the wall clock, and no registry of this kind sends one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn wants_basic(headers: &HeaderMap) -> bool {
    let is_basic = |value: &HeaderValue| {
        let scheme = value.as_bytes().get(..5);
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic"))
    };
    headers.get_all(WWW_AUTHENTICATE).iter().any(is_basic)
}

fn basic(username: &str, secret: &SecretString) -> HeaderValue {
    let pair = Zeroizing::new(format!("{username}:{}", secret.expose_secret()));
    let header = Zeroizing::new(format!("Basic {}", *Zeroizing::new(STANDARD.encode(&*pair))));
    // Base64 is always a legal header value; an empty one would merely be turned away.
    let mut header =
        HeaderValue::from_str(&header).unwrap_or_else(|_| HeaderValue::from_static(""));
    header.set_sensitive(true);
    header
}
