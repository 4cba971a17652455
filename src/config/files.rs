//! The files that the configuration names: may they be used, and what is in them.
//!
//! Apart from `validate`, because these rules hold on the machine that runs the service only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::error::{Problem, Problems};
use super::registry::RegistryKind;
use super::validate_registries::path_of;
use super::{AuthMode, Clusters, Config, Db};
use crate::crypto::{FileModeError, check_secret_file};

/// A file that holds a secret could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadSecretError {
    /// It is missing or open to others.
    #[error(transparent)]
    File(#[from] FileModeError),
    /// It could not be read, or is not text.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{path}: is empty; put the secret into it")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

fn read_secret(path: &Path) -> Result<SecretString, ReadSecretError> {
    let text = Zeroizing::new(
        fs::read_to_string(path)
            .map_err(|source| ReadSecretError::Read { path: path.to_owned(), source })?,
    );
    match text.trim() {
        "" => Err(ReadSecretError::Empty { path: path.to_owned() }),
        text => Ok(SecretString::from(text)),
    }
}

impl Db {
    /// The URL to connect to: the content of `url_file` where that is set.
    ///
    /// # Errors
    /// When the file cannot be read or is empty.
    pub fn connection_url(&self) -> Result<SecretString, ReadSecretError> {
        match &self.url_file {
            Some(path) => read_secret(path),
            None => Ok(self.url.secret().clone()),
        }
    }
}

impl Config {
    /// Refuses secret files that others may read or the group may write, a missing tokens file, and a clusters
    /// file with a fault.
    ///
    /// A missing token of a registry is no reason not to start: that registry is blocked and says
    /// so, and the others work. Key files are checked by whoever loads the keyring.
    ///
    /// # Errors
    /// With every file that is not as it must be.
    pub fn check_files(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        for (at, path, needed) in self.secret_files() {
            match check_secret_file(path) {
                Ok(()) => {}
                Err(FileModeError::Unreadable { .. }) if !needed => {}
                Err(error) => problems.add(Problem::file(&at, &error)),
            }
        }
        if let Some(path) = &self.server.tls.cert_file
            && let Err(error) = fs::metadata(path)
        {
            let message = format!("{}: cannot be read: {error}", path.display());
            problems.add(Problem::file("server.tls.cert_file", &message));
        }
        if let Err(error) = Clusters::load(&self.break_glass.clusters_file) {
            problems.add(Problem::file("break_glass.clusters_file", &error));
        }
        problems.into_result()
    }

    /// Key, file, and whether the service cannot do without it.
    fn secret_files(&self) -> Vec<(String, &Path, bool)> {
        let mut files: Vec<(String, &Path, bool)> = Vec::new();
        if let Some(path) = &self.auth.r#static.tokens_file
            && self.auth.mode == AuthMode::Static
        {
            files.push(("auth.static.tokens_file".to_owned(), path, true));
        }
        if let Some(path) = &self.server.tls.key_file {
            files.push(("server.tls.key_file".to_owned(), path, true));
        }
        if let Some(path) = &self.events.secret_file {
            files.push(("events.secret_file".to_owned(), path, true));
        }
        for registry in &self.registries {
            let found: Option<(&str, &Path)> = match &registry.kind {
                RegistryKind::Quay(quay) => Some(("token_file", &quay.token_file)),
                RegistryKind::Rhit(rhit) => Some(("key_file", &rhit.key_file)),
                RegistryKind::Harbor(harbor) => Some(("password_file", &harbor.password_file)),
                RegistryKind::Nexus(nexus) => Some(("password_file", &nexus.password_file)),
                RegistryKind::Htpasswd(_) => None,
            };
            if let Some((name, path)) = found {
                let at = path_of(registry.common.id.as_str());
                files.push((format!("{at}.{name}"), path, false));
            }
        }
        files
    }
}

/// What is odd about files without being a reason to refuse.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(path) = &config.db.url_file
        && let Err(error @ FileModeError::TooOpen { .. }) = check_secret_file(path)
    {
        warnings.push(format!("db.url_file: {error}"));
    }
    warnings
}
