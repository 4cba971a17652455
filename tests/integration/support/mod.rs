//! What several surfaces need: outside programs, calls, clients, fakes.

pub mod calls;
pub mod clock;
pub mod docker_registry;
pub mod fake_apiserver;
pub mod fake_management;
pub mod fake_quay;
pub mod fleet;
pub mod image;
pub mod needles;
pub mod postgres;
pub mod seed;
pub mod service;
pub mod stock;
pub mod talkative;
