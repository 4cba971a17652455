//! The pure machines. A reader can understand the product from this folder alone.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time, ids and random values come
//! in through a context. Each machine has four functions: `decide` (may this happen now?), `apply`
//! (what is true afterwards), `effects` (the calls that the state wants) and `due_at` (when it wants
//! to be looked at again).

pub mod break_glass;
pub mod campaign;
pub mod pull_secret;
pub mod shared;
pub mod sweep;
