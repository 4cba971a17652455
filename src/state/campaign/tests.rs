//! Waves, limits and the stop, each from counts alone.

use proptest::prelude::*;

use super::*;

const RULES: Rules =
    Rules { max_in_flight: 20, max_per_minute: 30, canary: 5, abort_failure_ratio: 0.1 };

fn progress(pending: u32, running: u32, succeeded: u32, failed: u32) -> Progress {
    let total = pending + running + succeeded + failed;
    Progress { total, pending, running, succeeded, failed, skipped: 0 }
}

fn asked(progress: Progress) -> Next {
    next(&RULES, &progress, Load::default())
}

#[test]
fn the_canaries_come_first_and_the_others_wait_for_all_of_them() {
    assert_eq!(asked(progress(100, 0, 0, 0)), Next::Begin(5));
    assert_eq!(asked(progress(95, 5, 0, 0)), Next::Wait);
    assert_eq!(asked(progress(95, 1, 4, 0)), Next::Wait);
    assert_eq!(asked(progress(95, 0, 5, 0)), Next::Begin(20));
    // Two could not be rotated: two others have to show that it works.
    let skipped = Progress { skipped: 2, ..progress(95, 0, 3, 0) };
    assert_eq!(asked(skipped), Next::Begin(2));
}

#[test]
fn limits_hold_and_a_due_deletion_takes_room() {
    let later = progress(900, 8, 50, 0);
    assert_eq!(asked(later), Next::Begin(12));
    let load = |begun, deleting| next(&RULES, &later, Load { begun, deleting });
    assert_eq!(load(0, 7), Next::Begin(5));
    assert_eq!(load(0, 12), Next::Wait);
    assert_eq!(load(27, 0), Next::Begin(3));
    assert_eq!(load(30, 0), Next::Wait);
    assert_eq!(asked(progress(3, 0, 50, 0)), Next::Begin(3));
}

#[test]
fn it_stops_when_too_many_failed() {
    // One of five canaries is more than a tenth.
    assert_eq!(asked(progress(95, 4, 0, 1)), Next::Stop);
    // One of the first few after them is not.
    let one = Rules { canary: 0, ..RULES };
    assert_eq!(next(&one, &progress(99, 0, 0, 1), Load::default()), Next::Begin(20));
    assert_eq!(next(&one, &progress(98, 0, 0, 2), Load::default()), Next::Stop);
    assert_eq!(asked(progress(100, 0, 90, 10)), Next::Begin(20), "a tenth is allowed");
    assert_eq!(asked(progress(100, 0, 89, 11)), Next::Stop);
    // Also when nothing is left to begin: the result is told as it is.
    assert_eq!(asked(progress(0, 0, 5, 5)), Next::Stop);
    let strict = Rules { abort_failure_ratio: 0.0, ..RULES };
    assert_eq!(next(&strict, &progress(1, 0, 99, 1), Load::default()), Next::Stop);
    let never = Rules { abort_failure_ratio: 1.0, ..RULES };
    assert_eq!(next(&never, &progress(1, 0, 0, 99), Load::default()), Next::Begin(1));
}

#[test]
fn it_is_complete_when_every_member_has_a_result() {
    assert_eq!(asked(progress(0, 1, 9, 0)), Next::Wait);
    assert_eq!(asked(progress(0, 0, 10, 0)), Next::Complete);
    assert_eq!(asked(progress(0, 0, 0, 0)), Next::Complete, "nobody was selected");
    // Fewer members than canaries.
    assert_eq!(asked(progress(0, 0, 3, 0)), Next::Complete);
}

#[test]
fn a_rotation_counts_as_soon_as_its_new_generation_is_served() {
    use RotationStatus::{Cancelled, Completed, Failed, InProgress, Pending, RolledBack};
    let seen = |status, promoted, rolling_back, code: Option<&str>| {
        let error_code = code.map(ToOwned::to_owned);
        let result = result(&Seen { status, rolling_back, promoted, error_code });
        result.map(|(status, why)| (status, why.unwrap_or_default()))
    };
    let is = |status, why: &str| Some((status, why.to_owned()));
    assert_eq!(seen(Pending, false, false, None), None);
    assert_eq!(seen(InProgress, false, false, None), None);
    assert_eq!(seen(InProgress, true, false, None), is(MemberStatus::Succeeded, ""));
    assert_eq!(seen(Completed, true, false, None), is(MemberStatus::Succeeded, ""));
    assert_eq!(seen(InProgress, true, true, None), is(MemberStatus::Failed, "rolled_back"));
    assert_eq!(seen(RolledBack, true, true, None), is(MemberStatus::Failed, "rolled_back"));
    assert_eq!(seen(Failed, false, false, Some("denied")), is(MemberStatus::Failed, "denied"));
    assert_eq!(seen(Cancelled, false, false, None), is(MemberStatus::Failed, "cancelled"));
    for code in ["superseded", "revoked"] {
        assert_eq!(seen(Cancelled, false, false, Some(code)), is(MemberStatus::Skipped, code));
    }
}

#[test]
fn an_ended_campaign_takes_no_orders_but_the_one_that_ended_it() {
    use CampaignState::{Aborted, Completed, Paused, Running};
    for (state, pause, resume, abort) in [
        (Running, Some(Paused), Some(Running), Some(Aborted)),
        (Paused, Some(Paused), Some(Running), Some(Aborted)),
        (Aborted, None, None, Some(Aborted)),
        (Completed, None, None, None),
    ] {
        let after = [Order::Pause, Order::Resume, Order::Abort].map(|order| ordered(state, order));
        assert_eq!(after, [pause, resume, abort], "{state}");
    }
}

proptest! {
    /// Whatever becomes of the members, the limits hold and the campaign comes to an end.
    #[test]
    fn every_campaign_ends(
        total in 0_u32..200,
        max_in_flight in 1_u32..30,
        max_per_minute in 1_u32..50,
        canary in 0_u32..20,
        abort_failure_ratio in 0.0_f64..1.0,
        fates in prop::collection::vec(0_u8..10, 200),
    ) {
        let rules = Rules { max_in_flight, max_per_minute, canary, abort_failure_ratio };
        let mut progress = Progress { total, pending: total, ..Progress::default() };
        let mut fates = fates.into_iter();
        for _ in 0..1_000 {
            match next(&rules, &progress, Load::default()) {
                Next::Begin(count) => {
                    prop_assert!(count >= 1 && count <= progress.pending && count <= max_per_minute);
                    progress.pending -= count;
                    progress.running += count;
                    prop_assert!(progress.running <= max_in_flight);
                    let before = progress.tested() < canary;
                    prop_assert!(!before || progress.tested() + progress.running <= canary);
                }
                Next::Wait => {
                    prop_assert!(progress.running > 0, "waits for nobody: {progress:?}");
                    progress.running -= 1;
                    match fates.next().unwrap_or(9) {
                        0 => progress.failed += 1,
                        1 => progress.skipped += 1,
                        _ => progress.succeeded += 1,
                    }
                }
                Next::Stop => {
                    prop_assert!(progress.failed > 0);
                    return Ok(());
                }
                Next::Complete => {
                    let results = progress.succeeded + progress.failed + progress.skipped;
                    prop_assert_eq!(results, total);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "no end: {progress:?}");
    }
}
