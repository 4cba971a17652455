//! Randomness that can be had again.

use rand::SeedableRng;
use rand::rngs::StdRng;

const VARIABLE: &str = "HYPERFLEET_TEST_SEED";

/// The seed of a run: random, or the one that an earlier run has printed. Repeats what a test chooses, not
/// how the threads of the program interleave.
pub fn seed() -> u64 {
    let given = std::env::var(VARIABLE).ok();
    let seed = given.map_or_else(rand::random, |text| text.parse().expect(VARIABLE));
    println!("repeat with {VARIABLE}={seed}");
    seed
}

/// An independent source for each part of a run.
pub fn random(seed: u64, part: u64) -> StdRng {
    StdRng::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
