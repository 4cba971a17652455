//! The surface without the rest: every error reply, the order of checks, who may what.

mod break_glass;
mod desk;
mod fixtures;
mod limits;
mod matrix;
mod problems;
mod served;
