//! What a sweep must never do, whatever a registry lists and whatever the rows say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::state::pull_secret::Entropy;

const HOUR: Duration = Duration::from_secs(3600);

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + minutes * 60_000_000)
}

fn rules() -> Rules {
    Rules {
        prefix: "hyp".to_owned(),
        safety_age: HOUR,
        settle_time: Duration::from_secs(600),
        restored: false,
        time_is_trusted: true,
        acknowledged_at: None,
    }
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn name(number: usize) -> String {
    format!(
        "hyp-cls-{}-g{}-aaaaaaaaa{}",
        number % 3,
        1 + number % 4,
        char::from(b'a' + (number % 26) as u8)
    )
}

fn ours(name: &str, whose: &str, generation: u32) -> Listed {
    let claim =
        Claim::Ours { cluster_id: Some(cluster(whose)), generation: Generation(generation) };
    Listed { name: name.to_owned(), remote_id: None, claim }
}

/// Owned facts, so that a test can change one of them.
#[derive(Debug, Clone, Default)]
struct World {
    listed: Vec<Listed>,
    named: Vec<Named>,
    serving: Vec<Serving>,
    seen: Vec<Seen>,
    generations: BTreeMap<ClusterId, Generation>,
    slugs: BTreeMap<String, Generation>,
}

impl World {
    fn compare(&self, now: Timestamp, rules: &Rules) -> Comparison {
        let facts = Facts {
            started_at: now.minus(Duration::from_secs(5)),
            now,
            listed: &self.listed,
            named: &self.named,
            serving: &self.serving,
            seen: &self.seen,
            generations: &self.generations,
            slugs: &self.slugs,
        };
        compare(&facts, rules)
    }

    /// A robot of cluster cls-1 that no row names.
    fn leftover() -> Self {
        Self {
            listed: vec![ours("hyp-cls-1-g1-aaaaaaaaaa", "cls-1", 1)],
            generations: BTreeMap::from([(cluster("cls-1"), Generation(3))]),
            ..Self::default()
        }
    }

    fn seen_at(mut self, first_seen_at: Timestamp) -> Self {
        let seen =
            |listed: &Listed| Seen { name: listed.name.clone(), first_seen_at, calling: false };
        self.seen = self.listed.iter().map(seen).collect();
        self
    }
}

#[test]
fn a_leftover_is_deleted_once_it_was_known_for_the_safety_age() {
    let world = World::leftover();
    let first = world.compare(at(0), &rules());
    assert_eq!(first.unknown.len(), 1);
    assert_eq!((first.unknown[0].first_seen_at, first.unknown[0].deletable_at), (at(0), at(60)));
    assert!(!first.unknown[0].delete, "nobody has seen it before");
    let world = world.seen_at(at(0));
    assert!(!world.compare(at(59), &rules()).unknown[0].delete);
    assert!(world.compare(at(60), &rules()).unknown[0].delete);
    // A clock that went back makes nothing older.
    assert!(!world.compare(at(-600), &rules()).unknown[0].delete);
}

#[test]
fn a_name_that_was_given_up_is_ours_for_ever() {
    let standing = Standing::Gone { at: Some(at(-600)) };
    let name = "hyp-cls-1-g1-aaaaaaaaaa".to_owned();
    let mut world = World::leftover();
    // As at a registry without markers.
    world.listed[0].claim = Claim::Unsigned;
    assert_eq!(world.compare(at(0), &rules()).foreign, 1, "without a row nothing says it is ours");
    world.named = vec![Named { name, cluster_id: cluster("cls-1"), standing }];
    let found = world.clone().seen_at(at(-60)).compare(at(0), &rules());
    assert!(found.unknown[0].delete && found.unknown[0].recorded);
    // It went while the listing was made: the listing is older than the row.
    world.named[0].standing = Standing::Gone { at: Some(at(0)) };
    let found = world.clone().seen_at(at(-60)).compare(at(0), &rules());
    assert_eq!((found.unknown.len(), found.ours), (0, 1));
    world.named[0].standing = Standing::Foreign;
    let found = world.clone().seen_at(at(-60)).compare(at(0), &rules());
    assert_eq!((found.unknown.len(), found.foreign), (0, 1));
    // Another row, of a registry that has another id by now, wants it.
    for wanted_first in [true, false] {
        let row = |standing| Named { standing, ..world.named[0].clone() };
        let mut named = vec![row(Standing::Wanted), row(Standing::Gone { at: None })];
        if !wanted_first {
            named.reverse();
        }
        let world = World { named, ..world.clone() };
        let found = world.seen_at(at(-60)).compare(at(0), &rules());
        assert_eq!((found.unknown.len(), found.ours), (0, 1));
    }
}

#[test]
fn a_generation_that_was_never_given_out_holds_everything() {
    let mut world = World::leftover().seen_at(at(-600));
    world.listed.push(ours("hyp-cls-2-g1-bbbbbbbbbb", "cls-2", 1));
    let found = world.compare(at(0), &rules());
    // Nobody has ever heard of cls-2: it was made after the copy.
    let whose = Whose::Cluster(cluster("cls-2"));
    assert_eq!(found.beyond, [Beyond { whose, generation: Generation(1) }]);
    assert_eq!(found.unknown.len(), 2);
    assert!(found.unknown.iter().all(|unknown| !unknown.delete), "{found:#?}");
}

#[test]
fn without_markers_the_names_tell() {
    let listed =
        |name: &str| Listed { name: name.to_owned(), remote_id: None, claim: Claim::Unsigned };
    let mut world = World {
        listed: vec![listed("hyp-cls-1-g4-aaaaaaaaaa"), listed("hyp-cls-1-g3-aaaaaaaaab")],
        slugs: BTreeMap::from([("cls-1".to_owned(), Generation(3))]),
        ..World::default()
    };
    let found = world.compare(at(0), &rules());
    let whose = Whose::Slug("cls-1".to_owned());
    assert_eq!(found.beyond, [Beyond { whose, generation: Generation(4) }]);
    assert_eq!(found.foreign, 2, "they are never deleted");
    world.slugs.clear();
    assert_eq!(world.compare(at(0), &rules()).beyond, []);
}

#[test]
fn ages_begin_again_with_the_acknowledgement() {
    let world = World::leftover().seen_at(at(-600));
    for held in [Rules { restored: true, ..rules() }, Rules { time_is_trusted: false, ..rules() }] {
        assert!(!world.compare(at(0), &held).unknown[0].delete);
    }
    let rules = Rules { acknowledged_at: Some(at(0)), ..rules() };
    assert!(!world.compare(at(59), &rules).unknown[0].delete);
    assert!(world.compare(at(60), &rules).unknown[0].delete);
}

#[test]
fn what_is_handed_out_and_not_listed_is_missing() {
    let serving = Serving {
        account_id: AccountId(Uuid::from_u128(1)),
        cluster_id: cluster("cls-1"),
        name: "hyp-cls-1-g1-aaaaaaaaaa".to_owned(),
        created_at: Some(at(-60)),
        verified_at: Some(at(-60)),
    };
    let mut world = World { serving: vec![serving], ..World::default() };
    assert_eq!(world.compare(at(0), &rules()).missing.len(), 1);
    for change in [
        |serving: &mut Serving| serving.created_at = Some(at(-1)),
        |serving: &mut Serving| serving.created_at = None,
        |serving: &mut Serving| serving.verified_at = Some(at(0)),
        |serving: &mut Serving| serving.name = "old-cls-1-g1-aaaaaaaaaa".to_owned(),
    ] {
        let mut world = world.clone();
        change(&mut world.serving[0]);
        assert_eq!(world.compare(at(0), &rules()).missing, [], "{:?}", world.serving);
    }
    world.listed = vec![ours("hyp-cls-1-g1-aaaaaaaaaa", "cls-1", 1)];
    assert_eq!(world.compare(at(0), &rules()).missing, []);
}

#[test]
fn what_vanished_or_was_explained_is_forgotten_unless_a_call_runs() {
    let mut world = World::leftover().seen_at(at(-600));
    world.listed.clear();
    let name = world.seen[0].name.clone();
    assert_eq!(world.compare(at(0), &rules()).settled, [name]);
    world.seen[0].calling = true;
    assert_eq!(world.compare(at(0), &rules()).settled, Vec::<String>::new());
}

#[test]
fn names_are_read_as_they_are_made() {
    for (id, slug) in [
        ("cls-1", "cls-1"),
        ("a", "a"),
        ("cls-g7-x", "cls-g7-x"),
        ("production-cluster-0001", "production-clust"),
    ] {
        let mut entropy = Entropy::from_seed(7);
        let made = entropy.account_name("hyp", &cluster(id), Generation(12));
        let parts = parts_of("hyp", made.as_str()).unwrap();
        assert_eq!((parts.slug.as_str(), parts.generation), (slug, Generation(12)), "{made}");
        assert_eq!(parts_of("other", made.as_str()), None);
    }
    for other in ["hyp-pool-aaaaaaaaaa", "hyp-cls-1-g1", "hyp-g1-aaaaaaaaaa", "hyp-a-g-aaaaaaaaaa"]
    {
        assert_eq!(parts_of("hyp", other), None, "{other}");
    }
}

#[test]
fn a_timeline_that_is_not_the_rows_own_went_back() {
    let line = |text: &str| text.parse::<Timeline>().unwrap();
    assert_eq!(line("7/3").course_to(&line("7/3")), Course::Same);
    assert_eq!(line("7/3").course_to(&line("7/4")), Course::Rose);
    assert_eq!(line("7/3").course_to(&line("7/2")), Course::WentBack);
    assert_eq!(line("7/3").course_to(&line("8/3")), Course::WentBack);
    assert_eq!(line("7/3").to_string(), "7/3");
    assert!("7".parse::<Timeline>().is_err());
}

fn claims() -> impl Strategy<Value = Claim> {
    let ours = (0..3_usize, 1..6_u32).prop_map(|(number, generation)| Claim::Ours {
        cluster_id: Some(cluster(&format!("cls-{number}"))),
        generation: Generation(generation),
    });
    prop_oneof![4 => ours, 1 => Just(Claim::Theirs), 1 => Just(Claim::Unsigned)]
}

fn standings() -> impl Strategy<Value = Standing> {
    prop_oneof![
        Just(Standing::Wanted),
        Just(Standing::Foreign),
        Just(Standing::Gone { at: None }),
        (-300..10_i64).prop_map(|minutes| Standing::Gone { at: Some(at(minutes)) }),
    ]
}

prop_compose! {
    fn worlds()(
        listed in prop::collection::btree_map(0..40_usize, claims(), 0..20),
        named in prop::collection::btree_map(0..40_usize, standings(), 0..20),
        seen in prop::collection::btree_map(0..40_usize, (-300..10_i64, any::<bool>()), 0..20),
        counters in prop::collection::vec(3..7_u32, 3),
    ) -> World {
        let listed = listed.into_iter().map(|(number, claim)| Listed { name: name(number), remote_id: None, claim });
        let named = named.into_iter().map(|(number, standing)| Named { name: name(number), cluster_id: cluster("cls-0"), standing });
        let seen = seen.into_iter().map(|(number, (minutes, calling))| Seen { name: name(number), first_seen_at: at(minutes), calling });
        let counters = counters.into_iter().enumerate();
        World {
            listed: listed.collect(),
            named: named.collect(),
            seen: seen.collect(),
            generations: counters.map(|(number, counter)| (cluster(&format!("cls-{number}")), Generation(counter))).collect(),
            ..World::default()
        }
    }
}

proptest! {
    #[test]
    fn only_what_is_ours_old_enough_and_unwanted_is_ever_deleted(world in worlds(), now in -400..400_i64) {
        let now = at(now);
        let found = world.compare(now, &rules());
        for unknown in found.unknown.iter().filter(|unknown| unknown.delete) {
            let name = unknown.name.as_str();
            prop_assert!(found.beyond.is_empty());
            let seen = world.seen.iter().find(|seen| seen.name == name).unwrap();
            prop_assert!(seen.first_seen_at.plus(HOUR) <= now, "too young: {:?}", unknown);
            let row = world.named.iter().rfind(|row| row.name == name);
            prop_assert!(!matches!(row.map(|row| row.standing), Some(Standing::Wanted | Standing::Foreign)));
            let claim = &world.listed.iter().find(|listed| listed.name == name).unwrap().claim;
            match claim {
                Claim::Ours { .. } => {}
                Claim::Unsigned => prop_assert!(row.is_some(), "nothing says that it is ours"),
                Claim::Theirs => prop_assert!(false, "another installation's"),
            }
        }
    }

    #[test]
    fn every_listed_account_is_counted_once(world in worlds(), now in -400..400_i64) {
        let found = world.compare(at(now), &rules());
        let distinct: BTreeSet<_> = world.listed.iter().map(|listed| &listed.name).collect();
        prop_assume!(distinct.len() == world.listed.len());
        let unknown = found.unknown.len() as u64;
        prop_assert_eq!(found.ours + found.foreign + unknown, found.listed);
    }

    #[test]
    fn a_latch_lets_nothing_go(world in worlds(), now in -400..400_i64) {
        let found = world.compare(at(now), &Rules { restored: true, ..rules() });
        prop_assert!(found.unknown.iter().all(|unknown| !unknown.delete));
    }

    #[test]
    fn what_is_still_unknown_is_never_forgotten(world in worlds(), now in -400..400_i64) {
        let found = world.compare(at(now), &rules());
        for name in &found.settled {
            prop_assert!(found.unknown.iter().all(|unknown| unknown.name.as_str() != name));
        }
    }
}
