//! Random histories: commands, faults and crashes in any order, then a world without faults, in which
//! everything has to come to rest.

use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::registry::Flavour;
use super::world::{Fate, HOUR, World};

const FATES: [Fate; 16] = [
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
    Fate::TakenByOther,
    Fate::Refused,
];

fn command(world: &mut World, choice: u16) {
    let rotation_id = world.rotation_id();
    let fresh = crate::ids::RotationId(world.uuid());
    let rotate =
        |reason, force_immediate| Command::Rotate { rotation_id: fresh, reason, force_immediate };
    let command = match choice % 24 {
        0..=6 => Command::Issue { cluster_id: world.cluster_id.clone(), registries: None },
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

fn step(world: &mut World, choice: u16) {
    let kind = choice % 32;
    let rest = choice / 32;
    match kind {
        0..=4 => command(world, rest),
        5..=12 => world.work(rest.is_multiple_of(16)),
        13..=21 => {
            let fate = FATES[usize::from(rest) % FATES.len()];
            world.finish(usize::from(rest) / FATES.len(), fate);
        }
        22 => world.crash(|index| FATES[(usize::from(rest) + index) % FATES.len()]),
        23 | 24 => world.fetch(usize::from(rest) % 3),
        25 | 26 => world.heartbeat(usize::from(rest) % 3),
        27 => world.pass(Duration::from_secs(u64::from(rest) % 30)),
        28 => world.pass(Duration::from_secs(60 * (u64::from(rest) % 30))),
        29 => world.pass(HOUR * u32::from(rest % 4)),
        30 => world.pass(HOUR * u32::from(rest % 40)),
        _ => {
            world.work(false);
            while world.in_flight() > 0 {
                world.finish(0, Fate::Fine);
                world.work(false);
            }
        }
    }
}

/// Faults have stopped: the cluster fetches and proves what it uses, registries answer.
fn come_to_rest(world: &mut World) {
    let _ = world.command(&Command::Release);
    for _ in 0..600 {
        world.work(false);
        while world.in_flight() > 0 {
            world.finish(0, Fate::Fine);
            world.work(false);
        }
        (0..3).for_each(|holder| {
            world.fetch(holder);
            world.heartbeat(holder);
        });
        if at_rest(world) {
            return;
        }
        world.pass(HOUR);
    }
    panic!("no rest: {:#?}", world.state);
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
        println!("{}", world.story.join("\n"));
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
        flavours in prop::collection::vec(flavour(), 1..3),
        choices in prop::collection::vec(any::<u16>(), 10..160),
    ) {
        history(seed, &flavours, &choices);
    }
}
