//! Listeners, and the application that each worker builds.
//!
//! Knows how requests come in. Which handlers there are comes in as a function.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Server, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::{App, Error, HttpServer, web};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::edge::Edge;
use super::frame::frame;
use super::gate::gate;
use super::health;
use super::problem::ApiError;
use super::routes::{Op, bind};
use crate::config::{self, ServerTls};

/// Longer than the idle time of usual load balancers, so that they close first.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// A client that does not end its request's head within this is let go.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address names nothing.
    #[error("{listener}: {host} has no address")]
    NoAddress {
        /// Which listener.
        listener: &'static str,
        /// The configured host.
        host: String,
    },
    /// The address cannot be listened on.
    #[error("{listener}: cannot listen on {host}:{port}: {source}")]
    Bind {
        /// Which listener.
        listener: &'static str,
        /// The configured host.
        host: String,
        /// The configured port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate or its key is of no use.
    #[error("server.tls: {path}: {reason}", path = path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Only one of the two files is named.
    #[error("server.tls needs both cert_file and key_file")]
    HalfTls,
}

/// Running listeners. Both servers are futures that end when they are stopped; drive both.
pub struct Bound {
    /// Serves the API.
    pub api: Server,
    /// Serves the metrics.
    pub metrics: Server,
    /// Where the API listens.
    pub api_address: SocketAddr,
    /// Where the metrics are.
    pub metrics_address: SocketAddr,
}

/// The application of the API. `handlers` binds every operation with [`bind`].
pub fn api_app(
    edge: web::Data<Edge>,
    handlers: impl FnOnce(&mut web::ServiceConfig),
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = Error,
        InitError = (),
    >,
> {
    App::new()
        .app_data(edge)
        // Our extractors have errors of their own; these are for a handler that takes actix's.
        .app_data(web::JsonConfig::default().error_handler(|error, _| as_ours(&error.into())))
        .app_data(web::PathConfig::default().error_handler(|_, _| ApiError::UnknownRoute.into()))
        .app_data(web::QueryConfig::default().error_handler(|error, _| as_ours(&error.into())))
        .configure(|config| {
            bind(config, Op::Healthz, health::healthz);
            bind(config, Op::Readyz, health::readyz);
            handlers(config);
        })
        // A row of the table without a handler.
        .default_service(web::to(unknown))
        .wrap(from_fn(gate))
        .wrap(from_fn(frame))
}

fn as_ours(error: &Error) -> Error {
    ApiError::of(error).into()
}

async fn unknown() -> Result<&'static str, ApiError> {
    Err(ApiError::UnknownRoute)
}

/// The application of the metrics' listener.
fn metrics_app(config: &mut web::ServiceConfig) {
    config.route("/metrics", web::get().to(health::metrics));
    config.route("/healthz", web::get().to(health::healthz));
}

/// Begins to listen, before anything else is set up: until the lifecycle says otherwise, probes are
/// answered and everything else is `503`.
///
/// # Errors
/// When an address cannot be had or a TLS file is of no use.
pub fn listen<F>(
    server: &config::Server,
    metrics: &config::Metrics,
    workers: Option<usize>,
    edge: &web::Data<Edge>,
    handlers: F,
) -> Result<Bound, ServerError>
where
    F: Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
{
    let tls = tls(&server.tls)?;
    let for_api = edge.clone();
    let mut api = HttpServer::new(move || api_app(for_api.clone(), handlers.clone()))
        .disable_signals()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_TIMEOUT)
        // Whoever stops the server has the limit for all of the shutdown.
        .shutdown_timeout(server.shutdown_timeout.as_secs().saturating_add(1));
    if let Some(workers) = workers {
        api = api.workers(workers.max(1));
    }
    let address = resolve("api", &server.host, server.port)?;
    let failed = |source| failure("api", &server.host, server.port, source);
    let api = match tls {
        None => api.bind(address),
        Some(tls) => api.bind_rustls_0_23(address, tls),
    }
    .map_err(failed)?;

    let for_metrics = edge.clone();
    let address = resolve("metrics", &metrics.host, metrics.port)?;
    let pages =
        HttpServer::new(move || App::new().app_data(for_metrics.clone()).configure(metrics_app))
            .disable_signals()
            .workers(1)
            .client_request_timeout(HEAD_TIMEOUT)
            .shutdown_timeout(1)
            .bind(address)
            .map_err(|source| failure("metrics", &metrics.host, metrics.port, source))?;

    let api_address = announced("api", &api.addrs(), &server.host)?;
    let metrics_address = announced("metrics", &pages.addrs(), &metrics.host)?;
    Ok(Bound { api: api.run(), metrics: pages.run(), api_address, metrics_address })
}

/// One address only: with port 0, two of them would get two ports.
fn resolve(listener: &'static str, host: &str, port: u16) -> Result<SocketAddr, ServerError> {
    let mut found =
        (host, port).to_socket_addrs().map_err(|source| failure(listener, host, port, source))?;
    found.next().ok_or_else(|| ServerError::NoAddress { listener, host: host.to_owned() })
}

fn failure(listener: &'static str, host: &str, port: u16, source: io::Error) -> ServerError {
    ServerError::Bind { listener, host: host.to_owned(), port, source }
}

fn announced(
    listener: &'static str,
    addresses: &[SocketAddr],
    host: &str,
) -> Result<SocketAddr, ServerError> {
    let address = addresses
        .first()
        .copied()
        .ok_or_else(|| ServerError::NoAddress { listener, host: host.to_owned() })?;
    tracing::info!(listener, %address, "listening");
    Ok(address)
}

fn tls(files: &ServerTls) -> Result<Option<rustls::ServerConfig>, ServerError> {
    let (cert_file, key_file) = match (&files.cert_file, &files.key_file) {
        (None, None) => return Ok(None),
        (Some(cert_file), Some(key_file)) => (cert_file, key_file),
        (Some(_), None) | (None, Some(_)) => return Err(ServerError::HalfTls),
    };
    let fail = |path: &PathBuf, reason: String| ServerError::Tls { path: path.clone(), reason };
    let chain = CertificateDer::pem_file_iter(cert_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(cert_file, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(key_file)
        .map_err(|error| fail(key_file, error.to_string()))?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map(Some)
        .map_err(|error| fail(cert_file, error.to_string()))
}
