//! The comparison itself.

use std::collections::{BTreeMap, BTreeSet};

use super::name::parts_of;
use super::{
    Beyond, Claim, Comparison, Facts, Listed, Missing, Named, Rules, Seen, Serving, Standing,
    Unknown, Whose,
};
use crate::ids::{AccountName, ClusterId, Generation};
use crate::time::Timestamp;

/// What a listed account is to us.
enum Class {
    /// A row wants it.
    Ours,
    /// Ours, and no row wants it.
    Unknown(AccountName),
    /// Somebody else's: never touched.
    Foreign,
}

/// Compares a listing with the rows that were read after it.
#[must_use]
pub fn compare(facts: &Facts<'_>, rules: &Rules) -> Comparison {
    let mut named: BTreeMap<&str, &Named> = BTreeMap::new();
    for row in facts.named {
        let strongest = named.entry(row.name.as_str()).or_insert(row);
        if weight(row.standing) > weight(strongest.standing) {
            *strongest = row;
        }
    }
    let beyond = beyond(facts, rules, &named);
    // One restored account is enough to doubt every row.
    let held = rules.restored || !rules.time_is_trusted || !beyond.is_empty();
    let seen: BTreeMap<&str, &Seen> =
        facts.seen.iter().map(|seen| (seen.name.as_str(), seen)).collect();
    let mut found = Comparison { listed: count(facts.listed.len()), ..Comparison::default() };
    for listed in facts.listed {
        let row = named.get(listed.name.as_str()).copied();
        match class(listed, row, facts.started_at) {
            Class::Ours => found.ours += 1,
            Class::Foreign => found.foreign += 1,
            Class::Unknown(name) => {
                let seen = seen.get(listed.name.as_str()).copied();
                let mut unknown = unknown(name, listed, row, seen, facts.now, rules);
                unknown.delete &= !held;
                found.unknown.push(unknown);
            }
        }
    }
    found.unknown.sort_by(|a, b| a.name.cmp(&b.name));
    found.unknown.dedup_by(|a, b| a.name == b.name);
    found.settled = settled(facts, &found.unknown);
    found.missing = missing(facts, rules);
    found.beyond = beyond;
    found
}

/// Of several rows the one that protects the account most.
const fn weight(standing: Standing) -> u8 {
    match standing {
        Standing::Wanted => 2,
        Standing::Foreign => 1,
        Standing::Gone { .. } => 0,
    }
}

fn class(listed: &Listed, row: Option<&Named>, started_at: Timestamp) -> Class {
    // What is not named as we name accounts was not made by us.
    let Ok(name) = listed.name.parse::<AccountName>() else { return Class::Foreign };
    match (row.map(|row| row.standing), &listed.claim) {
        (Some(Standing::Wanted), Claim::Ours { .. } | Claim::Theirs | Claim::Unsigned) => {
            Class::Ours
        }
        (Some(Standing::Foreign), Claim::Ours { .. } | Claim::Theirs | Claim::Unsigned)
        | (Some(Standing::Gone { .. }) | None, Claim::Theirs)
        | (None, Claim::Unsigned) => Class::Foreign,
        // It went while the listing was made.
        (Some(Standing::Gone { at: Some(at) }), Claim::Ours { .. } | Claim::Unsigned)
            if at >= started_at =>
        {
            Class::Ours
        }
        (Some(Standing::Gone { .. }), Claim::Ours { .. } | Claim::Unsigned)
        | (None, Claim::Ours { .. }) => Class::Unknown(name),
    }
}

fn unknown(
    name: AccountName,
    listed: &Listed,
    row: Option<&Named>,
    seen: Option<&Seen>,
    now: Timestamp,
    rules: &Rules,
) -> Unknown {
    let first_seen_at = seen.map_or(now, |seen| seen.first_seen_at);
    let since = rules.acknowledged_at.map_or(first_seen_at, |at| at.max(first_seen_at));
    let deletable_at = since.plus(rules.safety_age);
    let (cluster_id, generation) = match &listed.claim {
        Claim::Ours { cluster_id, generation } => (cluster_id.clone(), Some(*generation)),
        Claim::Theirs | Claim::Unsigned => (None, None),
    };
    Unknown {
        name,
        remote_id: listed.remote_id.clone(),
        cluster_id: cluster_id.or_else(|| row.map(|row| row.cluster_id.clone())),
        generation,
        recorded: row.is_some(),
        first_seen_at,
        deletable_at,
        // Only what an earlier sweep saw, too.
        delete: seen.is_some() && deletable_at <= now,
    }
}

/// What was unknown and is not any more. A call that runs is waited for.
fn settled(facts: &Facts<'_>, unknown: &[Unknown]) -> Vec<String> {
    let still: BTreeSet<&str> = unknown.iter().map(|unknown| unknown.name.as_str()).collect();
    let over = facts.seen.iter().filter(|seen| !seen.calling && !still.contains(&*seen.name));
    over.map(|seen| seen.name.clone()).collect()
}

fn missing(facts: &Facts<'_>, rules: &Rules) -> Vec<Missing> {
    let listed: BTreeSet<&str> = facts.listed.iter().map(|listed| &*listed.name).collect();
    let begin = format!("{}-", rules.prefix);
    let lost = |account: &&Serving| {
        // Other names are in no listing: the prefix was another one when they were made.
        account.name.starts_with(&begin)
            && !listed.contains(&*account.name)
            // The listing may be older than the account, or not show it yet.
            && account.created_at.is_some_and(|at| at.plus(rules.settle_time) <= facts.started_at)
            // A login that went well later knows better.
            && account.verified_at.is_none_or(|at| at < facts.started_at)
    };
    let missing = |account: &Serving| Missing {
        account_id: account.account_id,
        cluster_id: account.cluster_id.clone(),
        name: account.name.clone(),
    };
    facts.serving.iter().filter(lost).map(missing).collect()
}

/// Numbers are given out in a commit that comes before the account, so one that the counter does not know was
/// given out in a past that the database has forgotten.
fn beyond(facts: &Facts<'_>, rules: &Rules, named: &BTreeMap<&str, &Named>) -> Vec<Beyond> {
    let mut highest: BTreeMap<Whose, Generation> = BTreeMap::new();
    for listed in facts.listed {
        let Some((whose, generation)) = lost(listed, facts, rules, named) else { continue };
        let known = highest.entry(whose).or_default();
        *known = generation.max(*known);
    }
    highest.into_iter().map(|(whose, generation)| Beyond { whose, generation }).collect()
}

fn lost(
    listed: &Listed,
    facts: &Facts<'_>,
    rules: &Rules,
    named: &BTreeMap<&str, &Named>,
) -> Option<(Whose, Generation)> {
    match &listed.claim {
        Claim::Ours { cluster_id: Some(cluster_id), generation } => {
            let counter = counter_of(facts, cluster_id);
            (*generation > counter).then(|| (Whose::Cluster(cluster_id.clone()), *generation))
        }
        Claim::Ours { cluster_id: None, .. } | Claim::Theirs => None,
        Claim::Unsigned if named.contains_key(&*listed.name) => None,
        Claim::Unsigned => {
            let parts = parts_of(&rules.prefix, &listed.name)?;
            let counter = *facts.slugs.get(&parts.slug)?;
            (parts.generation > counter).then_some((Whose::Slug(parts.slug), parts.generation))
        }
    }
}

fn counter_of(facts: &Facts<'_>, cluster_id: &ClusterId) -> Generation {
    facts.generations.get(cluster_id).copied().unwrap_or(Generation::NONE)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
