//! One service, the API servers of its clusters, an adapter by hand, and whoever gets a kubeconfig.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::world::{World, send};
use crate::support::fake_apiserver::{self, FakeApiserver};
use crate::support::service::{Answer, Service, Setup};

/// `clusters_mgmt/v1`.
pub const A: &str = "/api/clusters_mgmt/v1/clusters/cls-1/break_glass_credentials";
/// `aro_hcp/v1alpha1`.
pub const B: &str = "/api/aro_hcp/v1alpha1/clusters/cls-1/break_glass_credentials";
/// What operators and adapters have besides.
pub const V1: &str = "/v1/clusters/cls-1/break-glass";
pub const WHO: &str = "system:customer-break-glass:";

/// A service with the embedded signer, and the API servers of the cluster `cls-1`.
pub struct Scene {
    pub world: World,
    pub servers: Vec<FakeApiserver>,
    setup: Setup,
}

/// Periods that a test can wait for.
pub fn quick() -> Setup {
    Setup::quick()
        .env("HYPERFLEET_BREAK_GLASS_PROBE_INTERVAL", "50ms")
        .env("HYPERFLEET_BREAK_GLASS_WAIT", "30s")
}

impl Scene {
    /// Two API servers that can be asked.
    pub async fn start() -> Self {
        Self::with(quick(), 2, json!({})).await
    }

    /// An API server that the service cannot ask: an adapter has to say what it runs with.
    pub async fn unseen() -> Self {
        Self::with(quick(), 1, json!({"endpoints": []})).await
    }

    /// So many API servers; `more` changes the cluster's entry.
    pub async fn with(setup: Setup, servers: usize, more: Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let servers: Vec<FakeApiserver> = (0..servers).map(|_| fake_apiserver::start()).collect();
        let ca: String = servers.iter().map(|server| server.ca.as_str()).collect();
        let ca_file = directory.path().join("ca.pem");
        fs::write(&ca_file, ca).unwrap();
        let mut entry = json!({
            "server": servers[0].url, "ca_file": ca_file, "bundle_only": true,
            "endpoints": servers.iter().map(|server| &server.url).collect::<Vec<_>>(),
        });
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let clusters_file = directory.path().join("clusters.yaml");
        // What is JSON is YAML.
        fs::write(&clusters_file, json!({"cls-1": entry}).to_string()).unwrap();
        let setup =
            setup.env("HYPERFLEET_BREAK_GLASS_CLUSTERS_FILE", clusters_file.to_str().unwrap());
        Self { world: World::start_in(directory, setup.clone()).await, servers, setup }
    }

    /// One replica more, on the same database.
    pub async fn another(&self) -> Service {
        let own = self.world.directory.path().join("another");
        fs::create_dir(&own).unwrap();
        // Keys, tokens and the installation are the same for all.
        std::os::unix::fs::symlink(self.world.directory.path().join("data"), own.join("data"))
            .unwrap();
        Service::start(&own, self.setup.clone()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.world.get_as("operator", path).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.world.post_as("operator", path, body).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.world.request_as("operator", Method::DELETE, path)).await
    }

    /// Asks the admin's view until it is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.world.service.until(path, |answer| wanted(&answer.body)).await.body
    }

    /// What an adapter does: fetches the bundle and gives it to every API server. The bundle's ETag.
    pub async fn apply_bundle(&self) -> String {
        let bundle = self.world.get_as("adapter", &format!("{V1}/trust-bundle")).await;
        assert_eq!(bundle.status, 200, "{}", bundle.text);
        self.servers.iter().for_each(|server| server.load_bundle(&bundle.text));
        bundle.header("etag").to_owned()
    }

    /// An adapter that does so again and again.
    pub async fn adapter(&self) -> ! {
        loop {
            self.apply_bundle().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Does something while the adapter is at work.
    pub async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.adapter() => never,
        }
    }

    /// What an adapter does where nobody can be asked.
    pub async fn confirm(&self, etag: &str) -> Answer {
        let body = json!({"etag": etag});
        self.world.post_as("adapter", &format!("{V1}/trust-bundle/confirm"), body).await
    }

    /// A credential that is on its way to be issued; its id.
    pub async fn asked(&self, body: Value) -> String {
        let asked = self.post(B, body).await;
        assert_eq!(asked.status, 202, "{}", asked.text);
        asked.body["id"].as_str().unwrap().to_owned()
    }

    /// A credential that works; its id and its kubeconfig.
    pub async fn issued(&self, username: &str) -> (String, String) {
        let id = self.asked(json!({"username": username})).await;
        let path = format!("{B}/{id}/status");
        self.meanwhile(self.until(&path, |status| status["state"]["value"] == "issued")).await;
        let kubeconfig = self.kubeconfig(&id).await.expect("it is issued");
        (id, kubeconfig)
    }

    /// What a single GET hands out.
    pub async fn kubeconfig(&self, id: &str) -> Option<String> {
        let one = self.get(&format!("{B}/{id}")).await;
        assert_eq!(one.status, 200, "{}", one.text);
        one.body["kubeconfig"].as_str().map(str::to_owned)
    }

    /// The state of one, as the newer surface spells it.
    pub async fn state(&self, id: &str) -> String {
        let status = self.get(&format!("{B}/{id}/status")).await;
        status.body["state"]["value"].as_str().unwrap().to_owned()
    }

    /// The latest revocation, as operators see it.
    pub async fn revocation(&self) -> Value {
        let all = self.get(&format!("{V1}/revocations")).await;
        assert_eq!(all.status, 200, "{}", all.text);
        all.body["revocations"][0].clone()
    }

    /// The latest revocation, when it has ended.
    pub async fn revoked(&self) -> Value {
        let id = self.revocation().await["revocation_id"].as_str().unwrap().to_owned();
        let path = format!("{V1}/revocations/{id}");
        self.until(&path, |revocation| !revocation["ended_at"].is_null()).await
    }

    /// Who did this, and why, as the audit tells it; oldest first.
    pub async fn audit(&self, action: &str) -> Vec<(String, Option<String>)> {
        let path = format!("/v1/audit-events?cluster_id=cls-1&action={action}&limit=100");
        let events = self.get(&path).await;
        assert_eq!(events.status, 200, "{}", events.text);
        let rows = events.body["audit_events"].as_array().unwrap().iter();
        let text = |row: &Value, key: &str| row[key].as_str().map(str::to_owned);
        let mut rows: Vec<_> =
            rows.map(|row| (text(row, "actor").unwrap(), text(row, "reason"))).collect();
        rows.reverse();
        rows
    }
}

/// What the API server said to whoever has this kubeconfig: name and groups, or its refusal.
pub async fn log_in(kubeconfig: &str) -> Result<(String, Vec<String>), u16> {
    let file = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let api: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => {
            let user = review.status.unwrap().user_info.unwrap();
            Ok((user.username.unwrap(), user.groups.unwrap()))
        }
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// The name under which it was taken.
pub async fn name_of(kubeconfig: &str) -> String {
    log_in(kubeconfig).await.expect("it is accepted").0
}
