//! The words that clients read for an account's life.

use serde::Serialize;
use strum::IntoStaticStr;

use crate::state::pull_secret::{Account, AccountPhase};

/// The words of `credentials[].state` and `progress.registries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum AccountWord {
    Planned,
    Creating,
    Created,
    Verified,
    Active,
    Retiring,
    Revoking,
    Revoked,
    Irrevocable,
    Denied,
}

impl AccountWord {
    /// The account's word. Spoilt names are on their way out like any other.
    #[must_use]
    pub const fn of(account: &Account) -> Self {
        match account.phase {
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
                if account.trouble.refused =>
            {
                Self::Denied
            }
            AccountPhase::Planned => Self::Planned,
            AccountPhase::Creating => Self::Creating,
            AccountPhase::Created => Self::Created,
            AccountPhase::Verified => Self::Verified,
            AccountPhase::Serving => Self::Active,
            AccountPhase::Retiring => Self::Retiring,
            AccountPhase::Deleting | AccountPhase::Burnt => Self::Revoking,
            AccountPhase::Gone => Self::Revoked,
            AccountPhase::Residue => Self::Irrevocable,
        }
    }
}

/// The words of a revocation's `registries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum FoldedWord {
    Pending,
    Revoked,
    Irrevocable,
}

impl FoldedWord {
    /// One word for all accounts of a cluster at one registry: what is still going on counts most, then
    /// what is left over.
    pub fn of<'a>(accounts: impl Iterator<Item = &'a Account>) -> Self {
        accounts.map(Self::of_one).fold(Self::Revoked, |all, one| match (all, one) {
            (Self::Pending, _) | (_, Self::Pending) => Self::Pending,
            (Self::Irrevocable, _) | (_, Self::Irrevocable) => Self::Irrevocable,
            (Self::Revoked, Self::Revoked) => Self::Revoked,
        })
    }

    const fn of_one(account: &Account) -> Self {
        match account.phase {
            AccountPhase::Planned
            | AccountPhase::Creating
            | AccountPhase::Created
            | AccountPhase::Verified
            | AccountPhase::Serving
            | AccountPhase::Retiring
            | AccountPhase::Deleting
            | AccountPhase::Burnt => Self::Pending,
            AccountPhase::Gone => Self::Revoked,
            AccountPhase::Residue => Self::Irrevocable,
        }
    }
}
