//! The program: installs what must be installed once, then hands over to the command line.

use std::io::{self, Write};
use std::process::ExitCode;

use hyperfleet_credentials::cli::{self, serve::StoredCensus};

fn main() -> ExitCode {
    // First of all: two providers in one program, or none, is a panic at the first TLS handshake.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        let _ =
            writeln!(io::stderr(), "error: a TLS provider was installed before the program's own");
        return ExitCode::FAILURE;
    }
    cli::run(std::env::args_os(), &StoredCensus)
}
