//! The surface without the rest: every error reply, the order of checks, who may what.

mod fixtures;
mod limits;
mod matrix;
mod problems;
mod served;
