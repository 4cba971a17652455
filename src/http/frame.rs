//! What every request gets, whatever becomes of it: names, a span, a log entry, metrics, and a problem
//! where it failed or panicked.
//!
//! The outer one of the two middlewares. A panic in a handler would otherwise just drop the connection.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::ConnectionType;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, web};
use futures_util::FutureExt;
use tracing::Instrument;
use tracing::field::{Empty, display};

use super::context::{REQUEST_ID, RequestContext, TRACE_ID};
use super::edge::{Edge, Stage};
use super::limits::{self, Allowance};
use super::problem::{ApiError, render};
use super::routes::{Access, Selection, cluster_in};

/// Wraps a request.
pub async fn frame(
    edge: web::Data<Edge>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let frame = Frame {
        started: Instant::now(),
        context: RequestContext::of(&request),
        selection: Selection::find(request.method(), request.match_info().as_str()),
        edge,
    };
    request.extensions_mut().insert(frame.context.clone());
    request.extensions_mut().insert(frame.selection.clone());
    let route = frame.selection.template().unwrap_or("none");
    let context = &frame.context;
    let span = tracing::info_span!(
        "request",
        request_id = context.request_id,
        trace_id = context.trace_id,
        method = context.method,
        route,
        cluster_id = Empty,
    );
    if let Some(cluster_id) = cluster_in(route, request.match_info().as_str()) {
        span.record("cluster_id", display(&cluster_id));
    }
    async move {
        let answer = AssertUnwindSafe(next.call(request)).catch_unwind().await;
        match answer {
            Ok(Ok(response)) => Ok(frame.finish(response.map_into_boxed_body())),
            Ok(Err(error)) => Err(frame.fail(&ApiError::of(&error))),
            // The text of the panic was logged by the hook; it may hold anything, so nobody gets it.
            Err(_) => {
                frame.edge.metrics.panic("http");
                Err(frame.fail(&ApiError::internal("the handler panicked")))
            }
        }
    }
    .instrument(span)
    .await
}

struct Frame {
    started: Instant,
    context: RequestContext,
    selection: Selection,
    edge: web::Data<Edge>,
}

impl Frame {
    /// An answer of the handler, or an error that still has its request.
    fn finish(&self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        let (request, mut response) = response.into_parts();
        if let Some(error) = response.error() {
            response = self.problem(&ApiError::of(error));
        }
        if let Some(allowance) = request.extensions().get::<Allowance>() {
            limits::tell(&mut response, *allowance);
        }
        self.close(&mut response);
        ServiceResponse::new(request, response)
    }

    /// An error whose request is lost, as after a panic: the finished answer travels as an error.
    fn fail(&self, error: &ApiError) -> Error {
        let mut response = self.problem(error);
        self.close(&mut response);
        InternalError::from_response(error.clone(), response).into()
    }

    fn problem(&self, error: &ApiError) -> HttpResponse {
        render(error, &self.context, self.edge.clock.now())
    }

    fn close(&self, response: &mut HttpResponse) {
        let context = &self.context;
        for (name, value) in [(REQUEST_ID, &context.request_id), (TRACE_ID, &context.trace_id)] {
            // Both were checked or made to be visible ASCII.
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        if self.edge.lifecycle.stage() == Stage::Draining {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        let (status, took) = (response.status().as_u16(), self.started.elapsed());
        self.edge.metrics.http_request(&context.method, self.selection.template(), status, took);
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (path, user_agent) = (context.path.as_str(), context.user_agent.as_deref());
        if self.is_probe() {
            tracing::debug!(path, status_code = status, duration_ms, user_agent, "request");
        } else {
            tracing::info!(path, status_code = status, duration_ms, user_agent, "request");
        }
    }

    /// Probes come every few seconds and say nothing.
    fn is_probe(&self) -> bool {
        match &self.selection {
            Selection::Row(route) => match route.access {
                Access::Probe => true,
                Access::OwnProof | Access::AnyOf(_) => false,
            },
            Selection::WrongMethod { .. } | Selection::Unknown => false,
        }
    }
}
