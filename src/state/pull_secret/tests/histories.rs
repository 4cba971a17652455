//! Random histories: commands, faults and crashes in any order, then a world without faults, in which
//! everything has to come to rest.

use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::fates::Fate;
use super::registry::Flavour;
use super::world::{HOLDERS, HOUR, World};
use crate::ids::RegistryId;
use crate::window::Window;

const FATES: [Fate; 17] = [
    Fate::Fine,
    Fate::Fine,
    Fate::Fine,
    Fate::Fine,
    Fate::Fine,
    Fate::Fine,
    Fate::Fine,
    Fate::AppliedAnswerLost,
    Fate::AppliedAnswerLost,
    Fate::NeverApplied,
    Fate::AppliedLate,
    Fate::NotApplied,
    Fate::Blocked,
    Fate::StaleInvalid,
    Fate::StaleValid,
    Fate::TakenByOther,
    Fate::Refused,
];

fn command(world: &mut World, choice: u16) {
    let rotation_id = world.rotation_id();
    let fresh = crate::ids::RotationId(world.uuid());
    let rotate =
        |reason, force_immediate| Command::Rotate { rotation_id: fresh, reason, force_immediate };
    let all: Vec<RegistryId> = world.registries.keys().cloned().collect();
    let (rest, cluster_id) = (usize::from(choice / 24), world.cluster_id.clone());
    let issue = |registries| Command::Issue { cluster_id: cluster_id.clone(), registries };
    let command = match choice % 24 {
        0..=3 => issue(None),
        // A short list first, a longer one later.
        4 | 5 => issue(Some(all[..=rest % all.len()].to_vec())),
        6 => partly(&all, fresh, rest),
        23 if rest.is_multiple_of(3) => Command::Reschedule(Box::new(reschedule(world, rest))),
        7 => Command::Revoke,
        8..=15 => rotate(RotationReason::Manual, false),
        16 => rotate(RotationReason::Compromise, false),
        17 => rotate(RotationReason::Manual, true),
        18 => Command::Complete { rotation_id },
        19 => Command::Extend { rotation_id, by: HOUR },
        20 | 21 => Command::Rollback { rotation_id },
        22 => Command::Cancel { rotation_id },
        _ => Command::Quarantine { retry_at: world.now.plus(HOUR) },
    };
    let _ = world.command(&command);
}

/// One registry comes or goes.
fn partly(all: &[RegistryId], rotation_id: crate::ids::RotationId, choice: usize) -> Command {
    let one = vec![all[choice % all.len()].clone()];
    let (added, removed) =
        if (choice / all.len()).is_multiple_of(2) { (one, Vec::new()) } else { (Vec::new(), one) };
    Command::RotatePartly { rotation_id, added, removed }
}

fn reschedule(world: &World, choice: usize) -> ScheduleChange {
    let hours = u32::try_from(choice % 50).unwrap();
    let next_at = if choice.is_multiple_of(2) {
        Change::To(world.now.plus(HOUR * hours))
    } else {
        Change::Clear
    };
    let enabled = match choice % 4 {
        0 => Change::To(false),
        1 => Change::To(true),
        2 => Change::Clear,
        _ => Change::Keep,
    };
    let window = if choice.is_multiple_of(5) {
        Change::To(Window::parse("30 */6 * * *", HOUR).unwrap())
    } else {
        Change::Clear
    };
    ScheduleChange { enabled, next_at, window }
}

fn step(world: &mut World, choice: u16) {
    let kind = choice % 40;
    let rest = choice / 40;
    match kind {
        0..=4 => command(world, rest),
        5..=12 => world.work(rest.is_multiple_of(16)),
        13..=21 => {
            let fate = FATES[usize::from(rest) % FATES.len()];
            world.finish(usize::from(rest) / FATES.len(), fate);
        }
        22 => world.crash(|index| FATES[(usize::from(rest) + index) % FATES.len()]),
        23 | 24 => world.fetch(usize::from(rest) % HOLDERS),
        25 | 26 => world.heartbeat(usize::from(rest) % HOLDERS, usize::from(rest) / HOLDERS),
        27 => world.pass(Duration::from_secs(u64::from(rest) % 30)),
        28 => world.pass(Duration::from_secs(60 * (u64::from(rest) % 30))),
        29 => world.pass(HOUR * u32::from(rest % 4)),
        30 | 31 => world.pass(HOUR * u32::from(rest % 40)),
        32 => world.registry_saw(usize::from(rest) % HOLDERS, HOUR * u32::from(rest % 5)),
        33 if rest.is_multiple_of(8) => world.jump_back(365 * 24 * HOUR),
        33 => world.jump_back(Duration::from_secs(60 * (u64::from(rest) % 200))),
        34 if rest.is_multiple_of(4) => world.delete_behind(usize::from(rest)),
        35 if rest.is_multiple_of(2) => world.force_gone(),
        35 => world.restored_at = Some(world.now),
        36 => world.may_start = rest.is_multiple_of(3),
        37 => settle_in(world),
        38 if rest.is_multiple_of(4) => compromises(world, rest / 4),
        39 if rest.is_multiple_of(4) => world.jump_ahead(HOUR * u32::from(rest % 60)),
        _ => do_all_work(world),
    }
}

/// One compromise after the other, each as far as it gets.
fn compromises(world: &mut World, choice: u16) {
    for bit in 0..4 {
        command(world, 16);
        if choice >> bit & 1 == 1 {
            do_all_work(world);
        }
    }
}

fn do_all_work(world: &mut World) {
    world.work(false);
    for _ in 0..1_000 {
        if world.in_flight() == 0 {
            return;
        }
        world.finish(0, Fate::Fine);
        world.work(false);
    }
    panic!("calls without end");
}

/// Everybody fetches and says so, and time passes: rotations get to their ends.
fn settle_in(world: &mut World) {
    do_all_work(world);
    world.pass(Duration::from_secs(1));
    (0..HOLDERS).for_each(|holder| {
        world.fetch(holder);
        world.heartbeats(holder);
    });
    world.pass(25 * HOUR);
}

/// Faults have stopped: the cluster fetches and proves what it uses, registries answer. Nobody looks at
/// the record but when it asked for it, so `due_at` has to be enough.
fn come_to_rest(world: &mut World) {
    world.may_start = true;
    world.wait_out_doubt();
    let _ = world.command(&Command::Tick);
    for _ in 0..600 {
        // The owner tries a quarantined credential again when its pause is over.
        let quarantine = world.state.as_ref().and_then(|record| record.quarantine);
        if quarantine.is_some_and(|quarantine| quarantine.retry_at <= world.now) {
            world.command(&Command::Release).unwrap();
        }
        do_all_work(world);
        // Evidence counts from the switch on, and the clock may have gone back since.
        let switched = world.state.as_ref().and_then(PullSecret::served);
        let behind = switched.map_or(Duration::ZERO, |served| served.since.since(world.now));
        world.wait(behind + Duration::from_secs(1));
        (0..HOLDERS).for_each(|holder| {
            world.fetch(holder);
            world.heartbeats(holder);
        });
        do_all_work(world);
        if at_rest(world) {
            return;
        }
        if world.state.as_ref().and_then(PullSecret::served) != switched {
            continue; // nobody has spoken since the switch
        }
        // Where a registry only goes, no account tells the two generations apart: an operator has to.
        let rotation = world.state.as_ref().and_then(PullSecret::rotation);
        let waits = |rotation: &Rotation| match (&rotation.scope, &rotation.phase) {
            (
                Scope::Registries { added, .. },
                RotationPhase::DualCredentialPeriod { drifted, .. },
            ) => added.is_empty() && !drifted,
            (_, RotationPhase::RollingBack { drifted, decided: None, .. }) => {
                !rotation.scope.is_whole() && !drifted
            }
            _ => false,
        };
        if rotation.is_some_and(waits) {
            let rotation_id = world.rotation_id();
            if world.command(&Command::Complete { rotation_id }).is_ok() {
                continue;
            }
        }
        // What somebody deleted does not come back by itself.
        let broken = world.registries.values().any(|registry| !registry.broken.is_empty());
        let rotation = world.state.as_ref().and_then(PullSecret::rotation);
        if broken && rotation.is_some_and(Rotation::drifted) {
            let rotation_id = crate::ids::RotationId(world.uuid());
            let reason = RotationReason::Compromise;
            let heal = Command::Rotate { rotation_id, reason, force_immediate: false };
            if world.command(&heal).is_ok() {
                continue;
            }
        }
        let due = world.state.as_ref().and_then(|record| due_at(record, &world.policy));
        let due = due.unwrap_or_else(|| panic!("no wake-up: {:#?}", world.state));
        world.pass(due.since(world.now));
        do_all_work(world);
        let again = world.state.as_ref().and_then(|record| due_at(record, &world.policy));
        let quarantined = world.state.as_ref().is_some_and(|record| record.quarantine.is_some());
        let idle = quarantined || again.is_none_or(|due| due > world.now);
        assert!(idle, "due and nothing to do: {:#?}", world.state);
    }
    panic!("no rest: {:?}", world.state);
}

fn at_rest(world: &World) -> bool {
    let Some(record) = &world.state else { return true };
    match &record.state {
        RecordState::Active { .. } => {
            record.accounts.iter().all(|account| match account.phase {
                AccountPhase::Serving => true,
                // Only a compromise that could not be carried through leaves one behind.
                AccountPhase::Retiring => true,
                AccountPhase::Planned
                | AccountPhase::Creating
                | AccountPhase::Created
                | AccountPhase::Verified
                | AccountPhase::Deleting
                | AccountPhase::Gone
                | AccountPhase::Burnt
                | AccountPhase::Residue => false,
            })
        }
        RecordState::Revoked | RecordState::Denied(_) | RecordState::Failed(_) => {
            record.accounts.is_empty()
        }
        RecordState::Issuing { .. } | RecordState::Rotating { .. } | RecordState::Revoking => false,
    }
}

fn history(seed: u64, flavours: &[Flavour], choices: &[u16]) {
    let mut world = World::new(u128::from(seed), flavours);
    if seed.is_multiple_of(3) {
        world.policy.interval = Some(90 * 24 * HOUR);
    }
    if seed.is_multiple_of(2) {
        world.policy.drift_interval = Some(24 * HOUR);
        world.policy.reissue = seed.is_multiple_of(4);
    }
    if seed.is_multiple_of(7) {
        world.policy.window = Some(Window::parse("0 2 * * *", 2 * HOUR).unwrap());
    }
    world.policy.on_deadline = match seed % 5 {
        0 => OnDeadline::Revoke,
        1 => OnDeadline::Rollback,
        _ => OnDeadline::Hold,
    };
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for choice in choices {
            step(&mut world, *choice);
        }
        come_to_rest(&mut world);
        // Late calls have had their time: nothing comes back to life.
        world.policy.interval = None;
        world.pass(24 * HOUR);
    }));
    if let Err(panic) = told {
        for (at, command, events) in &world.story {
            println!("{at} {command:?} -> {events:?}");
        }
        std::panic::resume_unwind(panic);
    }
}

fn flavour() -> impl Strategy<Value = Flavour> {
    prop_oneof![Just(Flavour::Readable), Just(Flavour::ShownOnce), Just(Flavour::Chosen)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_invariants_and_comes_to_rest(
        seed in any::<u64>(),
        flavours in prop::collection::vec(flavour(), 1..4),
        choices in prop::collection::vec(any::<u16>(), 10..160),
    ) {
        history(seed, &flavours, &choices);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Any event on any state, however little they belong together.
    #[test]
    fn apply_is_total(
        seed in any::<u64>(),
        choices in prop::collection::vec(any::<u16>(), 50..100),
        others in prop::collection::vec(any::<u16>(), 50..100),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 100),
    ) {
        let told = |seed: u64, choices: &[u16]| {
            let mut world = World::new(u128::from(seed), &[Flavour::ShownOnce, Flavour::Chosen]);
            choices.iter().for_each(|choice| step(&mut world, *choice));
            world
        };
        // The same seed gives the same ids, so that many events name accounts of the other history.
        let world = told(seed, &choices);
        let events: Vec<_> =
            told(seed, &others).story.into_iter().flat_map(|(_, _, events)| events).collect();
        let mut state = world.state.clone();
        for pick in picks {
            if events.is_empty() {
                break;
            }
            state = apply(state, pick.get(&events));
            if let Some(record) = &state {
                let _ = (effects(record, world.now), due_at(record, &world.policy));
                let _ = record.adoption(&world.policy, world.now);
            }
        }
    }
}
