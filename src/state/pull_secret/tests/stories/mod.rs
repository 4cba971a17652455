//! Told tests: the rules of `DESIGN` section 3, one story each.

mod accounts;
mod adoption;
mod clock;
mod crowd;
mod doubt;
mod drift;
mod failures;
mod life;
mod partial;
mod restored;
mod rotation;
mod schedule;
