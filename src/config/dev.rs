//! `serve --dev`: a layer of defaults under one directory, and the files that it names.
//!
//! Only defaults: file, environment and flags still win. What a developer put elsewhere is not
//! touched, and nothing that exists is overwritten.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE32_NOPAD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::Config;
use super::registry::RegistryKind;
use crate::crypto::tokens::TokenHash;
use crate::crypto::{GenerateError, generate_audit_key, generate_key, secret, write_new};

const KEY_ID: &str = "dev";

/// What `--dev` uses, all below one directory.
struct Places {
    installation: PathBuf,
    database: PathBuf,
    keys: PathBuf,
    tokens: PathBuf,
    admin_token: PathBuf,
    htpasswd: PathBuf,
}

impl Places {
    fn of(data_dir: &Path) -> Self {
        Self {
            installation: data_dir.join("installation"),
            database: data_dir.join("credentials.db"),
            keys: data_dir.join("keys"),
            tokens: data_dir.join("tokens"),
            admin_token: data_dir.join("admin.token"),
            htpasswd: data_dir.join("registry.htpasswd"),
        }
    }
}

/// The layer. The installation is the one in the directory, or a new random one: two developers
/// with one registry must not delete each other's accounts.
pub(super) fn layer(data_dir: &Path) -> Value {
    let places = Places::of(data_dir);
    let id = fs::read_to_string(&places.installation)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .unwrap_or_else(new_installation);
    json!({
        "installation": {"id": id},
        "server": {"host": "127.0.0.1", "drain_delay": "0s"},
        "metrics": {"host": "127.0.0.1"},
        "db": {"url": format!("sqlite://{}", places.database.display())},
        "encryption": {"keys_dir": places.keys},
        "auth": {"mode": "static", "static": {"tokens_file": places.tokens}},
        "break_glass": {"clusters_file": data_dir.join("clusters.yaml")},
        "registries": [{
            "id": "local", "type": "htpasswd", "host": "localhost:5000", "file": places.htpasswd,
        }],
    })
}

fn new_installation() -> String {
    let random = rand::random::<[u8; 5]>();
    format!("dev-{}", BASE32_NOPAD.encode(&random).to_ascii_lowercase())
}

/// What was made for `--dev`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Files that were not there before.
    pub made: Vec<PathBuf>,
    /// Where the admin's token is, when `--dev` manages it.
    pub admin_token: Option<PathBuf>,
}

/// The files of `--dev` could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A key or file could not be made.
    #[error(transparent)]
    Make(#[from] GenerateError),
    /// The operating system has no randomness.
    #[error(transparent)]
    NoRandomness(#[from] secret::NoRandomness),
    /// A directory could not be made, or a file not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Accepted hashes without the token that they are of.
    #[error(
        "{tokens}: exists, but {token} does not, and a hash does not give its token back; remove \
         {tokens} to have both made anew"
    )]
    TokenLost {
        /// The file of hashes.
        tokens: PathBuf,
        /// The missing token.
        token: PathBuf,
    },
}

/// Makes the files that `--dev` named and that are not there yet.
///
/// Call it after [`Config::load`] and before anything is opened. What the configuration moved
/// elsewhere is left alone.
///
/// # Errors
/// When the disk refuses or files contradict each other.
pub fn prepare_dev(config: &Config, data_dir: &Path) -> Result<Prepared, PrepareError> {
    let places = Places::of(data_dir);
    let mut prepared = Prepared::default();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .map_err(|source| PrepareError::Io { path: data_dir.to_owned(), source })?;

    let installation = format!("{}\n", config.installation.id);
    make(&places.installation, installation.as_bytes(), 0o644, &mut prepared)?;
    if config.encryption.keys_dir == places.keys {
        make_keys(&places.keys, &mut prepared)?;
    }
    if config.auth.r#static.tokens_file.as_ref() == Some(&places.tokens) {
        make_tokens(&places, &mut prepared)?;
        prepared.admin_token = Some(places.admin_token.clone());
    }
    let wants_htpasswd = config.registries.iter().any(|registry| match &registry.kind {
        RegistryKind::Htpasswd(htpasswd) => htpasswd.file == places.htpasswd,
        RegistryKind::Quay(_)
        | RegistryKind::Rhit(_)
        | RegistryKind::Harbor(_)
        | RegistryKind::Nexus(_) => false,
    });
    if wants_htpasswd {
        // A registry in a container reads it as another user; it holds hashes of long random
        // secrets only.
        make(&places.htpasswd, b"", 0o644, &mut prepared)?;
    }
    Ok(prepared)
}

fn make_keys(dir: &Path, prepared: &mut Prepared) -> Result<(), PrepareError> {
    match crate::crypto::list_key_files(dir) {
        Ok(files) if !files.is_empty() => {
            prepared.made.extend(generate_audit_key(dir)?);
            Ok(())
        }
        Ok(_) | Err(_) => {
            let made = generate_key(dir, KEY_ID, true)?;
            prepared.made.push(made.key);
            prepared.made.extend(made.audit_key);
            Ok(())
        }
    }
}

/// The token first, its hash afterwards: a crash in between is healed by the next start.
fn make_tokens(places: &Places, prepared: &mut Prepared) -> Result<(), PrepareError> {
    let (tokens, admin) = (&places.tokens, &places.admin_token);
    if tokens.exists() {
        if admin.exists() {
            return Ok(());
        }
        return Err(PrepareError::TokenLost { tokens: tokens.clone(), token: admin.clone() });
    }
    let token = secret::generate()?;
    make(admin, token.expose_secret().as_bytes(), 0o600, prepared)?;
    let token = fs::read_to_string(admin)
        .map(|text| SecretString::from(text.trim()))
        .map_err(|source| PrepareError::Io { path: admin.clone(), source })?;
    let line = format!("admin admin sha256:{}\n", TokenHash::of(&token).to_hex());
    make(tokens, line.as_bytes(), 0o600, prepared)
}

fn make(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepared: &mut Prepared,
) -> Result<(), PrepareError> {
    match write_new(path, content, mode) {
        Ok(()) => {
            prepared.made.push(path.to_owned());
            Ok(())
        }
        Err(GenerateError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
