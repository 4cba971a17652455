//! The one integration binary: black-box tests of the program and its surfaces, a module per subject.

mod actors;
mod api;
mod audit;
mod cli;
mod config;
mod disk;
mod idempotency;
mod keys;
mod kill;
mod layers;
mod leak;
mod logs;
mod metrics;
mod postgres_service;
mod pulls;
mod quay_kill;
mod quay_service;
mod registries;
mod service;
mod shutdown;
mod sources;
mod start;
mod store;
mod support;
mod sweeps;
