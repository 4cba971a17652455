//! The one integration binary: black-box tests of the program and its surfaces, a module per subject.

mod cli;
mod config;
mod keys;
mod registries;
mod support;
