//! The one integration binary: black-box tests of the program and its surfaces, a module per subject.

mod actors;
mod cli;
mod config;
mod keys;
mod layers;
mod leak;
mod logs;
mod metrics;
mod pulls;
mod registries;
mod service;
mod sources;
mod store;
mod support;
