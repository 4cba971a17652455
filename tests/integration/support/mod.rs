//! What several surfaces need: outside programs, calls, clients.

pub mod calls;
pub mod docker_registry;
pub mod image;
pub mod needles;
pub mod service;
pub mod talkative;
