//! What an error of the management cluster's API server means for one call.
//!
//! Answers are never repeated: what the other side writes is not known to be harmless.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use kube::core::Status;

use super::super::{Trouble, TroubleKind};

/// Why a request did not do what it should.
#[derive(Debug)]
pub(super) enum Failure {
    /// `409`: the name is taken.
    Exists,
    /// `404`: no such object, namespace or resource type.
    Missing,
    /// `400`, `413` or `422`: this object will never be taken.
    Invalid(String),
    /// Definitely not applied.
    NotApplied(Trouble),
    /// It may have been applied, or may still be.
    Lost(Trouble),
}

impl Failure {
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::Auth(_) => Self::NotApplied(own_credential("cannot be read")),
            kube::Error::BuildRequest(_)
            | kube::Error::RustlsTls(_)
            | kube::Error::TlsRequired
            | kube::Error::ProxyProtocolUnsupported { .. }
            | kube::Error::ProxyProtocolDisabled { .. } => {
                let message = "the connection to the management cluster is not configured rightly";
                Self::NotApplied(Trouble::new(TroubleKind::Misconfigured, message))
            }
            other => Self::of_connection(other),
        }
    }

    fn of_status(status: &Status) -> Self {
        let code = status.code;
        let answered = format!("the management cluster answered {code}");
        let server = || Trouble::new(TroubleKind::ServerError, answered.clone());
        match code {
            400 | 413 | 422 => {
                Self::Invalid(format!("the management cluster does not take the request ({code})"))
            }
            401 => Self::NotApplied(own_credential("was not accepted (401)")),
            403 => Self::NotApplied(own_credential("has too few rights (403)")),
            404 => Self::Missing,
            409 => Self::Exists,
            429 => {
                let trouble = Trouble::new(TroubleKind::RateLimited, answered);
                Self::NotApplied(trouble.retry_after(retry_after(status)))
            }
            503 => Self::NotApplied(server().retry_after(retry_after(status))),
            400..500 => Self::NotApplied(server()),
            _ => Self::Lost(server().retry_after(retry_after(status))),
        }
    }

    fn of_connection(error: &kube::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(current) = cause {
            if let Some(io) = current.downcast_ref::<std::io::Error>() {
                if io.kind() == ErrorKind::ConnectionRefused {
                    let message = "no connection to the management cluster";
                    return Self::NotApplied(Trouble::new(TroubleKind::Connect, message));
                }
                let inner = io.get_ref().and_then(|inner| inner.downcast_ref());
                if let Some(rustls::Error::InvalidCertificate(_)) = inner {
                    let message = "the management cluster's certificate is not trusted";
                    return Self::NotApplied(Trouble::new(TroubleKind::Misconfigured, message));
                }
            }
            cause = current.source();
        }
        let message = "the management cluster's answer was lost";
        Self::Lost(Trouble::new(TroubleKind::ServerError, message))
    }

    /// For calls where it does not matter what happened to the request.
    pub(super) fn trouble(self) -> Trouble {
        match self {
            Self::NotApplied(trouble) | Self::Lost(trouble) => trouble,
            Self::Missing => no_such_resource(),
            Self::Exists => Trouble::new(TroubleKind::ServerError, "an unexpected 409"),
            Self::Invalid(reason) => Trouble::new(TroubleKind::ServerError, reason),
        }
    }
}

pub(super) fn no_such_resource() -> Trouble {
    let message = "the management cluster has no such namespace or resource type (404)";
    Trouble::new(TroubleKind::Misconfigured, message)
}

fn own_credential(how: &str) -> Trouble {
    let message = format!("the service's own login at the management cluster {how}");
    Trouble::new(TroubleKind::OwnCredential, message)
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds)?;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// A condition's reason as it may be shown: one word, as Kubernetes wants it.
pub(super) fn safe_reason(reason: &str) -> &str {
    let word = |byte: u8| byte.is_ascii_alphanumeric();
    if !reason.is_empty() && reason.len() <= 48 && reason.bytes().all(word) {
        reason
    } else {
        "no reason"
    }
}
