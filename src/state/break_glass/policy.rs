//! The configured rules as the machine sees them. Only values; no files, no environment.

use std::time::Duration;

use super::model::Signer;
use crate::state::shared::Backoff;

/// Every rule that decides something. Names are those of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// A second person has to agree.
    pub approval_required: bool,
    /// When a request without an answer has failed.
    pub issue_deadline: Duration,
    /// The pause between two questions to an API server.
    pub probe_interval: Duration,
    /// Rejections in a row that count.
    pub probe_successes: u32,
    /// The longest a call takes.
    pub call_timeout: Duration,
    /// Pauses after failures.
    pub retry: Backoff,
    /// How long a denied credential is kept.
    pub denied_after: Duration,
    /// How long a failed one is.
    pub failed_after: Duration,
    /// How long a revoked or expired one is.
    pub history_after: Duration,
}

/// What is configured for one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRules {
    /// Who signs.
    pub signer: Signer,
    /// The single API servers that can be asked.
    pub endpoints: Vec<String>,
}

impl Policy {
    /// The pause between two looks for a certificate.
    pub const COLLECT_INTERVAL: Duration = Duration::from_secs(2);
    /// The pause between two looks at a signer's rotation.
    pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);
    /// A control is renewed at this age.
    pub const CONTROL_RENEWAL: Duration = Duration::from_secs(24 * 3600);

    /// A running call is given up at this age: the sender may begin until `call_timeout` after the
    /// announcement and takes at most `call_timeout`.
    #[must_use]
    pub const fn call_lost_after(&self) -> Duration {
        self.call_timeout.saturating_mul(2)
    }

    /// Trouble that is older than two tries, or two questions, needs a look.
    #[must_use]
    pub fn stuck_after(&self) -> Duration {
        self.retry.initial.max(self.probe_interval).saturating_mul(2)
    }
}
