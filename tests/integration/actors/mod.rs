//! The actors with a scripted registry and a real database: supervision, take-over, bounded mailboxes.

mod audits;
pub mod campaigns;
mod issuing;
mod limits;
mod panics;
mod recovery;
mod repeats;
pub mod world;
