//! The service's own TLS, over HTTP/2 and HTTP/1.1: the same answers as without, those of refusals included.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use reqwest::{Certificate, Client, Version};
use serde_json::{Value, json};

use crate::support::service::{Answer, Service, Setup};

const A: &str = "/api/clusters_mgmt/v1/clusters/cls-1/break_glass_credentials";
const SECRETS: &str = "/v1/clusters/cls-1/pull-secrets";

struct Encrypted {
    service: Service,
    url: String,
    ca: Certificate,
    token: String,
    directory: tempfile::TempDir,
}

async fn start() -> Encrypted {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pem = certificate.pem();
    let (cert_file, key_file) = (write("tls.crt", &pem), write("tls.key", &key.serialize_pem()));
    let entry = json!({"cls-1": {
        "server": "https://api.example.com:6443", "ca_file": cert_file, "bundle_only": true,
    }});
    let setup = Setup::quick()
        .env("HYPERFLEET_SERVER_TLS_CERT_FILE", &cert_file)
        .env("HYPERFLEET_SERVER_TLS_KEY_FILE", &key_file)
        .env("HYPERFLEET_BREAK_GLASS_CLUSTERS_FILE", &write("clusters.yaml", &entry.to_string()));
    let service = Service::spawned(directory.path(), setup);
    service.logged("ready").await;
    let log = service.log();
    let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let listening = entries.find(|entry| entry["listener"] == "api").unwrap();
    let address = listening["address"].as_str().unwrap();
    let port = address.rsplit(':').next().unwrap();
    let token = fs::read_to_string(directory.path().join("data/admin.token")).unwrap();
    Encrypted {
        service,
        url: format!("https://localhost:{port}"),
        ca: Certificate::from_pem(pem.as_bytes()).unwrap(),
        token: token.trim().to_owned(),
        directory,
    }
}

impl Encrypted {
    fn client(&self, version: Version) -> Client {
        let client = Client::builder().no_proxy().tls_certs_only([self.ca.clone()]);
        let client = if version == Version::HTTP_2 { client } else { client.http1_only() };
        client.build().unwrap()
    }

    async fn post(&self, client: &Client, path: &str, body: Vec<u8>) -> (Version, Answer) {
        let request = client.post(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let request = request.header("content-type", "application/json").body(body);
        let answer = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{path}: {error:?}\n{}", self.service.log()));
        (answer.version(), Answer::of(answer).await)
    }
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let encrypted = start().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let client = encrypted.client(version);
        let (spoken, made) = encrypted.post(&client, SECRETS, b"{}".to_vec()).await;
        assert_eq!((spoken, made.status), (version, 200), "{}", made.text);
        let (_, asked) = encrypted.post(&client, A, b"{}".to_vec()).await;
        assert_eq!(asked.status, 201, "{}", asked.text);
        assert_eq!(asked.header("content-type"), "application/json");
    }
}

/// curl takes an answer that comes before it has sent everything for none at all.
#[tokio::test]
async fn a_refusal_is_heard_by_whoever_still_sends() {
    let encrypted = start().await;
    let directory = encrypted.directory.path();
    fs::write(directory.join("large"), vec![b' '; 500_000]).unwrap();
    // Several times, since it is a race.
    for _ in 0..6 {
        for (path, status) in [(A, "413"), (&format!("{A}/x/y"), "404"), (&format!("{A}/x"), "405")]
        {
            let mut curl = tokio::process::Command::new("curl");
            curl.current_dir(directory)
                .args(["--silent", "--http2", "--cacert", "tls.crt", "--data-binary", "@large"])
                .args(["--header", "Content-Type: application/json"])
                .args(["--header", &format!("Authorization: Bearer {}", encrypted.token)])
                .args(["--write-out", "\n%{http_version} %{http_code} %{content_type}"])
                .arg(format!("{}{path}", encrypted.url));
            let told = String::from_utf8(curl.output().await.unwrap().stdout).unwrap();
            let (body, head) = told.rsplit_once('\n').unwrap();
            assert_eq!(head, format!("2 {status} application/json"), "{path}: {body}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!((&body["kind"], &body["id"]), (&json!("Error"), &json!(status)));
        }
    }
}
