//! The one integration binary: black-box tests, a module per surface.

mod registries;
mod support;
//! Black-box tests: the program and its surfaces from the outside.

mod cli;
mod config;
mod keys;
