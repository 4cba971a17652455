//! One request to Quay and its answer, whatever the request is about.
//!
//! Knows addresses, tokens, deadlines and sizes; not what an answer means (`errors`). The client
//! that is handed in must follow no redirects; cookies and retries there are none.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::timely::Timely;
use super::token_file::TokenFile;
use crate::registries::{CallContext, Trouble, TroubleKind};
use crate::time::Timestamp;

const AGENT: &str = concat!("hyperfleet-credentials/", env!("CARGO_PKG_VERSION"));
/// An answer about one thing is a few kilobytes.
pub(super) const SMALL: usize = 1024 * 1024;
/// A listing has no pages: one answer holds all robots.
pub(super) const LISTING: usize = 32 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request was not carried out.
    NotApplied(Trouble),
    /// It may have been, or may still be.
    Lost(Trouble),
}

impl Failure {
    /// For reading calls, where the difference does not matter.
    pub(super) fn trouble(self) -> Trouble {
        match self {
            Self::NotApplied(trouble) | Self::Lost(trouble) => trouble,
        }
    }
}

/// An answer that came in whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) html: bool,
    pub(super) retry_after: Option<Duration>,
    /// The registry's own clock.
    pub(super) date: Option<Timestamp>,
    /// May hold a secret, so it is wiped and never shown.
    body: Zeroizing<Vec<u8>>,
}

impl Answer {
    /// The body, if it is JSON of this form.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body as text, for looking for known words in it.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }
}

/// A request to the management API.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    /// Below `/api/v1`.
    pub(super) path: &'a [&'a str],
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Option<&'a Value>,
    pub(super) limit: usize,
}

impl<'a> Request<'a> {
    pub(super) fn new(method: Method, path: &'a [&'a str]) -> Self {
        Self { method, path, query: &[], body: None, limit: SMALL }
    }
}

pub(super) struct Api {
    base: Url,
    http: Client,
    token: TokenFile,
}

impl Api {
    /// `base` is an `http` or `https` address without credentials.
    pub(super) fn new(mut base: Url, http: Client, token: TokenFile) -> Self {
        base.set_query(None);
        base.set_fragment(None);
        Self { base, http, token }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Only an address that cannot be a base has no segments, and the settings refuse those.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// One request with the service's own token. A refused token is read anew, and when the file
    /// holds another one by now, the request is made once more: it was not applied.
    pub(super) async fn manage(
        &self,
        call: &CallContext,
        request: Request<'_>,
    ) -> Result<Answer, Failure> {
        let token = tokio::time::timeout_at(call.tokio_deadline(), self.token.current()).await;
        let token =
            token.unwrap_or_else(|_| Err(Trouble::timeout())).map_err(Failure::NotApplied)?;
        let answer = self.manage_with(call, &request, &token).await?;
        if !refuses_token(&answer) {
            return Ok(answer);
        }
        let other = self.token.other_than(&token);
        match tokio::time::timeout_at(call.tokio_deadline(), other).await {
            Ok(Some(other)) => self.manage_with(call, &request, &other).await,
            Ok(None) | Err(_) => Ok(answer),
        }
    }

    async fn manage_with(
        &self,
        call: &CallContext,
        request: &Request<'_>,
        token: &SecretString,
    ) -> Result<Answer, Failure> {
        let path: Vec<&str> = ["api", "v1"].iter().chain(request.path).copied().collect();
        let mut url = self.url(&path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        // As late as possible: nothing is sent for a call that others have closed meanwhile.
        let may = if request.method == Method::GET { call.in_time() } else { call.may_act().await };
        may.map_err(Failure::NotApplied)?;
        let mut builder = self
            .http
            .request(request.method.clone(), url.clone())
            .header(AUTHORIZATION, secret_header("Bearer", token.expose_secret()))
            .header(ACCEPT, "application/json");
        if let Some(body) = request.body {
            let bytes = Bytes::from(body.to_string());
            let body = Body::wrap(Timely::new(bytes, call.tokio_deadline()));
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        exchange(call, builder, &url, request.limit).await
    }

    /// A login at the registry's token service with somebody's own credential.
    pub(super) async fn login(
        &self,
        call: &CallContext,
        basic: HeaderValue,
        query: &[(&str, &str)],
    ) -> Result<Answer, Failure> {
        call.in_time().map_err(Failure::NotApplied)?;
        let mut url = self.url(&["v2", "auth"]);
        url.query_pairs_mut().extend_pairs(query);
        let builder = self.http.get(url.clone()).header(AUTHORIZATION, basic);
        exchange(call, builder, &url, SMALL).await
    }
}

/// Quay says `401` to a refused token when reading, and to changes `403` with words about CSRF in
/// JSON that is called HTML (measured).
pub(super) fn refuses_token(answer: &Answer) -> bool {
    match answer.status {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => answer.text().contains("CSRF token"),
        _ => false,
    }
}

/// A header that is not shown in debug output. What cannot stand in a header becomes an empty one,
/// which is merely turned away.
pub(super) fn secret_header(scheme: &str, value: &str) -> HeaderValue {
    let text = Zeroizing::new(format!("{scheme} {value}"));
    let mut header = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    header.set_sensitive(true);
    header
}

async fn exchange(
    call: &CallContext,
    builder: RequestBuilder,
    url: &Url,
    limit: usize,
) -> Result<Answer, Failure> {
    // The client's own limit runs until the last byte of the body.
    let builder = builder.header(USER_AGENT, AGENT).timeout(call.remaining());
    let response = builder.send().await.map_err(|error| unsent_or_lost(&error))?;
    if response.url() != url {
        // A client that follows redirects: whose answer this is, nobody knows.
        return Err(Failure::Lost(misconfigured("url leads to another address")));
    }
    let headers = response.headers();
    let (status, html) = (response.status(), is_html(headers));
    let (retry_after, date) = (retry_after(headers), date(headers));
    let body = bounded(response, limit).await.map_err(Failure::Lost)?;
    Ok(Answer { status, html, retry_after, date, body })
}

/// The address is not part of any message: an operator's may carry more than a host.
fn unsent_or_lost(error: &reqwest::Error) -> Failure {
    if error.is_builder() {
        Failure::NotApplied(misconfigured("url cannot be called as it is configured"))
    } else if error.is_connect() {
        Failure::NotApplied(Trouble::new(TroubleKind::Connect, "the registry cannot be reached"))
    } else if error.is_timeout() || error.is_body() {
        Failure::Lost(Trouble::timeout())
    } else {
        Failure::Lost(Trouble::new(TroubleKind::ServerError, "the registry broke the answer off"))
    }
}

async fn bounded(mut response: Response, limit: usize) -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let too_large = || Trouble::new(TroubleKind::ServerError, "the registry's answer is too large");
    let announced = response.content_length().unwrap_or(0);
    let announced = usize::try_from(announced).map_err(|_| too_large())?;
    if announced > limit {
        return Err(too_large());
    }
    let mut body = Zeroizing::new(Vec::with_capacity(announced));
    while let Some(chunk) =
        response.chunk().await.map_err(|error| unsent_or_lost(&error).trouble())?
    {
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(super) fn misconfigured(words: &str) -> Trouble {
    Trouble::new(TroubleKind::Misconfigured, words)
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html"))
}

/// Seconds only: Quay sends no date there.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    super::dates::parse(headers.get(DATE)?.to_str().ok()?)
}
