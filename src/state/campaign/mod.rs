//! The rotation of many clusters in waves: what comes next, and what became of each.
//!
//! Only decisions, from counts and from what is seen of a rotation. Who drives a campaign, and where its members
//! are kept, is not known here.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use super::pull_secret::RotationStatus;

/// Below so many results a share says little; they count as so many.
const FEW: u32 = 10;

/// What a campaign is doing.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CampaignState {
    /// Rotations are started.
    Running,
    /// None is started until somebody says so.
    Paused,
    /// No more is started; those that run go on by themselves.
    Aborted,
    /// Every member has its result.
    Completed,
}

/// What became of one cluster of a campaign.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum MemberStatus {
    /// Not begun.
    Pending,
    /// Its rotation was asked for and has not come to a result.
    Running,
    /// Its new generation is served.
    Succeeded,
    /// Its rotation failed, was cancelled or was rolled back.
    Failed,
    /// It could not be rotated, by no fault of the campaign's.
    Skipped,
}

/// The rules of one campaign.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// So many members may run at once, those with a deletion due now included.
    pub max_in_flight: u32,
    /// So many may begin within any minute.
    pub max_per_minute: u32,
    /// So many have to come to a result before the others begin.
    pub canary: u32,
    /// The campaign stops when a greater share than this failed.
    pub abort_failure_ratio: f64,
}

/// How far a campaign is, in clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the words of MemberStatus")]
pub struct Progress {
    pub total: u32,
    pub pending: u32,
    pub running: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// What else takes room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Members that began within the last minute.
    pub begun: u32,
    /// Members with a result whose old accounts are due to be deleted now.
    pub deleting: u32,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// So many begin, at least one.
    Begin(u32),
    /// Nothing at the moment.
    Wait,
    /// Too many failed.
    Stop,
    /// Every member has its result.
    Complete,
}

/// The waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, Serialize)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Wave {
    /// The first few.
    Canary,
    /// All the others.
    Rest,
}

impl Progress {
    /// Members whose rotation came to a result. One that was skipped proves nothing.
    #[must_use]
    pub const fn tested(&self) -> u32 {
        self.succeeded.saturating_add(self.failed)
    }

    /// The wave that is under way.
    #[must_use]
    pub const fn wave(&self, rules: &Rules) -> Wave {
        if self.tested() < rules.canary { Wave::Canary } else { Wave::Rest }
    }

    fn went_wrong(&self, rules: &Rules) -> bool {
        let of = if self.tested() <= rules.canary { rules.canary } else { self.tested().max(FEW) };
        f64::from(self.failed) > rules.abort_failure_ratio * f64::from(of.max(1))
    }
}

/// Decides what a running campaign does next.
#[must_use]
pub fn next(rules: &Rules, progress: &Progress, load: Load) -> Next {
    if progress.went_wrong(rules) {
        return Next::Stop;
    }
    if progress.pending == 0 {
        return if progress.running == 0 { Next::Complete } else { Next::Wait };
    }
    let in_flight = progress.running.saturating_add(load.deleting);
    let room = rules.max_in_flight.saturating_sub(in_flight);
    let rate = rules.max_per_minute.saturating_sub(load.begun);
    let wave = match progress.wave(rules) {
        Wave::Canary => {
            rules.canary.saturating_sub(progress.tested()).saturating_sub(progress.running)
        }
        Wave::Rest => u32::MAX,
    };
    match room.min(rate).min(wave).min(progress.pending) {
        0 => Next::Wait,
        count => Next::Begin(count),
    }
}

/// What is seen of a member's rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its status.
    pub status: RotationStatus,
    /// It goes back, or went back.
    pub rolling_back: bool,
    /// Its new generation was served.
    pub promoted: bool,
    /// The word of its error.
    pub error_code: Option<String>,
}

/// The result, once there is one, and why where it is a bad one. A new generation that is served is a success:
/// what follows is the cluster's own time, up to a week of it.
#[must_use]
pub fn result(seen: &Seen) -> Option<(MemberStatus, Option<String>)> {
    let failed = |word: &str| {
        let word = seen.error_code.as_deref().unwrap_or(word);
        Some((MemberStatus::Failed, Some(word.to_owned())))
    };
    match seen.status {
        RotationStatus::Completed => Some((MemberStatus::Succeeded, None)),
        RotationStatus::Failed => failed("failed"),
        RotationStatus::RolledBack => failed("rolled_back"),
        RotationStatus::Cancelled => match seen.error_code.as_deref() {
            // Deleted, or rotated for a better reason.
            Some(code @ ("superseded" | "revoked")) => {
                Some((MemberStatus::Skipped, Some(code.to_owned())))
            }
            Some(_) | None => failed("cancelled"),
        },
        RotationStatus::Pending | RotationStatus::InProgress if seen.rolling_back => {
            failed("rolled_back")
        }
        RotationStatus::Pending | RotationStatus::InProgress => {
            seen.promoted.then_some((MemberStatus::Succeeded, None))
        }
    }
}

/// What somebody wants of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the API")]
pub enum Order {
    Pause,
    Resume,
    Abort,
}

/// The state that follows; none where the order comes too late.
#[must_use]
pub const fn ordered(state: CampaignState, order: Order) -> Option<CampaignState> {
    match (state, order) {
        (CampaignState::Running | CampaignState::Paused, Order::Pause) => {
            Some(CampaignState::Paused)
        }
        (CampaignState::Running | CampaignState::Paused, Order::Resume) => {
            Some(CampaignState::Running)
        }
        (CampaignState::Running | CampaignState::Paused | CampaignState::Aborted, Order::Abort) => {
            Some(CampaignState::Aborted)
        }
        (CampaignState::Aborted, Order::Pause | Order::Resume)
        | (CampaignState::Completed, Order::Pause | Order::Resume | Order::Abort) => None,
    }
}
