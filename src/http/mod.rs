//! The HTTP surface: from bytes to commands and back.
//!
//! | module | subject |
//! |---|---|
//! | [`routes`] | the one table of routes: who may do what, and how a handler is bound to its row |
//! | [`auth`] | who is calling, and whether they may |
//! | [`context`], `frame`, `gate` | what happens around every request, in this order |
//! | [`extract`] | what handlers take from a request, checked |
//! | [`ocm`] | the two interfaces for OCM clients: where they are and how they spell things |
//! | [`problem`] | what a client is told when something goes wrong |
//! | [`document`], [`resource`], [`answer`] | what a client is given when nothing does |
//! | [`health`] | probes and metrics |
//! | [`server`] | listeners |
//!
//! Decides nothing about credentials. A request is checked in this order: route (`404`, `405`),
//! authentication, authorisation, validation.

pub mod answer;
pub mod auth;
pub mod context;
pub mod document;
pub mod edge;
pub mod extract;
mod frame;
mod gate;
pub mod handlers;
pub mod health;
pub mod limits;
pub mod ocm;
pub mod problem;
pub mod resource;
pub mod routes;
pub mod server;

#[cfg(test)]
mod tests;
