//! Proof of the machine: the reviewed table, a few told stories, and random histories in a simulated world.

mod fates;
mod histories;
mod judge;
mod registry;
mod stories;
mod table;
mod told;
mod world;
