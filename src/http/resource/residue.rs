//! What was given up at registries that did not let it go.

use serde::Serialize;

use crate::ids::{AccountName, ClusterId, Generation, RegistryId};
use crate::state::pull_secret::Account;
use crate::time::Timestamp;

/// An account that stays at its registry.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct GivenUp {
    pub registry_id: RegistryId,
    pub name: AccountName,
    pub username: Option<String>,
    pub generation: Generation,
    pub irrevocable_since: Option<Timestamp>,
    pub last_error: Option<String>,
}

impl GivenUp {
    /// What is shown of an account that was residue.
    #[must_use]
    pub fn of(account: &Account) -> Self {
        Self {
            registry_id: account.registry_id.clone(),
            name: account.name.clone(),
            username: account.username.clone(),
            generation: account.born_generation,
            irrevocable_since: account.trouble.since,
            last_error: account.trouble.last_error.clone(),
        }
    }
}

/// `DELETE .../pull-secrets/residue`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the members of the contract")]
pub struct GivenUpList {
    pub cluster_id: ClusterId,
    pub given_up: Vec<GivenUp>,
}
