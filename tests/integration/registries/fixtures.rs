//! The registries that run the conformance suite, each with a way to look at the truth that does
//! not go through the code under test.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use hyperfleet_credentials::registries::Registry;
use hyperfleet_credentials::registries::htpasswd::{Htpasswd, HtpasswdSettings};
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Scripted, What};
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

use super::conformance::Fixture;
use crate::support::docker_registry::{self, DockerRegistry};

/// The registry in memory.
pub struct ScriptedFixture(Scripted);

impl ScriptedFixture {
    pub fn new(flavour: Flavour) -> Self {
        Self(Scripted::new(flavour))
    }
}

#[async_trait]
impl Fixture for ScriptedFixture {
    fn registry(&self) -> &dyn Registry {
        &self.0
    }

    fn twin(&self) -> Box<dyn Registry> {
        Box::new(self.0.clone())
    }

    fn add_foreign(&self, name: &str, secret: &SecretString) {
        assert!(self.0.add_foreign(name, secret.clone()), "{name} is taken");
    }

    fn username(&self, name: &str) -> String {
        self.0.username(name)
    }

    fn live(&self) -> Vec<String> {
        self.0.live().into_iter().map(|account| account.name).collect()
    }

    fn everything(&self) -> Vec<u8> {
        let changes = self.0.log().into_iter().filter(|entry| match entry.what {
            What::Created { .. } | What::Deleted { .. } => true,
            What::Begin { .. } | What::End { .. } => false,
        });
        format!("{:?}", changes.collect::<Vec<_>>()).into_bytes()
    }

    async fn login(&self, username: &str, secret: &SecretString) -> bool {
        self.0.secret_works(username, secret)
    }

    fn break_down(&self) {
        self.0.break_down(Fault::Misconfigured);
    }

    fn heal(&self) {
        self.0.heal();
    }
}

/// An htpasswd file, with or without a registry that reads it.
pub struct HtpasswdFixture {
    registry: Htpasswd,
    pub settings: HtpasswdSettings,
    server: Option<DockerRegistry>,
    _directory: TempDir,
}

const BROKEN: &str = "a line without any colon\n";

impl HtpasswdFixture {
    /// The file alone.
    pub fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = HtpasswdSettings::new(directory.path().join("htpasswd"));
        std::fs::write(&settings.file, "").unwrap();
        Self::of(directory, settings, None)
    }

    /// The file of a real registry.
    pub fn docker_registry() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = docker_registry::start(directory.path());
        let mut settings = HtpasswdSettings::new(server.htpasswd.clone());
        settings.verify_url = Some(server.url().parse().unwrap());
        Self::of(directory, settings, Some(server))
    }

    fn of(directory: TempDir, settings: HtpasswdSettings, server: Option<DockerRegistry>) -> Self {
        let registry = htpasswd(&settings);
        Self { registry, settings, server, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.settings.file
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    /// Replaces the file as another careful program would.
    pub fn put(&self, text: &str) {
        let beside: PathBuf = self.path().with_extension("other");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, self.path()).unwrap();
    }
}

/// A registry with a client of its own.
pub fn htpasswd(settings: &HtpasswdSettings) -> Htpasswd {
    Htpasswd::new(settings.clone(), client()).unwrap_or_else(|error| panic!("{error}"))
}

/// A client as the service makes it: no redirects, no proxy.
pub fn client() -> reqwest::Client {
    // All but the first installation in the process are refused, and that is well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let no_redirects = reqwest::redirect::Policy::none();
    reqwest::Client::builder().redirect(no_redirects).no_proxy().build().unwrap()
}

#[async_trait]
impl Fixture for HtpasswdFixture {
    fn registry(&self) -> &dyn Registry {
        &self.registry
    }

    fn twin(&self) -> Box<dyn Registry> {
        Box::new(htpasswd(&self.settings))
    }

    fn add_foreign(&self, name: &str, secret: &SecretString) {
        let hash = bcrypt::hash(secret.expose_secret(), 4).unwrap();
        self.put(&format!("{}{name}:{hash}\n", self.text()));
    }

    fn username(&self, name: &str) -> String {
        name.to_owned()
    }

    fn live(&self) -> Vec<String> {
        let text = self.text();
        let users = text.lines().filter_map(|line| line.split_once(':'));
        users.map(|(user, _)| user.to_owned()).collect()
    }

    fn everything(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap_or_default()
    }

    async fn login(&self, username: &str, secret: &SecretString) -> bool {
        let secret = secret.expose_secret();
        if let Some(server) = &self.server {
            let request = client().get(format!("{}/v2/", server.url()));
            let answer = request.basic_auth(username, Some(secret)).send().await.unwrap();
            return answer.status().as_u16() == 200;
        }
        let text = self.text();
        let begin = format!("{username}:");
        let hash = text.lines().rev().find_map(|line| line.strip_prefix(&begin));
        hash.is_some_and(|hash| bcrypt::verify(secret, hash).unwrap_or(false))
    }

    fn break_down(&self) {
        self.put(&format!("{}{BROKEN}", self.text()));
    }

    fn heal(&self) {
        self.put(&self.text().replace(BROKEN, ""));
    }
}
