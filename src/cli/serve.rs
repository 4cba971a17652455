//! `serve` and `migrate`: the one place that knows all layers and puts them together.

use anyhow::bail;

use crate::config::Config;

/// Runs the service until it is told to stop. `dev`: the database is migrated first.
///
/// # Errors
/// When something that the service cannot do without is missing.
pub async fn serve(config: Config, dev: bool) -> anyhow::Result<()> {
    let _ = (config, dev);
    bail!("serve is wired in src/cli/serve.rs")
}

/// Brings the database to this release's schema.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn migrate(config: Config) -> anyhow::Result<()> {
    let _ = config;
    bail!("migrate is wired in src/cli/serve.rs")
}
