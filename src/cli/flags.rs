//! The flags of configuration keys, made from the configuration's own table.
//!
//! Their values stay text here: the configuration has one rule and one message per key, whichever
//! layer a value comes from.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::config::{Sources, flags};

const CONFIG: &str = "config";

/// What was given of `--config` and the keys' flags.
#[derive(Debug, Clone, Default)]
pub(super) struct ConfigFlags {
    config_file: Option<PathBuf>,
    values: Vec<(String, String)>,
}

impl ConfigFlags {
    /// All layers: these flags, the process's environment, the file.
    pub(super) fn sources(&self, dev: Option<PathBuf>) -> Sources {
        Sources {
            config_file: self.config_file.clone(),
            flags: self.values.clone(),
            dev,
            ..Sources::of_process()
        }
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("The configuration file; without it HYPERFLEET_CONFIG or the usual places");
        let keys = flags().map(|flag| {
            let arg = Arg::new(flag.path)
                .long(flag.name)
                .value_name("VALUE")
                .help_heading("Configuration")
                .allow_hyphen_values(true)
                .help(flag.about);
            match flag.path {
                "server.port" => arg.short('p'),
                "log.level" => arg.short('l'),
                "log.format" => arg.short('f'),
                _ => arg,
            }
        });
        command.arg(config).args(keys)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config_file = matches.get_one::<PathBuf>(CONFIG).cloned();
        self.values = flags()
            .filter_map(|flag| {
                let value = matches.get_one::<String>(flag.path)?;
                Some((flag.path.to_owned(), value.clone()))
            })
            .collect();
        Ok(())
    }
}
