//! Quay over its fake, with a team and a repository of its own to be given.

use std::path::PathBuf;

use async_trait::async_trait;
use hyperfleet_credentials::registries::Registry;
use hyperfleet_credentials::registries::quay::{Quay, QuaySettings, UsageSource};
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

use super::conformance::Fixture;
use super::fixtures::client;
use crate::support::fake_quay::{self, FakeQuay, Fault, Reply};

/// The team reads `app`, the robot itself is granted `tools`.
pub struct QuayFixture {
    pub fake: FakeQuay,
    pub registry: Quay,
    pub settings: QuaySettings,
    _directory: TempDir,
}

impl QuayFixture {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut QuaySettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fake = fake_quay::start();
        fake.add_team("pullers");
        fake.add_repository("app", &["pullers"]);
        fake.add_repository("tools", &[]);
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, format!("{}\n", fake.token)).unwrap();
        let url = fake.url.parse().unwrap();
        let mut settings = QuaySettings::new(url, fake.organization.clone(), token_file);
        settings.team = Some("pullers".to_owned());
        settings.repositories = vec!["tools".to_owned(), "acme/tools".to_owned()];
        settings.usage = UsageSource::LastAccessed;
        change(&mut settings);
        let registry = quay(&settings, &fake);
        Self { fake, registry, settings, _directory: directory }
    }

    pub fn token_file(&self) -> &PathBuf {
        &self.settings.token_file
    }
}

pub fn quay(settings: &QuaySettings, fake: &FakeQuay) -> Quay {
    Quay::with_clock(settings.clone(), client(), fake.clock())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[async_trait]
impl Fixture for QuayFixture {
    fn registry(&self) -> &dyn Registry {
        &self.registry
    }

    fn twin(&self) -> Box<dyn Registry> {
        Box::new(quay(&self.settings, &self.fake))
    }

    fn add_foreign(&self, name: &str, secret: &SecretString) {
        let full = self.fake.full(name);
        self.fake.add_robot(&full, secret.expose_secret(), "somebody else's");
    }

    fn username(&self, name: &str) -> String {
        self.fake.full(name)
    }

    fn live(&self) -> Vec<String> {
        let prefix = self.fake.full("");
        self.fake.live(&prefix).iter().map(|full| full[prefix.len()..].to_owned()).collect()
    }

    fn everything(&self) -> Vec<u8> {
        format!("{:?}", self.fake.changes()).into_bytes()
    }

    async fn login(&self, username: &str, secret: &SecretString) -> bool {
        self.fake.secret_works(username, secret.expose_secret())
    }

    fn break_down(&self) {
        self.fake.break_down(Fault::Instead(Reply::gateway(404)));
    }

    fn heal(&self) {
        self.fake.heal();
    }
}

/// Clusters that use their credentials.
impl QuayFixture {
    /// Logs in without the code under test.
    pub fn login_as_somebody<'a>(
        &'a self,
        username: &'a str,
        secret: &'a SecretString,
    ) -> impl AsyncFn() + 'a {
        async move || {
            self.registry_token(username, secret).await;
        }
    }

    async fn registry_token(&self, username: &str, secret: &SecretString) -> String {
        let url = format!("{}/v2/auth?service=x&scope=repository:acme/app:pull", self.fake.url);
        let request = client().get(url).basic_auth(username, Some(secret.expose_secret()));
        let answer: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
        answer["token"].as_str().unwrap().to_owned()
    }

    /// Pulls an image as a cluster does.
    pub async fn pull(&self, username: &str, secret: &SecretString) {
        let token = self.registry_token(username, secret).await;
        let url = format!("{}/v2/acme/app/manifests/latest", self.fake.url);
        let answer = client().get(url).bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
}
