//! Break-glass credentials from the outside: the real program, API servers with real TLS, a client that knows
//! nothing but its kubeconfig.

mod approval;
mod kill;
mod operators;
mod panics;
mod replicas;
mod revocations;
mod signed_elsewhere;
mod story;
mod surface;
mod time;
mod world;
