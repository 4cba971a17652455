//! The process dies at each step of issuing and revoking. Judged by API servers and signers: no credential works
//! that no record knows, none is lost that was promised, and none is called revoked that still works.

mod judge;
mod strike;

use futures_util::StreamExt as _;
use rand::RngExt as _;

use self::strike::{At, Call, Embedded, Moment, Operators, Strike};
use crate::support::postgres;
use crate::support::seed::{random, seed};

/// Each waits most of its time.
const AT_ONCE: usize = 10;

const POINTS: [&str; 6] = [
    "before_commit",
    "after_commit",
    "before_call",
    "after_call",
    "before_outcome_commit",
    "after_outcome_commit",
];
/// On the other database: the kinds of gap between what was sent and what is stored.
const GAPS: [&str; 2] = ["after_commit", "after_call"];

fn matrix(points: &[&'static str], calls: &[(Moment, Call)]) -> Vec<Strike> {
    let at = |call: &(Moment, Call)| {
        let (moment, call) = *call;
        points.iter().map(move |point| Strike { moment, at: At::Point { point, call } })
    };
    calls.iter().flat_map(at).collect()
}

/// So many kills at random moments of either half.
fn at_random(count: usize) -> Vec<Strike> {
    let mut random = random(seed(), 0);
    let mut strike = |number: usize| {
        let moment = if number.is_multiple_of(2) { Moment::Issuing } else { Moment::Revoking };
        Strike { moment, at: At::Millisecond(random.random_range(0..250)) }
    };
    (0..count).map(&mut strike).collect()
}

/// More in a long run.
fn kills() -> usize {
    let long = std::env::var("HYPERFLEET_TEST_CHAOS").is_ok_and(|rounds| rounds != "1");
    if long { 100 } else { 10 }
}

const EMBEDDED: [(Moment, Call); 4] = [
    (Moment::Issuing, Call::Make),
    (Moment::Issuing, Call::Submit),
    (Moment::Issuing, Call::Probe),
    (Moment::Revoking, Call::Probe),
];

const OPERATORS: [(Moment, Call); 7] = [
    (Moment::Issuing, Call::Submit),
    (Moment::Issuing, Call::Endorse),
    (Moment::Issuing, Call::Collect),
    (Moment::Issuing, Call::Probe),
    (Moment::Revoking, Call::Rotate),
    (Moment::Revoking, Call::Check),
    (Moment::Revoking, Call::Probe),
];

async fn embedded(strikes: Vec<Strike>, on_postgres: bool) {
    let mut all = futures_util::stream::iter(strikes)
        .map(|strike| async move {
            strike.fall(Embedded::start(database(on_postgres).await).await).await
        })
        .buffer_unordered(AT_ONCE);
    while all.next().await.is_some() {}
}

async fn operators(strikes: Vec<Strike>, on_postgres: bool) {
    let mut all = futures_util::stream::iter(strikes)
        .map(|strike| async move {
            strike.fall(Operators::start(database(on_postgres).await).await).await
        })
        .buffer_unordered(AT_ONCE);
    while all.next().await.is_some() {}
}

async fn database(on_postgres: bool) -> Option<String> {
    if on_postgres { Some(postgres::shared().database(None).await) } else { None }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_each_step_of_the_embedded_signer() {
    embedded(matrix(&POINTS, &EMBEDDED), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_each_step_of_the_operators_signer() {
    operators(matrix(&POINTS, &OPERATORS), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_each_gap_on_postgres() {
    embedded(matrix(&GAPS, &EMBEDDED), true).await;
    operators(matrix(&GAPS[1..], &OPERATORS), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_random_moments() {
    embedded(at_random(kills()), false).await;
    operators(at_random(kills()), false).await;
}
