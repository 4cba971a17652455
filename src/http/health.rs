//! Probes and the metrics page.
//!
//! Knows names of checks and whether they pass; what a check does is its owner's business. The pages
//! are open to everybody, so a failed check shows its name and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::header::{self, ContentType};
use actix_web::{HttpResponse, web};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde::Serialize;

use super::edge::{Edge, Stage};

/// A check that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that the service cannot do without.
#[async_trait]
pub trait Check: Send + Sync + 'static {
    /// Whether it is there. The error is for the log.
    async fn check(&self) -> Result<(), String>;
}

/// What `/readyz` says of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RegistryHealth {
    /// It is called.
    Ok,
    /// It is left alone for a while; work for it waits.
    Degraded,
}

type Notice = Box<dyn Fn() -> bool + Send + Sync>;
type Registries = Box<dyn Fn() -> Vec<(String, RegistryHealth)> + Send + Sync>;

/// What `/readyz` looks at.
#[derive(Default)]
pub struct Readiness {
    checks: Vec<(&'static str, Box<dyn Check>)>,
    registries: Option<Registries>,
    notices: Vec<(&'static str, Notice)>,
}

impl Readiness {
    /// Adds a check that decides: `database`, `config`, `encryption_keys`.
    #[must_use]
    pub fn deciding(mut self, name: &'static str, check: impl Check) -> Self {
        self.checks.push((name, Box::new(check)));
        self
    }

    /// Adds the registries, which are shown and decide nothing: a registry that is down must not take
    /// the whole service down with it.
    #[must_use]
    pub fn registries(
        mut self,
        health: impl Fn() -> Vec<(String, RegistryHealth)> + Send + Sync + 'static,
    ) -> Self {
        self.registries = Some(Box::new(health));
        self
    }

    /// Adds something that is shown among the checks while it is so, and decides nothing.
    #[must_use]
    pub fn noticing(
        mut self,
        name: &'static str,
        is_so: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.notices.push((name, Box::new(is_so)));
        self
    }

    /// Runs all checks side by side: name and whether it passed.
    async fn run(&self) -> Vec<(&'static str, bool)> {
        join_all(self.checks.iter().map(|(name, check)| one(name, check.as_ref()))).await
    }
}

async fn one(name: &'static str, check: &dyn Check) -> (&'static str, bool) {
    let error = match tokio::time::timeout(PATIENCE, check.check()).await {
        Ok(Ok(())) => return (name, true),
        Ok(Err(error)) => error,
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    tracing::warn!(check = name, error, "readiness check failed");
    (name, false)
}

/// A check that has passed once and for all, as reading the configuration has.
#[derive(Debug, Clone, Copy)]
pub struct Passed;

#[async_trait]
impl Check for Passed {
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Serialize)]
struct Report {
    status: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    checks: BTreeMap<&'static str, &'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    registries: BTreeMap<String, RegistryHealth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// `GET /healthz`: the process answers. Nothing outside of it is looked at.
pub async fn healthz() -> HttpResponse {
    let report = Report {
        status: "ok",
        checks: BTreeMap::new(),
        registries: BTreeMap::new(),
        message: None,
    };
    HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(report)
}

/// `GET /readyz`: whether requests should come here.
pub async fn readyz(edge: web::Data<Edge>) -> HttpResponse {
    let results = edge.readiness.run().await;
    let failed: Vec<&str> =
        results.iter().filter(|(_, passed)| !passed).map(|(name, _)| *name).collect();
    let message = match edge.lifecycle.stage() {
        Stage::Starting => Some("the service is starting".to_owned()),
        Stage::Leaving | Stage::Draining => Some("the service is shutting down".to_owned()),
        Stage::Serving if failed.is_empty() => None,
        Stage::Serving => Some(format!("failed: {}", failed.join(", "))),
    };
    let word = |passed| if passed { "ok" } else { "error" };
    let notices = edge.readiness.notices.iter().filter(|(_, is_so)| is_so());
    let notices = notices.map(|(name, _)| (*name, "degraded"));
    let registries = edge.readiness.registries.as_ref().map(|health| health()).unwrap_or_default();
    let report = Report {
        status: word(message.is_none()),
        checks: results
            .into_iter()
            .map(|(name, passed)| (name, word(passed)))
            .chain(notices)
            .collect(),
        registries: registries.into_iter().collect(),
        message,
    };
    let mut reply = match report.status {
        "ok" => HttpResponse::Ok(),
        _ => HttpResponse::ServiceUnavailable(),
    };
    reply.insert_header((header::CACHE_CONTROL, "no-store")).json(report)
}

/// `GET /metrics` of the second listener.
pub async fn metrics(edge: web::Data<Edge>) -> HttpResponse {
    match edge.metrics.encode() {
        Ok(text) => HttpResponse::Ok()
            .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
            .body(text),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            HttpResponse::InternalServerError().insert_header(ContentType::plaintext()).finish()
        }
    }
}
