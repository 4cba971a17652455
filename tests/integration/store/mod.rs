//! The store from the outside: one suite, run over every backend.

mod audit;
mod backends;
mod break_glass;
mod campaigns;
mod histories;
mod keys;
mod lists;
mod postgres;
mod replicas;
pub mod script;
mod sqlite;
mod steps;
mod sweeps;
mod turns;
mod usage;
