//! Brings the layers together: one actor per cluster's credential, and a scheduler.
//!
//! | module | subject |
//! |---|---|
//! | [`activity`] | what is under way, so that a shutdown can wait for it |
//! | [`deps`] | what every actor is given |
//! | [`step`] | one command, one transaction: decide, apply, announce, commit |
//! | [`log`] | what is logged of steps and calls |
//! | [`breakers`] | tells when a registry is left alone |
//! | [`campaigns`] | drives campaigns of rotations |
//! | [`calls`] | one announced call to a registry, and its answer |
//! | [`kind`] | what differs between the kinds of credentials |
//! | `pull_secret` | pull secrets, as a kind |
//! | [`credential`] | the actor that serialises one cluster's commands |
//! | [`replica`] | this process among the replicas: does it live, who else does |
//! | [`clocks`] | whether the wall clock may be believed |
//! | [`liveness`] | says that it lives, watches the others |
//! | [`hints`] | what other replicas tell |
//! | [`shard`] | owns the actors of a part of the clusters; brings back those that panic |
//! | [`scheduler`] | wakes what is due, takes over at start, lets history pass |
//! | [`sweeper`] | compares registries with the rows, deletes what nobody wants |
//! | [`restored`] | nothing is deleted after a restore until somebody has seen it |
//! | [`system`] | starts the above; what HTTP talks to |
//! | [`upkeep`] | lets history pass, anchors the audit |
//! | [`usage`] | reads who was seen by the registries themselves |
//! | [`reads`] | tells the audit of every pull secret that is handed out |
//! | `points` | where a test lets the process die |
//! | [`break_glass`] | break-glass credentials, as a kind: steps, calls, what HTTP asks |
//! | [`measured`] | the store, with a stopwatch |
//! | [`read`] | what is read for GET and heartbeats, from the database |
//!
//! Actors hold no truth. Whatever one knows can be read again from the database, so any of them may
//! stop or die at any moment.

pub mod activity;
pub mod audit;
pub mod break_glass;
pub mod breakers;
pub mod calls;
pub mod campaigns;
pub mod clocks;
mod count;
pub mod credential;
pub mod deps;
pub mod hints;
pub mod kind;
pub mod liveness;
pub mod log;
pub mod measured;
pub(crate) mod points;
mod pull_secret;
pub mod read;
pub mod reads;
pub mod registries;
pub mod replica;
pub mod restored;
pub mod scheduler;
pub mod shard;
pub mod step;
pub mod sweeper;
pub mod system;
pub mod upkeep;
pub mod usage;
