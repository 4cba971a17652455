//! What both machines need: random values, pauses, announcements, the account of what went wrong, dates that a
//! clock has made wrong.
//!
//! Only values and arithmetic; knows neither machine.

mod call;
pub mod clock;
mod entropy;
mod retry;

pub use call::{Announcement, Quarantine};
pub use entropy::{Entropy, cluster_hash};
pub use retry::{Backoff, Failure, Trouble};
