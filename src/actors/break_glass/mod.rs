//! Break-glass credentials, brought together: the machine, its rows, the keys that are sealed.
//!
//! | module | subject |
//! |---|---|
//! | [`step`] | one command, one transaction: decide, apply, announce, commit |
//! | [`calls`] | one announced call to a signer or to API servers, and its answer |
//! | [`audit`] | what a step tells the audit |
//! | [`fleet`] | which clusters have break-glass, who signs, what their files say |
//! | [`kit`] | what makes them a kind of credential, for the actors that are the same for all kinds |
//! | [`house`] | gauges, the clusters file, what may be forgotten |
//! | `log` | what is logged |
//! | `count` | what is counted |
//! | [`service`] | what HTTP asks, a function per verb |
//!
//! Knows no HTTP. A step knows no signer: what one made is handed in, what one has to be asked is handed out.

pub mod audit;
pub mod calls;
mod count;
pub mod fleet;
pub mod house;
pub mod kit;
mod log;
pub mod service;
pub mod step;
#[cfg(test)]
mod testing;
