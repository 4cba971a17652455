//! `serve` and `migrate`: the one place that knows all layers and puts them together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use secrecy::ExposeSecret;

use crate::actors::deps::Deps;
use crate::actors::registries;
use crate::actors::system::System;
use crate::config::Config;
use crate::crypto::{AuditKey, SharedKeyring};
use crate::store::{AuditSeal, SqliteStore, Store};
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, SystemClock};

/// Opens the configured database for writing.
///
/// # Errors
/// When it is of a kind that is not available, or another process has it.
pub async fn open_store(
    config: &Config,
    seal: Option<Arc<dyn AuditSeal>>,
) -> anyhow::Result<Arc<dyn Store>> {
    let url = config.db.connection_url()?;
    let url = url.expose_secret();
    if !url.starts_with("sqlite:") {
        bail!("db.url: only sqlite:// is available in this version");
    }
    let store = SqliteStore::open(url, config.db.max_connections).await?;
    Ok(match seal {
        Some(seal) => Arc::new(store.with_audit_seal(seal)),
        None => Arc::new(store),
    })
}

/// The keyed hash of audit rows, where `audit.key` stands beside the keys.
#[derive(Debug)]
struct Sealer(AuditKey);

impl AuditSeal for Sealer {
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        self.0.hash(&[message]).to_vec()
    }
}

pub async fn serve(_config: Config, _dev: bool) -> anyhow::Result<()> {
    bail!("wiring")
}
pub async fn migrate(_config: Config) -> anyhow::Result<()> {
    bail!("wiring")
}
