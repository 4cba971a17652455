//! Which statements a list of rotations is made of.

use strum::VariantArray as _;

use super::super::{Page, RotationFilter, RotationRow};
use crate::state::pull_secret::RotationStatus;

/// One statement's worth of a list.
#[derive(Clone, Copy)]
pub(in crate::store) enum Part {
    Fleet,
    OfStatus(RotationStatus),
    OfCluster(Option<RotationStatus>),
    Overdue,
}

/// Several statuses are several reads, merged: each then comes in order from its index.
pub(in crate::store) fn parts(filter: &RotationFilter) -> Vec<Part> {
    let all = filter.statuses.is_empty();
    let wanted = |status: &&RotationStatus| filter.statuses.contains(status);
    let mut statuses = RotationStatus::VARIANTS.iter().filter(wanted).copied();
    let in_cluster = filter.cluster_id.is_some();
    match (filter.overdue, all, in_cluster) {
        (true, true, _) => vec![Part::Overdue],
        (true, false, _) => {
            let running = statuses.any(|status| status == RotationStatus::InProgress);
            if running { vec![Part::Overdue] } else { Vec::new() }
        }
        (false, true, true) => vec![Part::OfCluster(None)],
        (false, true, false) => vec![Part::Fleet],
        (false, false, true) => statuses.map(|status| Part::OfCluster(Some(status))).collect(),
        (false, false, false) => statuses.map(Part::OfStatus).collect(),
    }
}

/// Binds what every statement of a list begins with: cluster, status (or the time), `since`, history.
macro_rules! bind_filter {
    ($query:expr, $filter:expr, $part:expr) => {{
        let query = $query.bind($filter.cluster_id.as_ref().map(|id| id.as_str()));
        let query = match $part {
            Part::Fleet => query.bind(None::<&str>),
            Part::OfStatus(status) => query.bind(<&'static str>::from(status)),
            Part::OfCluster(status) => query.bind(status.map(<&'static str>::from)),
            Part::Overdue => query.bind($filter.now),
        };
        let beginning = $crate::time::Timestamp::from_micros(i64::MIN);
        query
            .bind($filter.since.unwrap_or(beginning))
            .bind($filter.history_since.unwrap_or(beginning))
    }};
}
pub(in crate::store) use bind_filter;

/// Merges the parts, each of which comes with at most one row more than the limit.
pub(in crate::store) fn newest_first(
    mut items: Vec<RotationRow>,
    limit: u32,
    total: u64,
) -> Page<RotationRow> {
    items.sort_unstable_by_key(|row| std::cmp::Reverse((row.rotation.created_at, row.rotation.id)));
    Page::cut(items, limit, Some(total), RotationRow::key)
}
