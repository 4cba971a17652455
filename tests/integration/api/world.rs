//! One running service, a caller of each role, and clusters to talk about.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::service::{Answer, Service, Setup};

/// The host of the one registry that is there without configuration.
pub const HOST: &str = "localhost:5000";
pub const ROLES: [&str; 4] = ["adapter", "operator", "admin", "viewer"];

/// A service that nobody else talks to. The token of each role is its name and `-token`.
pub struct World {
    pub service: Service,
    pub directory: TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::start_with(Setup::quick()).await
    }

    pub async fn start_with(setup: Setup) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), setup).await
    }

    /// Two registries, `local` and `spare`; the second has an alias.
    pub async fn with_two_registries() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registries = json!({"registries": [
            {"id": "local", "type": "htpasswd", "host": HOST, "file": "data/registry.htpasswd"},
            {"id": "spare", "type": "htpasswd", "host": "spare.example.com",
             "aliases": ["mirror.example.com"], "file": "data/spare.htpasswd"},
        ]});
        fs::write(directory.path().join("config.yaml"), registries.to_string()).unwrap();
        write_secret(&directory.path().join("data/spare.htpasswd"), "");
        Self::start_in(directory, Setup::quick().env("HYPERFLEET_CONFIG", "config.yaml")).await
    }

    pub async fn start_in(directory: TempDir, setup: Setup) -> Self {
        let line = |role: &&str| {
            let hash = HEXLOWER.encode(&Sha256::digest(format!("{role}-token")));
            format!("{role}-1 {role} sha256:{hash}\n")
        };
        let tokens: String = ROLES.iter().map(line).collect();
        write_secret(&directory.path().join("data/tokens"), &tokens);
        write_secret(&directory.path().join("data/admin.token"), "admin-token");
        let service = Service::start(directory.path(), setup).await;
        Self { service, directory }
    }

    pub fn cluster<'a>(&'a self, id: &str) -> Cluster<'a> {
        Cluster { world: self, id: id.to_owned(), path: format!("/v1/clusters/{id}/pull-secrets") }
    }

    /// The file of the registry `local`.
    pub fn htpasswd(&self) -> PathBuf {
        self.directory.path().join("data/registry.htpasswd")
    }

    /// How many accounts there are at the registry.
    pub fn accounts(&self) -> usize {
        fs::read_to_string(self.htpasswd()).unwrap().lines().count()
    }

    /// A request by somebody with this role.
    pub fn request_as(&self, role: &str, method: Method, path: &str) -> RequestBuilder {
        self.service.anonymous(method, path).bearer_auth(format!("{role}-token"))
    }

    pub async fn get_as(&self, role: &str, path: &str) -> Answer {
        send(self.request_as(role, Method::GET, path)).await
    }

    pub async fn post_as(&self, role: &str, path: &str, body: Value) -> Answer {
        send(self.request_as(role, Method::POST, path).json(&body)).await
    }
}

fn write_secret(path: &Path, text: &str) {
    let directory = path.parent().unwrap();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

pub async fn send(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.unwrap()).await
}

/// One cluster's pull secret. Calls are the admin's.
pub struct Cluster<'a> {
    pub world: &'a World,
    pub id: String,
    /// The path of its pull secret.
    pub path: String,
}

impl Cluster<'_> {
    pub fn at(&self, tail: &str) -> String {
        format!("{}/{tail}", self.path)
    }

    pub async fn post(&self, body: Value) -> Answer {
        self.world.service.post(&self.path, body).await
    }

    /// A pull secret that is there.
    pub async fn made(&self) -> Answer {
        let made = self.post(json!({})).await;
        assert_eq!((made.status, &made.body["state"]), (200, &json!("active")), "{}", made.body);
        made
    }

    pub async fn get(&self) -> Answer {
        self.world.service.get(&self.path).await
    }

    /// The same with the accounts.
    pub async fn described(&self) -> Answer {
        self.world.service.get(&format!("{}?include_metadata=true", self.path)).await
    }

    pub async fn delete(&self) -> Answer {
        self.world.service.delete(&self.path).await
    }

    /// The entry that the cluster pulls with now.
    pub async fn auth(&self) -> String {
        self.get().await.auth(HOST)
    }

    pub async fn heartbeat(&self, auth: &str, consumer: &str) -> Answer {
        self.world.service.heartbeat(&self.id, auth, json!({"consumer": consumer})).await
    }

    pub async fn until_state(&self, state: &str) -> Answer {
        let path = format!("{}?include_metadata=true", self.path);
        self.world.service.until(&path, |answer| answer.body["state"] == state).await
    }

    /// Starts a rotation and answers its path.
    pub async fn rotate(&self, body: Value) -> String {
        let started = self.world.service.post(&self.at("rotations"), body).await;
        assert_eq!(started.status, 201, "{}", started.body);
        started.header("location").to_owned()
    }

    /// A rotation that waits for proof.
    pub async fn in_dual_period(&self) -> String {
        let rotation = self.rotate(json!({})).await;
        self.until_phase(&rotation, "dual_credential_period").await;
        rotation
    }

    /// A whole rotation, with proof.
    pub async fn rotated(&self) -> String {
        let rotation = self.in_dual_period().await;
        assert_eq!(self.heartbeat(&self.auth().await, "default").await.status, 200);
        self.until_phase(&rotation, "completed").await;
        rotation
    }

    pub async fn until_phase(&self, rotation: &str, phase: &str) -> Answer {
        let there = |answer: &Answer| answer.body["progress"]["phase"] == phase;
        self.world.service.until(rotation, there).await
    }

    pub async fn confirm(&self, generation: u32, consumer: &str) -> Answer {
        let body = json!({"generation": generation, "consumer": consumer});
        self.world.service.post(&self.at("confirm"), body).await
    }
}
