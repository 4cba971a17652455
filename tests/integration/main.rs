//! The one integration binary: black-box tests, a module per surface.

mod registries;
mod support;
