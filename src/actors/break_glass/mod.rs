//! Break-glass credentials, brought together: the machine, its rows, the keys that are sealed.
//!
//! | module | subject |
//! |---|---|
//! | [`step`] | one command, one transaction: decide, apply, announce, commit |
//! | [`calls`] | one announced call to a signer or to API servers, and its answer |
//! | [`audit`] | what a step tells the audit |
//!
//! Knows no HTTP. A step knows no signer: what one made is handed in, what one has to be asked is handed out.

pub mod audit;
pub mod calls;
pub mod step;
