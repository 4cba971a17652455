//! Whether a request may reach its handler: route, then stage of the process, then caller.
//!
//! The inner one of the two middlewares. Everything that is refused here carries its [`ApiError`] to
//! the frame, which makes the problem of it.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};

use super::auth::{Caller, bearer};
use super::edge::{Edge, Stage};
use super::problem::ApiError;
use super::routes::{Access, Admitted, Route, Selection, cluster_in};

/// Checks a request and hands it on.
pub async fn gate(
    edge: web::Data<Edge>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match check(&edge, &request).await {
        Ok(admitted) => {
            request.extensions_mut().insert(admitted);
            next.call(request).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(error) => Ok(request.error_response(error)),
    }
}

async fn check(edge: &Edge, request: &ServiceRequest) -> Result<Admitted, ApiError> {
    let route = match Selection::of(request) {
        Selection::Row(route) => route,
        Selection::WrongMethod { allow, .. } => return Err(ApiError::Method { allow }),
        Selection::Unknown => return Err(ApiError::UnknownRoute),
    };
    in_stage(edge, &route)?;
    match route.access {
        Access::Probe | Access::OwnProof => {}
        Access::AnyOf(permissions) => {
            let token = bearer(request.headers())?;
            let principal = edge.authenticator.authenticate(&token).await?;
            // A malformed id is found by the handler's extractor: after this, as the order wants it.
            let cluster = cluster_in(route.path, request.match_info().as_str());
            let caller = Caller::new(principal, cluster, edge.authenticator.clone());
            caller.require_any(permissions).await?;
            request.extensions_mut().insert(caller);
        }
    }
    Ok(Admitted(route.op))
}

fn in_stage(edge: &Edge, route: &Route) -> Result<(), ApiError> {
    match (edge.lifecycle.stage(), route.access) {
        (Stage::Serving | Stage::Leaving, _) | (_, Access::Probe) => Ok(()),
        (Stage::Starting, Access::OwnProof | Access::AnyOf(_)) => {
            Err(ApiError::busy("the service is starting"))
        }
        (Stage::Draining, Access::OwnProof | Access::AnyOf(_)) => {
            Err(ApiError::busy("the service is shutting down"))
        }
    }
}
