//! Whether a request may reach its handler: route, then stage of the process, then caller.
//!
//! The inner one of the two middlewares. Everything that is refused here carries its [`ApiError`] to
//! the frame, which makes the problem of it.

use std::net::IpAddr;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};

use super::auth::{Caller, Principal, bearer};
use super::edge::{Edge, Stage};
use super::extract::drain;
use super::limits::{Allowance, Refusal};
use super::problem::{ApiError, Scheme};
use super::routes::{Access, Admitted, Op, Route, Selection, cluster_in};
use crate::ids::ClusterId;

/// Checks a request and hands it on.
pub async fn gate(
    edge: web::Data<Edge>,
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match check(&edge, &request).await {
        Ok(admitted) => {
            let proof = Proof::of(&request);
            request.extensions_mut().insert(admitted);
            let answer = next.call(request).await.map(ServiceResponse::map_into_boxed_body);
            match proof {
                Some(proof) => proof.judge(&edge, answer),
                None => answer,
            }
        }
        Err(error) => {
            let mut payload = request.take_payload();
            drain(request.version(), &mut payload).await;
            Ok(request.error_response(error))
        }
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
            let principal = match known(edge, request).await {
                Err(error @ (ApiError::NoCredentials(_) | ApiError::BadCredentials(_))) => {
                    edge.limits.refused(address(request))?;
                    return Err(error);
                }
                other => other?,
            };
            limit(edge, request, route.op, &principal)?;
            // A malformed id is found by the handler's extractor: after this, as the order wants it.
            let cluster = cluster_in(route.path, request.match_info().as_str());
            let caller = Caller::new(principal, cluster, edge.authenticator.clone());
            caller.require_any(permissions).await?;
            request.extensions_mut().insert(caller);
        }
    }
    Ok(Admitted(route.op))
}

async fn known(edge: &Edge, request: &ServiceRequest) -> Result<Principal, ApiError> {
    let token = bearer(request.headers())?;
    Ok(edge.authenticator.authenticate(&token).await?)
}

/// Takes one of what the caller has left; the frame tells it how much that is.
fn limit(
    edge: &Edge,
    request: &ServiceRequest,
    op: Op,
    principal: &Principal,
) -> Result<(), ApiError> {
    let tell = |allowance: Allowance| {
        request.extensions_mut().insert(allowance);
    };
    let refused = |refusal: Refusal| {
        tell(refusal.allowance());
        ApiError::from(refusal)
    };
    let left = edge.limits.request(&principal.name).map_err(refused)?;
    let starts = op == Op::StartRotation;
    let of_rotations = if starts { edge.limits.rotation(&principal.name) } else { Ok(None) };
    // The tighter one is told.
    if let Some(left) = of_rotations.map_err(refused)?.or(left) {
        tell(left);
    }
    Ok(())
}

/// The other end of the connection. What a proxy says of whom it speaks for could be anybody's word.
fn address(request: &ServiceRequest) -> Option<IpAddr> {
    request.peer_addr().map(|peer| peer.ip())
}

/// Where a heartbeat came from and for whom: its credentials are looked at by its handler.
struct Proof {
    address: Option<IpAddr>,
    cluster: Option<ClusterId>,
}

impl Proof {
    fn of(request: &ServiceRequest) -> Option<Self> {
        let Selection::Row(route) = Selection::of(request) else { return None };
        match route.access {
            Access::OwnProof => {}
            Access::Probe | Access::AnyOf(_) => return None,
        }
        let cluster = cluster_in(route.path, request.match_info().as_str());
        Some(Self { address: address(request), cluster })
    }

    /// Refused ones are counted, and too many are told so; the others pass as they are.
    fn judge(
        self,
        edge: &Edge,
        answer: Result<ServiceResponse<BoxBody>, Error>,
    ) -> Result<ServiceResponse<BoxBody>, Error> {
        let error = match &answer {
            Ok(response) => response.response().error(),
            Err(error) => Some(error),
        };
        let refused = match error.and_then(Error::as_error::<ApiError>) {
            Some(
                ApiError::NoCredentials(Scheme::Basic) | ApiError::BadCredentials(Scheme::Basic),
            ) => edge.limits.refused_beat(self.address, self.cluster.as_ref()),
            Some(_) | None => Ok(()),
        };
        match (refused, answer) {
            (Ok(()), answer) => answer,
            (Err(refusal), Ok(response)) => {
                Ok(ServiceResponse::from_err(ApiError::from(refusal), response.into_parts().0))
            }
            (Err(refusal), Err(_)) => Err(ApiError::from(refusal).into()),
        }
    }
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
