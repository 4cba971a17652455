//! The one integration binary: black-box tests of the program and its surfaces, a module per subject.

mod actors;
mod cli;
mod config;
mod disk;
mod keys;
mod kill;
mod layers;
mod pulls;
mod registries;
mod service;
mod shutdown;
mod store;
mod support;
