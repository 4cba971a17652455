//! The clusters file: which cluster has which API servers, and so has break-glass at all.
//!
//! Read again when it changes; a version with a fault is reported and the last good one stays in use. Knows no
//! certificate: what is in the files that an entry names is for others to judge.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use entry::Template;

use crate::ids::ClusterId;

/// The name of the entry for every cluster that has none of its own.
const EVERY: &str = "*";

/// What the file says about one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEntry {
    /// The API server's address, for kubeconfigs.
    pub server: String,
    /// The file with the certificates that the API servers' own lead to.
    pub ca_file: PathBuf,
    /// The addresses of single API servers, in their order. Empty: nothing can be probed.
    pub endpoints: Vec<String>,
    /// The file with the client CAs that the cluster has without this service.
    pub base_client_ca_file: Option<PathBuf>,
    /// Without `base_client_ca_file`: the bundle holds our own authorities only, and somebody adds the rest.
    pub bundle_only: bool,
    /// The control plane's namespace on the management cluster.
    pub namespace: Option<String>,
}

/// One thing that is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClustersProblem {
    /// Where: the entry's name, and below it the key.
    pub path: String,
    /// What has to hold.
    pub rule: String,
}

/// The file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClustersError {
    /// It cannot be read.
    #[error("{}: cannot be read: {message}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        message: String,
    },
    /// It is not YAML, or no map.
    #[error("{}: is not a YAML map of cluster ids: {message}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where and why, without the text itself.
        message: String,
    },
    /// Entries break rules.
    #[error("{}: {}", path.display(), list(problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Each of them.
        problems: Vec<ClustersProblem>,
    },
}

fn list(problems: &[ClustersProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for ClustersProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.rule)
    }
}

/// One version of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClustersFile {
    own: BTreeMap<ClusterId, Template>,
    every: Option<Template>,
}

impl ClustersFile {
    /// Reads a text; `path` is for messages.
    ///
    /// # Errors
    /// With every rule that is broken.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ClustersError> {
        let values = entry::read_yaml(text)
            .map_err(|message| ClustersError::Yaml { path: path.to_owned(), message })?;
        let mut file = Self::default();
        let mut problems = Vec::new();
        for (name, value) in values {
            match (name.as_str(), name.parse::<ClusterId>()) {
                (EVERY, _) => file.every = Template::read(&name, value, &mut problems),
                (_, Ok(id)) => {
                    if let Some(template) = Template::read(&name, value, &mut problems) {
                        file.own.insert(id, template);
                    }
                }
                (_, Err(error)) => {
                    let rule = format!("{error}, or be \"*\"");
                    problems.push(ClustersProblem { path: name, rule });
                }
            }
        }
        if problems.is_empty() {
            Ok(file)
        } else {
            Err(ClustersError::Invalid { path: path.to_owned(), problems })
        }
    }

    /// What is said about a cluster: its own entry, else the one for all. `None`: it has no break-glass.
    #[must_use]
    pub fn entry(&self, id: &ClusterId) -> Option<ClusterEntry> {
        self.own.get(id).or(self.every.as_ref()).map(|template| template.of(id))
    }
}

/// Device, inode, mtime, ctime, size: what says cheaply that the file may have changed.
type Stamp = (u64, u64, i64, i64, i64, i64, u64);

#[derive(Default)]
struct Current {
    file: Arc<ClustersFile>,
    stamp: Option<Stamp>,
}

/// The file as it is now.
pub struct Clusters {
    path: PathBuf,
    current: RwLock<Current>,
}

impl Clusters {
    /// Reads the file for the first time. One that is not there names no cluster.
    ///
    /// # Errors
    /// When it is there and cannot be used.
    pub fn load(path: &Path) -> Result<Self, ClustersError> {
        let clusters = Self { path: path.to_owned(), current: RwLock::default() };
        clusters.reload()?;
        Ok(clusters)
    }

    /// The version in use. Touches no file.
    #[must_use]
    pub fn get(&self) -> Arc<ClustersFile> {
        // A poisoned lock still holds a whole version: it is only ever exchanged by one assignment.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).file)
    }

    /// Reads the file again when it changed; true when there is a new version. Blocks for as long as the disk
    /// takes. A file that is gone takes nothing away: what it said stays in use until the next start.
    ///
    /// # Errors
    /// When it cannot be used; the last good version stays in use, and the next call tries again.
    pub fn reload(&self) -> Result<bool, ClustersError> {
        // Stamped before reading: a change in between is seen at the next reload.
        let Some(stamp) = self.stamp()? else { return Ok(false) };
        if self.current.read().unwrap_or_else(PoisonError::into_inner).stamp == Some(stamp) {
            return Ok(false);
        }
        let text = fs::read_to_string(&self.path).map_err(|error| self.unreadable(&error))?;
        let file = Arc::new(ClustersFile::parse(&self.path, &text)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Current { file, stamp: Some(stamp) };
        Ok(true)
    }

    fn stamp(&self) -> Result<Option<Stamp>, ClustersError> {
        match fs::metadata(&self.path) {
            Ok(meta) => {
                let (mtime, ctime) =
                    ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
                let times = (mtime.0, mtime.1, ctime.0, ctime.1);
                let size = meta.size();
                Ok(Some((meta.dev(), meta.ino(), times.0, times.1, times.2, times.3, size)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn unreadable(&self, error: &io::Error) -> ClustersError {
        ClustersError::Read { path: self.path.clone(), message: error.to_string() }
    }
}
