//! The command line: what is typed becomes a configuration and one function to call.
//!
//! Knows commands, flags and exit codes (0 done, 1 failed, 2 usage). Must not know how anything is
//! done: each command hands over to the layer whose work it is.

mod audit;
mod config;
mod flags;
pub mod keys;
pub mod serve;
mod shutdown;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use crate::config::{Config, Loaded, prepare_dev};
use crate::telemetry;
use flags::ConfigFlags;
use keys::KeyCensus;

/// Everything that `--dev` makes is below this directory.
const DEV_DIR: &str = "data";

/// Owns the credentials that a fleet of Kubernetes clusters lives on.
#[derive(Debug, Parser)]
#[command(name = "hyperfleet-credentials", version = telemetry::version())]
#[command(disable_version_flag = true, propagate_version = true)]
struct Cli {
    /// Print the version.
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: (),
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve {
        /// Everything under ./data and on 127.0.0.1, with generated keys and an admin token.
        #[arg(long)]
        dev: bool,
        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Bring the database to this release's schema.
    Migrate {
        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// The audit in the database.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Keys of sealed secrets.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Parses the process's arguments and runs the command.
///
/// `census` counts the rows per key for `keys status`; it is handed in because the command line
/// does not know the database.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>, census: &dyn KeyCensus) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; everything else is 2. A closed pipe does not matter.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match execute(cli.command, census) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // `{:#}` has the causes behind the message, on one line.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command, census: &dyn KeyCensus) -> anyhow::Result<()> {
    match command {
        Command::Serve { dev, flags } => {
            let config = start(&flags, dev)?;
            runtime().block_on(serve::serve(config, dev))
        }
        Command::Migrate { flags } => {
            let config = start(&flags, false)?;
            runtime().block_on(serve::migrate(config))
        }
        Command::Config(command) => command.run(),
        Command::Audit(command) => runtime().block_on(command.run()),
        Command::Keys(command) => runtime().block_on(command.run(census)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "hyperfleet-credentials",
                &mut script,
            );
            io::stdout().write_all(&script).context("standard output")
        }
    }
}

/// The configuration of a command that works on the service's data, with logging set up.
fn start(flags: &ConfigFlags, dev: bool) -> anyhow::Result<Config> {
    let Loaded { config, warnings, file } = Config::load(&flags.sources(dev_dir(dev)))?;
    telemetry::init(&config.log)?;
    for warning in &warnings {
        tracing::warn!(reason = %warning, "configuration");
    }
    if let Some(data_dir) = dev_dir(dev) {
        let prepared = prepare_dev(&config, &data_dir)?;
        for path in &prepared.made {
            tracing::info!(path = %path.display(), "made for --dev");
        }
        if let Some(path) = &prepared.admin_token {
            // The name of the field must not look like a secret, or it would be redacted.
            tracing::info!(file = %path.display(), "the admin's token is in this file");
        }
    }
    config.check_files()?;
    let path = file.as_deref().map_or_else(|| "none".into(), |path| path.to_string_lossy());
    tracing::info!(config_file = %path, config = %config.to_yaml(), "configuration loaded");
    Ok(config)
}

fn dev_dir(dev: bool) -> Option<PathBuf> {
    dev.then(|| PathBuf::from(DEV_DIR))
}

fn runtime() -> actix_rt::SystemRunner {
    actix_rt::System::new()
}

/// `... | head` is no failure of ours.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_has_a_flag_for_a_secret() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                let name = arg.get_long().unwrap_or_default();
                assert!(!telemetry::is_secret_name(name), "{name}");
                assert_ne!(name, "db-url");
            }
        }
    }
}
