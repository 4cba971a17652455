//! Told tests: the rules of `DESIGN` section 3, one story each.

mod accounts;
mod adoption;
mod crowd;
mod doubt;
mod failures;
mod life;
mod rotation;
mod schedule;
