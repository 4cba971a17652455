//! HyperFleet Credentials: the map.
//!
//! | module | subject |
//! |---|---|
//! | [`ids`], [`time`], [`window`] | identifiers, instants and maintenance windows, used by every layer |
//! | [`state`] | the pure machines: what may happen, what is true afterwards, what to do next |
//! | [`store`] | rows and transactions |
//! | [`crypto`] | keys and sealed values |
//! | [`outside`] | what a call to the outside carries, whoever is called |
//! | [`registries`] | container registries behind one trait |
//! | [`signers`] | who signs break-glass credentials, behind one trait |
//! | [`actors`] | brings the above together: one actor per cluster's credential, a scheduler |
//! | [`http`] | the HTTP surface |
//! | [`config`], [`telemetry`], [`cli`] | how the process is configured, watched and started |
//! | [`failpoints`] | where a test lets the process die |
//!
//! Imports run downwards only: `http -> actors -> {state, store, crypto, registries,
//! signers}`, and `registries` and `signers` -> `outside`.
#![forbid(unsafe_code)]

pub mod actors;
pub mod cli;
pub mod config;
pub mod crypto;
pub mod failpoints;
pub mod http;
pub mod ids;
pub mod outside;
pub mod registries;
pub mod signers;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod window;
