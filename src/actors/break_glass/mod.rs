//! Break-glass credentials, brought together: the machine, its rows, the keys that are sealed.
//!
//! | module | subject |
//! |---|---|
//! | [`step`] | one command, one transaction: decide, apply, announce, commit |
//! | [`calls`] | one announced call to a signer or to API servers, and its answer |
//! | [`audit`] | what a step tells the audit |
//! | [`fleet`] | which clusters have break-glass, who signs, what their files say |
//! | `line` | one at a time per cluster |
//! | [`worker`] | runs steps, makes calls, wakes what is due |
//! | `log` | what is logged |
//! | [`service`] | what HTTP asks, a function per verb |
//!
//! Knows no HTTP. A step knows no signer: what one made is handed in, what one has to be asked is handed out.

pub mod audit;
pub mod calls;
pub mod fleet;
mod line;
mod log;
pub mod service;
pub mod step;
pub mod worker;
