//! Keyset cursors: where a page ended, as text that means nothing to a client.
//!
//! A cursor holds the sort key of the last row, so pages stay right while rows are added.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::attention::Source;
use crate::ids::{CampaignId, ClusterId, RotationId};

/// Longer texts are not ours.
const MAX_LENGTH: usize = 512;

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub(super) Key);

/// The sort key of the last row of a page. Times are microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Key {
    Rotation { at: i64, id: RotationId },
    PullSecret { id: ClusterId },
    Attention { source: Source, at: i64, id: String },
    Audit { id: i64 },
    Campaign { id: CampaignId },
    Member { position: u32 },
    Revocation { at: i64, id: uuid::Uuid },
}

/// Why a text is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not a cursor at all.
    #[error("not a cursor; use the next_cursor of the page before")]
    Malformed,
    /// A cursor of another list.
    #[error("the cursor belongs to another list")]
    OtherList,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(&self.0).map_err(|_| fmt::Error)?;
        f.write_str(&URL_SAFE_NO_PAD.encode(json))
    }
}

impl FromStr for Cursor {
    type Err = CursorError;
    fn from_str(text: &str) -> Result<Self, CursorError> {
        if text.len() > MAX_LENGTH {
            return Err(CursorError::Malformed);
        }
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
        serde_json::from_slice(&json).map(Self).map_err(|_| CursorError::Malformed)
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Cursor>,
    /// How many rows the filter matches, whatever the page; `None` where counting would cost too much.
    pub total_count: Option<u64>,
}

impl<T> Page<T> {
    /// Cuts the one row too many that was read to learn whether there is a next page.
    pub(super) fn cut(
        mut items: Vec<T>,
        limit: u32,
        total_count: Option<u64>,
        key: impl Fn(&T) -> Key,
    ) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| Cursor(key(last)));
        Self { items, next, total_count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_way_through_a_client() {
        let id = ClusterId::from_str("cls-1").unwrap();
        let cursor = Cursor(Key::PullSecret { id });
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn anything_else_is_refused() {
        let inner = URL_SAFE_NO_PAD.encode(br#"{"pull_secret":{"id":"Not A Label"}}"#);
        let long = "a".repeat(MAX_LENGTH + 1);
        for text in ["", "x", "bm8", "{}", "%%%", inner.as_str(), long.as_str()] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError::Malformed), "{text}");
        }
    }
}
