//! Black-box tests: the program and its surfaces from the outside.

mod cli;
mod config;
mod keys;
