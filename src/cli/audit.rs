//! `audit verify`: whether the audit in the database is as it was written.
//!
//! Reads beside a running server. Knows where the key and the database are; how the chain is made is the
//! store's.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use secrecy::ExposeSecret;

use super::dev_dir;
use super::flags::ConfigFlags;
use super::serve::{Sealer, database_url};
use crate::config::Config;
use crate::crypto::AuditKey;
use crate::store::verify::{Verdict, verify};
use crate::store::{PgStore, SqliteStore, Store};

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Make every hash of the audit again and name the first row of each stream that is wrong.
    Verify(Options),
}

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The database and the key of `serve --dev`.
    #[arg(long)]
    dev: bool,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl AuditCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Verify(options) => options.run().await,
        }
    }
}

impl Options {
    async fn run(self) -> anyhow::Result<()> {
        let sections = ["encryption", "db"];
        let config = Config::load_sections(&self.flags.sources(dev_dir(self.dev)), &sections)?;
        let verdict = verdict(&config).await?;
        match self.output {
            Output::Table => print(&verdict, &mut io::stdout())?,
            Output::Json => writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&verdict)?)?,
        }
        match verdict.faults.len() {
            0 => Ok(()),
            1 => bail!("the audit is not as it was written: 1 stream is wrong"),
            count => bail!("the audit is not as it was written: {count} streams are wrong"),
        }
    }
}

async fn verdict(config: &Config) -> anyhow::Result<Verdict> {
    let key = AuditKey::load(&config.encryption.keys_dir)
        .context("without its key the audit cannot be verified")?;
    let store = read_store(config).await?;
    store.check_schema().await?;
    let verdict = verify(store.as_ref(), &Sealer(key)).await;
    store.close().await;
    Ok(verdict?)
}

/// The configured database, for reading beside a running server.
async fn read_store(config: &Config) -> anyhow::Result<Box<dyn Store>> {
    let url = database_url(config)?;
    let url = url.expose_secret();
    if url.starts_with("postgres") {
        return Ok(Box::new(PgStore::open(url, 1).await?));
    }
    Ok(Box::new(SqliteStore::open_read_only(url, 1).await?))
}

fn print(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} streams, {} rows", verdict.streams, verdict.rows)?;
    for fault in &verdict.faults {
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        writeln!(
            out,
            "{} row {} (event {}, {}): {}",
            fault.stream,
            number(fault.sequence.map(|sequence| sequence.to_string())),
            number(fault.event_id.map(|id| id.to_string())),
            number(fault.at.map(|at| at.to_string())),
            fault.reason
        )?;
    }
    if verdict.faults.is_empty() {
        writeln!(out, "every row is as it was written")?;
    }
    Ok(())
}
