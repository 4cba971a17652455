//! The one integration binary: black-box tests of the program and its surfaces, a module per subject.

mod actors;
mod cli;
mod config;
mod keys;
mod layers;
mod postgres_service;
mod pulls;
mod quay_service;
mod registries;
mod service;
mod start;
mod store;
mod support;
