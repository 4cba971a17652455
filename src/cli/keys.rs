//! `keys generate` and `keys status`.
//!
//! Makes and lists files; how many rows a key has is asked of a [`KeyCensus`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::bail;
use async_trait::async_trait;
use clap::{Args, Subcommand};

use super::flags::ConfigFlags;
use crate::config::Config;
use crate::crypto::{self, AuditKey, Keyring};

/// Counts the stored values of each key.
#[async_trait]
pub trait KeyCensus: Send + Sync {
    /// Rows by key id; none when there is no database to ask (yet).
    async fn rows(&self, config: &Config) -> anyhow::Result<Option<BTreeMap<String, u64>>>;
}

/// Nothing to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCensus;

#[async_trait]
impl KeyCensus for NoCensus {
    async fn rows(&self, _config: &Config) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
        Ok(None)
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make a key; never overwrites one.
    Generate(Generate),
    /// List the keys, who may read them, and how many stored secrets need each.
    Status {
        #[command(flatten)]
        flags: ConfigFlags,
    },
}

#[derive(Debug, Args)]
pub(super) struct Generate {
    /// The key's id: letters, digits, dots, dashes, underscores.
    #[arg(long)]
    id: String,
    /// Name it as the primary, which seals from then on. The first key always becomes it.
    #[arg(long)]
    primary: bool,
    #[command(flatten)]
    flags: ConfigFlags,
}

impl KeysCommand {
    pub(super) async fn run(self, census: &dyn KeyCensus) -> anyhow::Result<()> {
        match self {
            Self::Generate(generate) => generate.run(),
            Self::Status { flags } => {
                let sections = ["encryption", "db"];
                let config = Config::load_sections(&flags.sources(None), &sections)?;
                let rows = census.rows(&config).await?;
                status(&config, rows.as_ref(), &mut io::stdout())
            }
        }
    }
}

impl Generate {
    fn run(self) -> anyhow::Result<()> {
        let config = Config::load_sections(&self.flags.sources(None), &["encryption"])?;
        let made = crypto::generate_key(&config.encryption.keys_dir, &self.id, self.primary)?;
        let mut out = io::stdout();
        writeln!(out, "made {}", made.key.display())?;
        if let Some(path) = made.audit_key {
            writeln!(out, "made {}", path.display())?;
        }
        if made.primary {
            writeln!(out, "{} is the primary key", self.id)?;
        }
        if let Some(named) = &config.encryption.primary
            && made.primary
            && *named != self.id
        {
            writeln!(
                io::stderr(),
                "warning: encryption.primary names {named:?} and wins over the file `primary`"
            )?;
        }
        Ok(())
    }
}

/// Prints the keys and fails when the service could not start with them.
fn status(
    config: &Config,
    rows: Option<&BTreeMap<String, u64>>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let encryption = &config.encryption;
    let dir = &encryption.keys_dir;
    let files = crypto::list_key_files(dir)?;
    let ring = Keyring::load(dir, encryption.primary.as_deref());
    let primary = ring.as_ref().ok().map(|ring| ring.primary().to_owned());

    writeln!(out, "keys directory: {}", dir.display())?;
    writeln!(out, "{:<24} {:<8} {:<6} rows", "key", "primary", "mode")?;
    for file in &files {
        let mark = if primary.as_ref() == Some(&file.id) { "yes" } else { "" };
        let count = count_of(&file.id, rows);
        writeln!(out, "{:<24} {mark:<8} {:<6} {count}", file.id, mode_of(&file.path))?;
    }
    let held: BTreeSet<&str> = files.iter().map(|file| file.id.as_str()).collect();
    let needed = rows.into_iter().flatten().filter(|(_, count)| **count > 0);
    let missing: Vec<String> =
        needed.map(|(id, _)| id.clone()).filter(|id| !held.contains(id.as_str())).collect();
    for id in &missing {
        writeln!(out, "{id:<24} {:<8} {:<6} {}", "", "none", count_of(id, rows))?;
    }
    let ring = ring?;
    AuditKey::load(dir)?;
    if let Err(error) = ring.check_needed(&missing) {
        bail!(error);
    }
    Ok(())
}

fn count_of(id: &str, rows: Option<&BTreeMap<String, u64>>) -> String {
    rows.map_or_else(|| "-".to_owned(), |rows| rows.get(id).copied().unwrap_or(0).to_string())
}

fn mode_of(path: &Path) -> String {
    fs::metadata(path).map_or_else(
        |_| "?".to_owned(),
        |meta| format!("{:04o}", meta.permissions().mode() & 0o7777),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(config: &Config, rows: &[(&str, u64)]) -> (String, Result<(), String>) {
        let rows = rows.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect();
        let mut out = Vec::new();
        let result = status(config, Some(&rows), &mut out).map_err(|error| error.to_string());
        (String::from_utf8(out).unwrap(), result)
    }

    #[test]
    fn a_key_that_rows_need_and_no_file_holds_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        crypto::generate_key(dir.path(), "a", false).unwrap();
        let mut config = Config::default();
        config.encryption.keys_dir = dir.path().to_owned();

        let (text, result) = shown(&config, &[("a", 7), ("old", 0)]);
        assert_eq!(result, Ok(()));
        assert!(text.contains("a                        yes      0600   7\n"), "{text}");

        let (text, result) = shown(&config, &[("a", 7), ("old", 3)]);
        assert!(text.contains("old                               none   3\n"), "{text}");
        assert!(result.unwrap_err().contains("no file holds them: old"));
    }
}
