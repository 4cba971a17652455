//! An application whose handlers only say that they were reached.

use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::test::{TestRequest, init_service, try_call_service};
use actix_web::{HttpResponse, web};
use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use strum::VariantArray;

use crate::config::{self, Role};
use crate::http::answer::{self, Answer};
use crate::http::auth::{AuthError, Authenticator, Caller, Principal};
use crate::http::context::RequestContext;
use crate::http::edge::{Edge, Lifecycle};
use crate::http::extract::{
    BasicAuth, Body, Cluster, IdempotencyKey, Prefer, Query, Reason, RotationInPath,
};
use crate::http::health::{Passed, Readiness};
use crate::http::limits::Limits;
use crate::http::problem::{ApiError, Conflict};
use crate::http::routes::{Op, Permission, bind};
use crate::http::server::api_app;
use crate::ids::Generation;
use crate::state::pull_secret::{RotationReason, RotationStatus};
use crate::telemetry::Metrics;
use crate::time::{Clock, Timestamp};

/// The name of a role is its token; `down` is a reviewer that cannot be asked.
struct RoleTokens;

#[async_trait]
impl Authenticator for RoleTokens {
    async fn authenticate(&self, token: &SecretString) -> Result<Principal, AuthError> {
        let name = token.expose_secret();
        if name == "down" {
            return Err(AuthError::Unreachable("10.0.0.1 refused".to_owned()));
        }
        let role: Role = name.parse().map_err(|_| AuthError::Unknown)?;
        Ok(Principal { name: name.to_owned(), role })
    }
}

pub struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_796_040_000_000_000)
    }
}

pub fn edge() -> web::Data<Edge> {
    edge_with(&config::Limits::default())
}

pub fn edge_with(limits: &config::Limits) -> web::Data<Edge> {
    let lifecycle = Lifecycle::default();
    lifecycle.begin_serving();
    web::Data::new(Edge {
        metrics: Metrics::new().unwrap(),
        clock: Arc::new(Noon),
        authenticator: Arc::new(RoleTokens),
        limits: Limits::new(limits),
        lifecycle,
        readiness: Readiness::default().deciding("config", Passed),
        request_wait: Duration::from_secs(5),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Issue {
    #[serde(default)]
    registries: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirm {
    generation: Generation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotate {
    #[serde(default)]
    reason: Option<RotationReason>,
    #[serde(default)]
    force_immediate: bool,
}

async fn issue(cluster: Cluster, body: Body<Issue>, _: Reason, prefer: Prefer) -> Answer {
    match body.0.registries.first().map(String::as_str) {
        Some("panic") => panic!("on purpose: s3cret"),
        Some("internal") => return Err(ApiError::internal("table x is locked")),
        Some("conflict") => return Err(conflict(&cluster)),
        Some("limited") => {
            let (window, retry_after) = ("1m".to_owned(), Duration::from_millis(1500));
            return Err(ApiError::RateLimited { limit: 5, window, retry_after });
        }
        Some("failed") => {
            return Err(ApiError::Upstream {
                detail: "quay gave up".to_owned(),
                cluster_id: cluster.0,
                registries: vec!["quay".to_owned()],
                retryable: true,
            });
        }
        Some(_) | None => {}
    }
    let shown = serde_json::json!({"reached": "issue", "wait": prefer.wait.as_secs()});
    answer::secret(StatusCode::OK, &shown)
}

fn conflict(cluster: &Cluster) -> ApiError {
    Conflict {
        detail: "a rotation is running".to_owned(),
        cluster_id: Some(cluster.0.clone()),
        rotation_status: Some(RotationStatus::InProgress),
        served_generation: Some(Generation(3)),
        ..Conflict::default()
    }
    .into()
}

async fn read(caller: Caller, _: Cluster) -> Answer {
    let secret = caller.may(Permission::PullSecretsGet).await?;
    answer::json(StatusCode::OK, &serde_json::json!({"reached": "read", "secret": secret}))
}

async fn rotate(caller: Caller, _: IdempotencyKey, body: Body<Rotate>) -> Answer {
    let reason = body.0.reason.unwrap_or(RotationReason::Manual);
    caller.require_rotation(reason, body.0.force_immediate).await?;
    Ok(HttpResponse::Created().finish())
}

async fn rotations(query: Query) -> Answer {
    query.limit()?;
    query.cursor()?;
    query.words::<RotationStatus>("status")?;
    Ok(answer::no_content())
}

async fn confirm(_: Cluster, body: Body<Confirm>) -> Answer {
    answer::json(StatusCode::OK, &body.0.generation)
}

async fn rotation(_: Cluster, _: RotationInPath) -> Answer {
    Ok(answer::no_content())
}

async fn heartbeat(_: BasicAuth, context: RequestContext) -> Answer {
    answer::json(StatusCode::OK, &context.trace_id)
}

async fn reached() -> HttpResponse {
    answer::no_content()
}

pub fn handlers(config: &mut web::ServiceConfig) {
    for op in Op::VARIANTS {
        match op {
            Op::IssuePullSecret | Op::MgmtRequestCredential | Op::AroRequestCredential => {
                bind(config, *op, issue);
            }
            Op::ReadPullSecret => bind(config, *op, read),
            Op::StartRotation => bind(config, *op, rotate),
            Op::ListRotations => bind(config, *op, rotations),
            Op::ConfirmGeneration => bind(config, *op, confirm),
            Op::ReadRotation => bind(config, *op, rotation),
            Op::Heartbeat => bind(config, *op, heartbeat),
            Op::RevokePullSecret
            | Op::ConfirmRotation
            | Op::CompleteRotation
            | Op::ExtendRotation
            | Op::RollbackRotation
            | Op::CancelRotation
            | Op::ListPullSecrets
            | Op::ListAllRotations
            | Op::GiveUpResidue
            | Op::CreateCampaign
            | Op::ListCampaigns
            | Op::ReadCampaign
            | Op::ListCampaignClusters
            | Op::PauseCampaign
            | Op::ResumeCampaign
            | Op::AbortCampaign
            | Op::ListAuditEvents
            | Op::ListRegistries
            | Op::SweepRegistry
            | Op::AcknowledgeRestore
            | Op::ChangeSchedule
            | Op::MgmtListCredentials
            | Op::MgmtRevokeCredentials
            | Op::MgmtReadCredential
            | Op::MgmtReadCredentialStatus
            | Op::MgmtRevokeCredential
            | Op::AroListCredentials
            | Op::AroRevokeCredentials
            | Op::AroReadCredential
            | Op::AroReadCredentialStatus
            | Op::AroRevokeCredential
            | Op::ListRevocations
            | Op::ReadRevocation
            | Op::ReadTrustBundle
            | Op::ConfirmTrustBundle
            | Op::ApproveCredential
            | Op::DenyCredential => bind(config, *op, reached),
            // One row stays without a handler; the server binds the probes itself.
            Op::ListAttention | Op::Healthz | Op::Readyz => {}
        }
    }
}

/// An answer, taken apart.
pub struct Seen {
    /// Empty where the request was lost with a panic.
    pub path: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Seen {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or("none").to_owned()
    }
}

pub async fn call(edge: &web::Data<Edge>, request: TestRequest) -> Seen {
    call_at(edge, handlers, request).await
}

/// The same with other handlers.
pub async fn call_at(
    edge: &web::Data<Edge>,
    handlers: impl FnOnce(&mut web::ServiceConfig) + 'static,
    request: TestRequest,
) -> Seen {
    let app = init_service(api_app(edge.clone(), handlers)).await;
    match try_call_service(&app, request.to_request()).await {
        Ok(response) => {
            let (request, response) = ServiceResponse::into_parts(response);
            Seen { path: request.path().to_owned(), ..seen(response).await }
        }
        // What the server does with an error that comes out of the application.
        Err(error) => seen(error.as_response_error().error_response()).await,
    }
}

async fn seen(response: HttpResponse) -> Seen {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = actix_web::body::to_bytes(response.into_body().boxed()).await.unwrap();
    Seen { path: String::new(), status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

pub fn with_role(request: TestRequest, role: &str) -> TestRequest {
    request.insert_header(("authorization", format!("Bearer {role}")))
}

pub fn admin(request: TestRequest) -> TestRequest {
    with_role(request, "admin")
}
