//! Which Quay, and what every robot is given there. Values only; `Quay::new` checks them.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

/// Where evidence of use comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// The organisation's log: real pulls.
    Log,
    /// The robot's `last_accessed`: logins, ours left out.
    LastAccessed,
    /// Nowhere.
    None,
}

/// Which Quay, and what every robot is given there.
#[derive(Debug, Clone)]
pub struct QuaySettings {
    /// The base of the API and of the registry.
    pub url: Url,
    /// The organisation that owns the robots.
    pub organization: String,
    /// A team that each robot joins.
    pub team: Option<String>,
    /// Repositories that each robot may read, with or without the organisation in front. A
    /// verification asks for each of them.
    pub repositories: Vec<String>,
    /// The service's own OAuth token.
    pub token_file: PathBuf,
    /// The service name in `/v2/auth`; none: the address's host.
    pub service: Option<String>,
    /// Where evidence of use comes from.
    pub usage: UsageSource,
    /// How long tokens live on that Quay issued before a revocation.
    pub token_ttl: Duration,
}

impl QuaySettings {
    /// Robots of an organisation without team or grants, used by the log's word.
    #[must_use]
    pub fn new(url: Url, organization: impl Into<String>, token_file: PathBuf) -> Self {
        Self {
            url,
            organization: organization.into(),
            team: None,
            repositories: Vec::new(),
            token_file,
            service: None,
            usage: UsageSource::Log,
            token_ttl: Duration::from_hours(1),
        }
    }
}

/// Settings that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuayError {
    /// The address is not one of a Quay.
    #[error("url must be an http or https address without user name and password")]
    Url,
    /// No organisation can be called so.
    #[error(
        "organization must be 1 to 252 lower-case letters, digits, dots, dashes or underscores"
    )]
    Organization,
    /// No team can be called so.
    #[error("team must be a name without slashes")]
    Team,
    /// No repository can be called so.
    #[error("repositories must name repositories of the organization, without a tag")]
    Repository,
}

/// Whether a team can be called so.
pub(super) fn is_team(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && name.bytes().all(allowed) && !matches!(name, "." | "..")
}
