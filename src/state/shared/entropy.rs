//! Random values for one decision, all derived from a seed that the caller drew.
//!
//! Ids, tokens and the random part of account names are unique, not secret: no key is made here.

use uuid::Uuid;

use crate::ids::{AccountName, ClusterId, Generation};
use crate::time::Timestamp;

/// A deterministic stream of random values (SplitMix64 over a 128-bit seed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    low: u64,
    high: u64,
}

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const SLUG_LENGTH: usize = 16;
const RANDOM_LENGTH: usize = 10;

impl Entropy {
    /// A stream for this seed; each decision needs a fresh one.
    #[must_use]
    pub const fn from_seed(seed: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
        Self { low: seed as u64, high: (seed >> 64) as u64 }
    }

    fn next(&mut self) -> u64 {
        self.low = self.low.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.high = self.high.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(self.low | 1);
        let mut z = self.low ^ self.high.rotate_left(29);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value from 0 up to, not including, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A UUIDv7 for this time.
    pub fn uuid(&mut self, now: Timestamp) -> Uuid {
        let millis = u64::try_from(now.as_micros() / 1000).unwrap_or(0);
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next().to_be_bytes());
        random[8..].copy_from_slice(&self.next().to_be_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// So many random letters and digits of base32.
    pub fn letters(&mut self, length: usize) -> String {
        let letter = |index: u64| char::from(BASE32[usize::try_from(index).unwrap_or(0)]);
        (0..length).map(|_| letter(self.next() >> 59)).collect()
    }

    /// `<prefix>-<slug>-g<generation>-<10 random base32>`; the random part is new for every attempt.
    ///
    /// The slug is the cluster id cut to 16 characters; double separators collapse because Quay refuses them.
    pub fn account_name(
        &mut self,
        prefix: &str,
        cluster_id: &ClusterId,
        generation: Generation,
    ) -> AccountName {
        let random = self.letters(RANDOM_LENGTH);
        let slug = slug(cluster_id.as_str());
        let name = format!("{prefix}-{slug}-g{generation}-{random}");
        // A prefix that the configuration let through always fits; the bare form is the fallback that is
        // legal whatever the prefix was.
        name.parse()
            .or_else(|_| format!("hyp-{slug}-{random}").parse())
            .unwrap_or_else(|_| unreachable!("a slug and a random part make a legal name"))
    }
}

fn slug(cluster_id: &str) -> String {
    let cut: String = cluster_id.chars().take(SLUG_LENGTH).collect();
    cut.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A stable hash (FNV-1a with a final mix) that spreads clusters over time and over shards.
#[must_use]
pub fn cluster_hash(cluster_id: &ClusterId) -> u64 {
    let fnv = cluster_id.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}
