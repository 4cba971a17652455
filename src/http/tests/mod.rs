//! The surface without the rest: every error reply, the order of checks, who may what.

mod fixtures;
mod matrix;
mod problems;
mod served;
