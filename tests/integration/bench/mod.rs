//! Measurements. They run alone and in release (`make bench`), print what they measured, and fail where a bar is
//! missed. `docs/performance.md` has the numbers.

mod campaign;
mod standstill;
