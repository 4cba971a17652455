//! The lane on a paused clock.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::*;
use crate::registries::TroubleKind;

const SECOND: Duration = Duration::from_secs(1);

fn lane(max_concurrent: usize, rate: &str) -> Lane {
    let rate = rate.parse().unwrap();
    Lane::new(LaneSettings { max_concurrent, rate, breaker: BreakerSettings::default() })
}

fn trouble(kind: TroubleKind) -> Verdict {
    Verdict::Trouble(Trouble::new(kind, "it broke"))
}

fn breaker_until(lane: &Lane) -> Option<Instant> {
    match lane.try_permit().unwrap_err().kind {
        NotNowKind::Breaker { until } => until,
        other @ (NotNowKind::Rate { .. } | NotNowKind::Full) => panic!("{other:?}"),
    }
}

async fn open(lane: &Lane) {
    lane.permit().await.unwrap().report(trouble(TroubleKind::OwnCredential));
    assert_eq!(lane.status().breaker, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn so_many_calls_at_once_and_no_more() {
    let lane = lane(2, "off");
    let first = lane.try_permit().unwrap();
    let _second = lane.try_permit().unwrap();
    assert_eq!(lane.try_permit().unwrap_err().kind, NotNowKind::Full);
    assert_eq!(lane.status().in_flight, 2);

    let waiter = tokio::spawn({
        let lane = lane.clone();
        async move { lane.permit().await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    first.report(Verdict::Healthy);
    assert_eq!(waiter.await.unwrap(), Ok(()));
    assert_eq!(lane.status().in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_gives_a_tenth_at_once_and_then_one_by_one() {
    let lane = lane(10, "19/18s");
    for _ in 0..2 {
        lane.try_permit().unwrap().report(Verdict::Healthy);
    }
    let refused = lane.try_permit().unwrap_err();
    assert_eq!(refused.kind, NotNowKind::Rate { until: Instant::now() + SECOND });

    let began = Instant::now();
    lane.permit().await.unwrap().report(Verdict::Healthy);
    lane.permit().await.unwrap().report(Verdict::Healthy);
    assert_eq!(began.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn in_no_period_do_more_calls_begin_than_the_rate_says() {
    for (count, rate) in [(1, "1/1s"), (3, "3/1s"), (7, "7/1s"), (60, "60/1s"), (500, "500/1s")] {
        let lane = lane(10, rate);
        let mut begins = Vec::new();
        let end = Instant::now() + 5 * SECOND;
        // Everything is taken at once, after a rest and all the time after it.
        advance(60 * SECOND).await;
        while Instant::now() < end + 60 * SECOND {
            lane.permit().await.unwrap().report(Verdict::Healthy);
            begins.push(Instant::now());
        }
        let within = |first: &Instant| {
            begins.iter().filter(|at| *at >= first && **at < *first + SECOND).count()
        };
        let most = begins.iter().map(within).max().unwrap();
        assert!(most <= count, "{rate}: {most}");
        let least = 5 * count * 9 / 10;
        assert!(begins.len() >= least, "{rate}: {} of {least}", begins.len());
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_keep_to_the_limits_together() {
    let three = NonZeroU32::new(3).unwrap();
    let lanes: Vec<Lane> = (0..3).map(|_| lane(8, "60/60s")).collect();
    lanes.iter().for_each(|lane| lane.share(three));
    let mut begins = Vec::new();
    for _ in 0..600 {
        for lane in &lanes {
            let permits: Vec<Permit> = std::iter::from_fn(|| lane.try_permit().ok()).collect();
            assert!(permits.len() <= 2);
            begins.extend(permits.iter().map(|_| Instant::now()));
        }
        advance(SECOND / 2).await;
    }
    let within = |first: &Instant| {
        begins.iter().filter(|at| *at >= first && **at < *first + 60 * SECOND).count()
    };
    assert!(begins.iter().map(within).max().unwrap() <= 60);
    assert!(begins.len() >= 5 * 54 - 6, "{}", begins.len());
    assert_eq!(lanes[0].limits(), (8, "60/60s".parse().unwrap()), "what is told is the whole");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_comes_gets_a_part_and_one_that_goes_leaves_it() {
    let (one, two) = (NonZeroU32::MIN, NonZeroU32::new(2).unwrap());
    let lane = lane(4, "off");
    let _three: Vec<Permit> = (0..3).map(|_| lane.try_permit().unwrap()).collect();
    lane.share(two);
    assert_eq!(lane.try_permit().unwrap_err().kind, NotNowKind::Full, "no call is taken back");
    lane.share(NonZeroU32::new(100).unwrap());
    lane.share(one);
    let _last = lane.try_permit().unwrap();
    assert_eq!(lane.try_permit().unwrap_err().kind, NotNowKind::Full);
}

#[tokio::test(start_paused = true)]
async fn a_changed_part_begins_with_an_empty_bucket() {
    let lane = lane(10, "20/20s");
    lane.share(NonZeroU32::MIN);
    drop(lane.try_permit().unwrap());
    lane.share(NonZeroU32::new(2).unwrap());
    let NotNowKind::Rate { until } = lane.try_permit().unwrap_err().kind else { panic!() };
    // What was said before counts once, however often.
    lane.share(NonZeroU32::new(2).unwrap());
    tokio::time::sleep_until(until).await;
    drop(lane.try_permit().unwrap());
    // Fewer calls than replicas: one, in a longer time.
    let slow = self::lane(10, "1/1s");
    slow.share(NonZeroU32::new(4).unwrap());
    let began = Instant::now();
    drop(slow.permit().await.unwrap());
    assert_eq!(began.elapsed(), 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn five_troubles_in_a_row_open_it() {
    let lane = lane(10, "off");
    for _ in 0..4 {
        lane.try_permit().unwrap().report(trouble(TroubleKind::ServerError));
    }
    lane.try_permit().unwrap().report(Verdict::Healthy);
    for _ in 0..4 {
        lane.try_permit().unwrap().report(trouble(TroubleKind::Timeout));
    }
    assert_eq!(lane.status().breaker, BreakerState::Closed);
    lane.try_permit().unwrap().report(trouble(TroubleKind::Connect));
    assert_eq!(lane.status().breaker, BreakerState::Open);
    let refused = lane.permit().await.unwrap_err();
    assert_eq!(refused.reason, "calls to the registry are suspended: it broke");
}

#[tokio::test(start_paused = true)]
async fn some_troubles_open_it_at_once() {
    for kind in [TroubleKind::OwnCredential, TroubleKind::Misconfigured] {
        let lane = lane(1, "off");
        lane.try_permit().unwrap().report(trouble(kind));
        assert_eq!(lane.status().breaker, BreakerState::Open);
    }
    let lane = lane(1, "off");
    for _ in 0..10 {
        let not_current = Trouble::new(TroubleKind::NotCurrent, "overtaken");
        lane.try_permit().unwrap().report(&not_current);
    }
    assert_eq!(lane.status().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn exactly_one_probe_and_the_pause_doubles() {
    let lane = lane(10, "off");
    open(&lane).await;
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let pause = breaker_until(&lane).unwrap() - Instant::now();
        let full = Duration::from_secs(seconds);
        assert!(pause <= full && pause >= full.mul_f64(0.75), "{pause:?} of {full:?}");

        advance(pause).await;
        let probe = lane.try_permit().unwrap();
        assert_eq!(lane.status().breaker, BreakerState::HalfOpen);
        assert_eq!(breaker_until(&lane), None);
        probe.report(trouble(TroubleKind::ServerError));
    }

    let until = breaker_until(&lane).unwrap();
    let mut changes = lane.subscribe();
    advance(until - Instant::now()).await;
    lane.try_permit().unwrap().report(Verdict::Healthy);
    changes.wait_for(|state| *state == BreakerState::Closed).await.unwrap();
    // Healed is healed: the pauses begin at one second again.
    open(&lane).await;
    assert!(breaker_until(&lane).unwrap() - Instant::now() <= SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_leaves_its_place_to_the_next() {
    let lane = lane(10, "off");
    open(&lane).await;
    advance(SECOND).await;
    drop(lane.try_permit().unwrap());
    lane.try_permit().unwrap().report(Verdict::Healthy);
    assert_eq!(lane.status().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_began_before_the_trouble_does_not_end_it() {
    let lane = lane(10, "off");
    let early = lane.try_permit().unwrap();
    let another = lane.try_permit().unwrap();
    open(&lane).await;
    early.report(Verdict::Healthy);
    assert_eq!(lane.status().breaker, BreakerState::Open);
    advance(SECOND).await;
    let probe = lane.try_permit().unwrap();
    another.report(trouble(TroubleKind::ServerError));
    assert_eq!(lane.status().breaker, BreakerState::HalfOpen);
    probe.report(Verdict::Healthy);
    assert_eq!(lane.status().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn retry_after_keeps_the_lane_quiet() {
    let lane = lane(10, "off");
    let limited = Trouble::new(TroubleKind::RateLimited, "429").retry_after(Some(7 * SECOND));
    lane.try_permit().unwrap().report(&limited);
    assert_eq!(lane.status().breaker, BreakerState::Closed);
    let expected = NotNowKind::Rate { until: Instant::now() + 7 * SECOND };
    assert_eq!(lane.try_permit().unwrap_err().kind, expected);
    assert_eq!(lane.permit().await.unwrap_err().kind, expected);
    advance(7 * SECOND).await;
    drop(lane.try_permit().unwrap());

    // With the breaker open, the longer of the two counts; nonsense is cut.
    let forever = Trouble::new(TroubleKind::Misconfigured, "?").retry_after(Some(Duration::MAX));
    lane.try_permit().unwrap().report(&forever);
    let until = Instant::now() + Duration::from_hours(1);
    assert_eq!(breaker_until(&lane), Some(until));
    assert_eq!(lane.status().until, Some(until));
}

#[tokio::test(start_paused = true)]
async fn waiters_hear_when_it_opens() {
    let lane = lane(1, "off");
    let running = lane.try_permit().unwrap();
    let waiter = tokio::spawn({
        let lane = lane.clone();
        async move { lane.permit().await.map(drop) }
    });
    tokio::task::yield_now().await;
    running.report(trouble(TroubleKind::OwnCredential));
    let refused = waiter.await.unwrap().unwrap_err();
    assert!(matches!(refused.kind, NotNowKind::Breaker { .. }), "{refused:?}");
    assert_eq!(lane.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn since_tells_when_the_trouble_began() {
    let lane = lane(1, "off");
    open(&lane).await;
    let began = Instant::now();
    advance(SECOND).await;
    lane.try_permit().unwrap().report(trouble(TroubleKind::ServerError));
    let status = lane.status();
    assert_eq!((status.since, status.breaker), (began, BreakerState::Open));
    assert_eq!(status.last_error.unwrap().kind, TroubleKind::ServerError);
}

#[tokio::test(start_paused = true)]
async fn residue_has_one_call_and_a_tenth_of_the_tokens_of_the_same_bucket() {
    let lane = lane(5, "30/30s");
    let residue = lane.residue();
    let hopeless = residue.try_permit().unwrap();
    assert_eq!(residue.try_permit().unwrap_err().kind, NotNowKind::Full);
    // It is one call on top of the others, but the tokens are the same: one of four is gone.
    let others: Vec<Permit> = (0..3).map(|_| lane.try_permit().unwrap()).collect();
    assert!(matches!(lane.try_permit().unwrap_err().kind, NotNowKind::Rate { .. }));
    hopeless.report(Verdict::Healthy);
    let later = Instant::now() + 10 * SECOND;
    assert_eq!(residue.try_permit().unwrap_err().kind, NotNowKind::Rate { until: later });
    drop(others);
    let waiter = tokio::spawn({
        let residue = residue.clone();
        async move { residue.permit().await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert_eq!((residue.waiting(), lane.waiting()), (1, 0));
    advance(10 * SECOND).await;
    assert_eq!(waiter.await.unwrap(), Ok(()));
    assert_eq!(residue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn residue_stops_where_the_registry_stops_and_stops_nobody() {
    let lane = lane(2, "off");
    let residue = lane.residue();
    open(&residue).await;
    lane.try_permit().unwrap().report(Verdict::Healthy);
    advance(60 * SECOND).await;
    residue.try_permit().unwrap().report(Verdict::Healthy);
    open(&lane).await;
    let refused = residue.try_permit().unwrap_err();
    assert!(matches!(refused.kind, NotNowKind::Breaker { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn trouble_is_told_without_a_slot_and_without_a_token() {
    let lane = lane(1, "1/1h");
    let _hangs = lane.try_permit().unwrap();
    for _ in 0..5 {
        lane.trouble(Trouble::timeout());
    }
    assert_eq!(lane.status().breaker, BreakerState::Open);
    lane.trouble(Trouble::timeout());
    assert_eq!(lane.status().breaker, BreakerState::Open, "nothing goes through that could fail");
}
