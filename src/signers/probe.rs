//! Asks one API server who it thinks that a client certificate is.
//!
//! Makes a fresh client for every question, so that neither a connection nor a TLS session ever outlives the
//! identity it was made with. Knows nothing of what the answer is for.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::x509::{certificates, common_name};
use super::{CallContext, Endpoint, Identity, ProbeOutcome};

const AGENT: &str = concat!("hyperfleet-credentials/", env!("CARGO_PKG_VERSION"));
const PATH: [&str; 4] = ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"];
/// An answer is a few hundred bytes; groups and extras may make it longer.
const MOST_BYTES: usize = 256 * 1024;

/// Asks API servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProbeClient(());

/// What of a `SelfSubjectReview` matters.
#[derive(Deserialize)]
struct Review {
    status: Option<ReviewStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: Option<UserInfo>,
}

#[derive(Deserialize)]
struct UserInfo {
    username: Option<String>,
}

impl ProbeClient {
    /// One question, one answer: `201` with the certificate's own name, `401`, or "unknown".
    pub async fn ask(
        &self,
        call: &CallContext,
        endpoint: &Endpoint,
        identity: &Identity,
    ) -> ProbeOutcome {
        let left = call.remaining();
        if left.is_zero() {
            return unknown("no time was left to ask");
        }
        match tokio::time::timeout(left, ask(left, endpoint, identity)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(reason)) => unknown(reason),
            Err(_) => unknown("no answer in time"),
        }
    }
}

fn unknown(reason: impl Into<String>) -> ProbeOutcome {
    ProbeOutcome::Unknown { reason: reason.into() }
}

async fn ask(
    left: Duration,
    endpoint: &Endpoint,
    identity: &Identity,
) -> Result<ProbeOutcome, String> {
    let expected = name_of(identity).ok_or("the stored certificate cannot be read")?;
    let url = review_url(&endpoint.url).ok_or("the endpoint is not an https address")?;
    let client = client(left, &endpoint.ca, identity)?;
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let request = client.post(url).header("content-type", "application/json").body(body);
    let answer = request.send().await.map_err(|error| trouble(&error).to_owned())?;
    match answer.status() {
        StatusCode::CREATED => created(answer, &expected).await,
        StatusCode::UNAUTHORIZED => Ok(ProbeOutcome::Rejected),
        status => Err(format!("it answered {}", status.as_u16())),
    }
}

async fn created(mut answer: reqwest::Response, expected: &str) -> Result<ProbeOutcome, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| trouble(&error).to_owned())? {
        if body.len() + chunk.len() > MOST_BYTES {
            return Err("its answer is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    let review: Review =
        serde_json::from_slice(&body).map_err(|_| "its answer is not a SelfSubjectReview")?;
    let user = review.status.and_then(|status| status.user_info);
    match user.and_then(|user| user.username) {
        Some(name) if name == expected => Ok(ProbeOutcome::Accepted { name }),
        Some(_) => Err("it answered with another name than the certificate's".to_owned()),
        None => Err("it answered without a name".to_owned()),
    }
}

fn name_of(identity: &Identity) -> Option<String> {
    let ders = certificates(identity.certificate.as_bytes()).ok()?;
    let (_, leaf) = x509_parser::parse_x509_certificate(ders.first()?).ok()?;
    common_name(leaf.subject()).map(str::to_owned)
}

fn review_url(endpoint: &str) -> Option<Url> {
    let mut url = Url::parse(endpoint).ok().filter(|url| url.scheme() == "https")?;
    url.path_segments_mut().ok()?.pop_if_empty().extend(PATH);
    Some(url)
}

/// Redirects would carry the question to somebody else; proxies would answer in the server's place.
fn client(left: Duration, ca: &str, identity: &Identity) -> Result<Client, String> {
    let roots = certificates(ca.as_bytes()).map_err(|error| format!("its ca_file {error}"))?;
    let roots: Result<Vec<_>, _> = roots.iter().map(|der| Certificate::from_der(der)).collect();
    let roots = roots.map_err(|_| "its ca_file cannot be used")?;
    let key = identity.private_key.expose_secret();
    let mut pem = Zeroizing::new(String::with_capacity(identity.certificate.len() + key.len() + 1));
    pem.push_str(&identity.certificate);
    pem.push('\n');
    pem.push_str(key);
    let login = reqwest::Identity::from_pem(pem.as_bytes())
        .map_err(|_| "the stored certificate or key cannot be used")?;
    Client::builder()
        .user_agent(AGENT)
        .tls_certs_only(roots)
        .identity(login)
        .redirect(Policy::none())
        .no_proxy()
        .http1_only()
        .pool_max_idle_per_host(0)
        .timeout(left)
        .build()
        .map_err(|_| "the TLS client cannot be made".to_owned())
}

/// Kinds only: the text of an error may hold an address.
fn trouble(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection, or its certificate does not lead to ca_file"
    } else {
        "the connection broke"
    }
}
