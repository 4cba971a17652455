//! Readings of the registries' own records of use, as the databases keep them.

use std::ops::Bound;
use std::time::Duration;

use super::super::usage::too_far;
use super::super::{UsageCandidate, UsageScope};
use super::Tables;
use crate::ids::{AccountId, RegistryId};
use crate::state::pull_secret::StateName;
use crate::time::Timestamp;

impl Tables {
    pub(super) fn claim_usage(
        &mut self,
        registry_id: &RegistryId,
        scope: UsageScope,
        now: Timestamp,
        pause: Duration,
    ) -> Option<Option<Timestamp>> {
        let key = (registry_id.clone(), scope);
        let reading = self.readings.entry(key).or_insert((now, None));
        let due = reading.0 <= now || reading.0 > too_far(now, pause);
        due.then(|| {
            reading.0 = now.plus(pause);
            reading.1
        })
    }

    pub(super) fn usage_candidates(
        &self,
        registry_id: &RegistryId,
        scope: UsageScope,
        after: Option<AccountId>,
        limit: u32,
    ) -> Vec<UsageCandidate> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.accounts.range((from, Bound::Unbounded)).filter_map(|(id, row)| {
            let state = &self.records.get(&row.cluster_id)?.state;
            let wanted = match scope {
                UsageScope::Rotating => state.state.name() == StateName::Rotating,
                UsageScope::All => true,
            };
            let account = &row.account;
            let here = account.registry_id == *registry_id && account.phase.is_handed_out();
            let served_since = state.served()?.since;
            (wanted && here).then(|| UsageCandidate {
                cluster_id: row.cluster_id.clone(),
                account_id: *id,
                name: account.name.clone(),
                phase: account.phase,
                verified_at: account.verified_at,
                unsure: account.call.is_some() || account.trouble.since.is_some(),
                served_since,
            })
        });
        rows.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
    }
}
