//! The HTTP contract, line by line, against the real program.

mod auth;
mod campaigns;
mod clock;
mod errors;
mod evidence;
mod fleet;
mod headers;
mod operate;
mod parts;
mod pull_secrets;
pub mod refusals;
mod residue;
mod rollback;
mod rotations;
mod schedule;
mod trouble;
pub mod world;
