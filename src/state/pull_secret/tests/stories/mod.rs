//! Told tests: the rules of `DESIGN` section 3, one story each.

mod accounts;
mod adoption;
mod crowd;
mod drift;
mod failures;
mod life;
mod partial;
mod rotation;
mod schedule;
