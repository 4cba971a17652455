//! From SQLite's few types to ours. A value that this program would not have written is `Corrupt`.

use std::str::FromStr;

use uuid::Uuid;

use super::super::StoreError;
use crate::ids::Generation;
use crate::time::Timestamp;

pub(super) fn uuid(bytes: &[u8]) -> Result<Uuid, StoreError> {
    Uuid::from_slice(bytes).map_err(|_| StoreError::corrupt("an id that is not 16 bytes long"))
}

/// A word or an identifier.
pub(super) fn word<T: FromStr>(text: &str, what: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::corrupt(format!("{what} is not one of ours")))
}

pub(super) fn maybe_word<T: FromStr>(
    text: Option<&str>,
    what: &str,
) -> Result<Option<T>, StoreError> {
    text.map(|text| word(text, what)).transpose()
}

pub(super) fn count(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::corrupt("a negative count"))
}

pub(super) fn small(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::corrupt("a number out of range"))
}

pub(super) fn generation(number: i64) -> Result<Generation, StoreError> {
    small(number).map(Generation)
}

pub(super) fn time(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

pub(super) fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

/// A version for SQL. No counter of ours gets near the end of the range.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
