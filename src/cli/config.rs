//! `config check` and `config show`.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use super::dev_dir;
use super::flags::ConfigFlags;
use crate::config::{Config, Loaded};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Say whether the service would start with this configuration.
    Check(Options),
    /// Print the merged configuration as YAML, without secrets.
    Show(Options),
}

#[derive(Debug, Args)]
pub(super) struct Options {
    /// As `serve --dev` would see it.
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    flags: ConfigFlags,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(options) => {
                let Loaded { config, file, .. } = load(&options)?;
                // The files of `--dev` are made by `serve`; they need not be there yet.
                if !options.dev {
                    config.check_files()?;
                    // The values keep every rule; what is missing beside them may come before the start.
                    if let Err(error) = super::serve::check(&config) {
                        writeln!(io::stderr(), "warning: `serve` would not start yet: {error:#}")?;
                    }
                }
                let from =
                    file.map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
                writeln!(io::stdout(), "the configuration is valid ({from})")?;
            }
            Self::Show(options) => {
                io::stdout().write_all(load(&options)?.config.to_yaml().as_bytes())?;
            }
        }
        Ok(())
    }
}

fn load(options: &Options) -> anyhow::Result<Loaded> {
    let loaded = Config::load(&options.flags.sources(dev_dir(options.dev)))?;
    for warning in &loaded.warnings {
        writeln!(io::stderr(), "warning: {warning}")?;
    }
    Ok(loaded)
}
