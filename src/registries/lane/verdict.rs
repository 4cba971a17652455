//! What the outcome of a call says about the registry (not about the account).
//!
//! "It exists", "refused" and "wrong secret" are answers of a healthy registry.

use crate::registries::{
    CreateOutcome, ListError, LookupOutcome, RevokeOutcome, Trouble, TroubleKind, VerifyOutcome,
};

/// A word about the registry's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It answered, whatever the answer was.
    Healthy,
    /// Nothing was sent, so nothing was learnt.
    Neutral,
    /// It did not answer sensibly.
    Trouble(Trouble),
}

impl From<&Trouble> for Verdict {
    fn from(trouble: &Trouble) -> Self {
        match trouble.kind {
            TroubleKind::NotCurrent | TroubleKind::Internal => Self::Neutral,
            TroubleKind::Connect
            | TroubleKind::Timeout
            | TroubleKind::RateLimited
            | TroubleKind::ServerError
            | TroubleKind::OwnCredential
            | TroubleKind::Misconfigured => Self::Trouble(trouble.clone()),
        }
    }
}

impl From<&CreateOutcome> for Verdict {
    fn from(outcome: &CreateOutcome) -> Self {
        match outcome {
            CreateOutcome::Created { .. }
            | CreateOutcome::AlreadyExists
            | CreateOutcome::Refused(_) => Self::Healthy,
            CreateOutcome::Unavailable(trouble) | CreateOutcome::Unknown(trouble) => trouble.into(),
        }
    }
}

impl From<&LookupOutcome> for Verdict {
    fn from(outcome: &LookupOutcome) -> Self {
        match outcome {
            LookupOutcome::Absent | LookupOutcome::Present { .. } => Self::Healthy,
            LookupOutcome::Unavailable(trouble) => trouble.into(),
        }
    }
}

impl From<&RevokeOutcome> for Verdict {
    fn from(outcome: &RevokeOutcome) -> Self {
        match outcome {
            RevokeOutcome::Done | RevokeOutcome::AlreadyGone | RevokeOutcome::Refused(_) => {
                Self::Healthy
            }
            RevokeOutcome::Unavailable(trouble) | RevokeOutcome::Unknown(trouble) => trouble.into(),
        }
    }
}

impl From<&VerifyOutcome> for Verdict {
    fn from(outcome: &VerifyOutcome) -> Self {
        match outcome {
            VerifyOutcome::Valid { .. } | VerifyOutcome::Invalid => Self::Healthy,
            VerifyOutcome::Unavailable(trouble) => trouble.into(),
        }
    }
}

/// Listings and readings of usage.
impl<T> From<&Result<T, ListError>> for Verdict {
    fn from(outcome: &Result<T, ListError>) -> Self {
        match outcome {
            Ok(_) => Self::Healthy,
            Err(ListError(trouble)) => trouble.into(),
        }
    }
}
