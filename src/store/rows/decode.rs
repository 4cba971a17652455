//! From the databases' few types to ours. A value that this program would not have written is `Corrupt`.

use std::str::FromStr;

use super::super::StoreError;
use crate::ids::Generation;

/// A word or an identifier.
pub(in crate::store) fn word<T: FromStr>(text: &str, what: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::corrupt(format!("{what} is not one of ours")))
}

pub(in crate::store) fn maybe_word<T: FromStr>(
    text: Option<&str>,
    what: &str,
) -> Result<Option<T>, StoreError> {
    text.map(|text| word(text, what)).transpose()
}

pub(in crate::store) fn count(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::corrupt("a negative count"))
}

pub(in crate::store) fn small(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::corrupt("a number out of range"))
}

pub(in crate::store) fn generation(number: i64) -> Result<Generation, StoreError> {
    small(number).map(Generation)
}

/// A version for SQL. No counter of ours gets near the end of the range.
pub(in crate::store) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
