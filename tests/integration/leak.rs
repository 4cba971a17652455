//! No secret leaves the service but in the answer that is meant to hold it.
//!
//! Drives every route and as many faults as can be reached from outside, with secrets that are known, at the
//! loudest log level. Then looks for each of them, in every form, in everything that the process wrote. What
//! is not reached: a panic in a handler, because there is none to be had from outside.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyperfleet_credentials::http::routes::{ROUTES, Route};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::needles::Needles;
use crate::support::service::{Answer, Service, Setup};
use crate::support::talkative::{Mood, Talkative};

const HOST: &str = "localhost:5000";
/// What a client puts where it does not belong.
const STRAY: &str = "Stray-7Kq2mZx9Wb4Tn8Rv3Lc6Yd1Hs5Jf0Pg-Aa3";
const WRONG_TOKEN: &str = "Wrong-Token-4Jx8Rk2Vn6Qb0Zt5Mw9Lp3Sd7Fg1Hc";
const WRONG_SECRET: &str = "Wrong-Secret-9Tz3Lq7Bv1Xk5Nd8Rm2Ws6Yp4Jg0Fh";
const VIEWER_TOKEN: &str = "Viewer-Token-2Hn6Vb0Kx4Ql8Zr1Tm5Wd9Sj3Pf7Gy";
const FOREIGN_HASH: &str = "$2y$05$Foreign0Hash1That2Nobody3May4See5Again6Ab7Cd8Ef";
const UNKNOWN_ROTATION: &str = "rot-0196f3a0-7c1e-7d2a-9b3c-2f4a5b6c7d8e";

/// A running story: the service, what must not be found, and what was found already.
struct Story {
    service: Service,
    needles: Needles,
    directory: PathBuf,
    leaks: Vec<String>,
}

impl Story {
    async fn start(directory: &Path, format: &str, registry: &Talkative) -> Self {
        let clusters = directory.join("clusters.yaml");
        let entry = json!({
            "server": "https://127.0.0.1:1", "ca_file": directory.join("ca.pem"),
            "bundle_only": true,
        });
        let ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(directory.join("ca.pem"), ca).unwrap();
        fs::write(&clusters, json!({"*": entry}).to_string()).unwrap();
        let setup = Setup::quick()
            .env("HYPERFLEET_BREAK_GLASS_CLUSTERS_FILE", clusters.to_str().unwrap())
            .env("HYPERFLEET_LOG_FORMAT", format)
            // In the middle of a call that holds a secret, with all that a panic writes about it.
            .env("HYPERFLEET_FAILPOINTS", "after_call:create=panic@2,before_call:verify=panic@2")
            .env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", &registry.url);
        let service = Service::start(directory, setup).await;
        let mut needles = Needles::default();
        for (name, secret) in [
            ("stray", STRAY),
            ("stray, small", &STRAY.to_lowercase()),
            ("wrong token", WRONG_TOKEN),
            ("wrong secret", WRONG_SECRET),
            ("viewer token", VIEWER_TOKEN),
            ("foreign hash", FOREIGN_HASH),
            ("admin token", &service.token),
        ] {
            needles.add(name, secret.as_bytes());
        }
        for file in fs::read_dir(directory.join("data/keys")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|end| end == "key") {
                let text = fs::read_to_string(&path).unwrap();
                needles.add("key", text.trim().as_bytes());
                needles.add("key", &STANDARD.decode(text.trim()).unwrap());
            }
        }
        Self { service, needles, directory: directory.to_owned(), leaks: Vec::new() }
    }

    fn look(&mut self, place: &str, bytes: &[u8]) {
        self.leaks.extend(self.needles.found_in(place, bytes));
    }

    /// Sends a request and looks at everything of the answer but the document that is meant to be secret.
    async fn send(&mut self, request: RequestBuilder) -> Answer {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let place = format!("{} {}", request.method(), request.url().path());
        let answer = Answer::of(client.execute(request).await.unwrap()).await;
        let mut body = answer.body.clone();
        if let Some(object) = body.as_object_mut().filter(|_| answer.status == 200) {
            object.remove("pull_secret");
            object.remove("kubeconfig");
        }
        let text = format!("{} {:?} {body}", answer.status, answer.headers);
        self.look(&format!("answer of {place}"), text.as_bytes());
        answer
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.send(self.service.request(Method::GET, path)).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send(self.service.request(Method::POST, path).json(&body)).await
    }

    async fn heartbeat(&mut self, cluster: &str, authorization: &str) -> Answer {
        let path = format!("{}/heartbeats", secrets(cluster));
        let request = self.service.anonymous(Method::POST, &path);
        self.send(request.header("Authorization", authorization)).await
    }

    /// Fetches the document and remembers what is in it.
    async fn fetch(&mut self, cluster: &str) -> String {
        let auth = self.get(&secrets(cluster)).await.auth(HOST);
        let pair = String::from_utf8(STANDARD.decode(&auth).unwrap()).unwrap();
        let (_, secret) = pair.split_once(':').unwrap();
        self.needles.add("account secret", secret.as_bytes());
        // The search finds what is there.
        assert!(!self.needles.found_in("control", auth.as_bytes()).is_empty());
        auth
    }

    async fn rotate(&mut self, cluster: &str) -> String {
        let path = format!("{}/rotations", secrets(cluster));
        let started = self.post(&path, json!({})).await;
        assert_eq!(started.status, 201, "{}", started.body);
        started.header("location").to_owned()
    }

    async fn in_phase(&self, rotation: &str, phase: &str) {
        self.service.until(rotation, |answer| answer.body["progress"]["phase"] == phase).await;
    }

    fn search_everything(&mut self) {
        let log = self.service.whole_log();
        assert!(
            log.contains("a failure point says so"),
            "a panic has to be among what is searched"
        );
        self.look("log", log.as_bytes());
        for name in ["cmdline", "environ"] {
            let bytes =
                fs::read(format!("/proc/{}/{name}", self.service.pid())).unwrap_or_default();
            self.look(name, &bytes);
        }
        let mut files = Vec::new();
        files_in(&self.directory.join("data"), &mut files);
        assert!(files.iter().any(|file| file.ends_with("credentials.db-wal")), "{files:?}");
        for file in files {
            let place = file.display().to_string();
            let allowed: &[&str] = match file.extension().and_then(|end| end.to_str()) {
                Some("key") => &["key"],
                Some("token") => &["admin token"],
                // Somebody else's line stands there for a while; of ours there are only hashes.
                Some("htpasswd") => &["foreign hash"],
                _ => &[],
            };
            let bytes = fs::read(&file).unwrap_or_default();
            self.leaks.extend(self.needles.without(allowed).found_in(&place, &bytes));
        }
    }
}

fn secrets(cluster: &str) -> String {
    format!("/v1/clusters/{cluster}/pull-secrets")
}

fn files_in(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_in(&path, into) } else { into.push(path) }
    }
}

/// The places of a request at which a secret can stand by mistake.
fn astray(request: impl Fn() -> RequestBuilder, keeps_reason: bool) -> Vec<RequestBuilder> {
    let parameters = [
        "token",
        "cursor",
        "status",
        "limit",
        "state",
        "kind",
        "registry",
        "since",
        "overdue",
        "include_metadata",
    ];
    let headers = [
        "Cookie",
        "X-Api-Key",
        "If-None-Match",
        "Prefer",
        "Idempotency-Key",
        "Content-Type",
        "Accept",
        "Origin",
        "Content-Encoding",
        "Traceparent",
        "Baggage",
    ];
    let bodies = [
        json!({"unknown": STRAY}),
        json!({STRAY: true}),
        json!({"reason": STRAY, "force_immediate": STRAY}),
        json!({"reason": STRAY}),
        json!({"registries": STRAY}),
        json!({"registries": [STRAY]}),
        json!({"registries": [STRAY.to_lowercase()]}),
        json!({"cluster_id": STRAY}),
        json!({"by": STRAY}),
        json!({"generation": STRAY, "consumer": "a"}),
        json!({"generation": 1, "consumer": [STRAY]}),
        json!({"generation": 1, "consumer": format!("{STRAY}{STRAY}")}),
        json!({"generation": 1, "consumer": "a", "observed_at": STRAY}),
        json!([STRAY]),
        json!(STRAY),
    ];
    let queries = parameters.iter().map(|name| request().query(&[(name, STRAY)]));
    let headers = headers.iter().map(|name| request().header(*name, STRAY).body("{}"));
    // What is said as the reason of a break-glass credential is meant to be kept.
    let kept = |body: &&Value| keeps_reason && body.get("reason").is_some();
    let bodies = bodies.iter().filter(|body| !kept(body)).map(|body| request().json(body));
    let broken = [format!("{{\"token\": \"{STRAY}"), format!("token={STRAY}")];
    let broken = broken.into_iter().map(|body| request().body(body));
    queries.chain(headers).chain(bodies).chain(broken).collect()
}

fn path_of(route: &Route, cluster: &str) -> String {
    route
        .path
        .replace("{cluster_id}", cluster)
        .replace("{rotation_id}", UNKNOWN_ROTATION)
        .replace("{credential_id}", &"0".repeat(32))
        .replace("{revocation_id}", "0196f3a0-7c1e-7d2a-9b3c-2f4a5b6c7d8e")
}

/// Every route, with secrets wherever they do not belong.
async fn every_route(story: &mut Story) {
    for route in ROUTES.iter() {
        let method = Method::from_bytes(<&str>::from(route.method).as_bytes()).unwrap();
        let path = path_of(route, "cls-routes");
        let request = || {
            let request = story.service.request(method.clone(), &path);
            request.header("Prefer", "respond-async")
        };
        let keeps_reason = route.path.contains("break");
        for request in astray(request, keeps_reason) {
            story.send(request).await;
        }
        for authorization in authorizations() {
            let request = story.service.anonymous(method.clone(), &path);
            story.send(request.header("Authorization", authorization)).await;
        }
        let other = story.service.request(Method::PATCH, &path).body(STRAY);
        story.send(other).await;
        let as_viewer = story.service.anonymous(method, &path).bearer_auth(VIEWER_TOKEN);
        story.send(as_viewer.header("Prefer", "respond-async")).await;
    }
}

/// None of these lets anybody in.
fn authorizations() -> Vec<String> {
    let pair = STANDARD.encode(format!("user:{WRONG_SECRET}"));
    vec![
        format!("Bearer {WRONG_TOKEN}"),
        format!("bearer  {WRONG_TOKEN} {WRONG_TOKEN}"),
        format!("Bearer{WRONG_TOKEN}"),
        WRONG_TOKEN.to_owned(),
        format!("Digest {WRONG_TOKEN}"),
        format!("Basic {WRONG_TOKEN}"),
        format!("Basic {pair}"),
        format!("Basic {}", STANDARD.encode(WRONG_SECRET)),
        format!("Basic {}", STANDARD.encode(format!("{WRONG_SECRET}:"))),
    ]
}

/// A kubeconfig: its key is in the one answer that is meant to hold it.
async fn break_glass(story: &mut Story) {
    let path = "/api/clusters_mgmt/v1/clusters/cls-1/break_glass_credentials";
    let made = story.post(path, json!({"username": "ada"})).await;
    assert_eq!((made.status, &made.body["status"]), (201, &json!("issued")), "{}", made.body);
    let one = format!("{path}/{}", made.body["id"].as_str().unwrap());
    let kubeconfig = story.get(&one).await.body["kubeconfig"].as_str().unwrap().to_owned();
    let key = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("client-key-data: "));
    let key = String::from_utf8(STANDARD.decode(key.unwrap()).unwrap()).unwrap();
    for line in key.lines().filter(|line| !line.starts_with("-----")) {
        story.needles.add("private key", line.as_bytes());
    }
    assert!(!story.needles.found_in("control", kubeconfig.as_bytes()).is_empty());
    for path in [path, &format!("{one}/status"), "/v1/clusters/cls-1/break-glass/trust-bundle"] {
        assert_eq!(story.get(path).await.status, 200, "{path}");
    }
    let revoke = story.service.request(Method::DELETE, &one);
    assert_eq!(story.send(revoke).await.status, 204);
}

/// A second caller that sees no secrets.
async fn viewer(story: &Story) {
    let file = story.directory.join("data/tokens");
    let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(VIEWER_TOKEN));
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str(&format!("viewer viewer sha256:{hash}\n"));
    fs::write(&file, text).unwrap();
}

/// A rotation at a registry that repeats credentials in every kind of answer.
async fn a_talkative_registry(story: &mut Story, registry: &mut Talkative) {
    let rotation = story.rotate("cls-1").await;
    for mood in [Mood::Broken, Mood::Elsewhere, Mood::Busy, Mood::Bearer, Mood::Garbage] {
        registry.answers(mood).await;
        for path in [rotation.as_str(), "/v1/attention", "/readyz"] {
            story.get(path).await;
        }
    }
    registry.be_well();
    story.in_phase(&rotation, "dual_credential_period").await;
    let auth = story.fetch("cls-1").await;
    story.heartbeat("cls-1", &format!("Basic {auth}")).await;
    story.in_phase(&rotation, "completed").await;
}

/// A rotation that meets a line of somebody else which makes the whole file unusable, and a death.
async fn a_broken_file_and_a_death(story: &mut Story) {
    let file = story.directory.join("data/registry.htpasswd");
    let rotation = story.rotate("cls-2").await;
    story.in_phase(&rotation, "dual_credential_period").await;
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}{FOREIGN_HASH}\n")).unwrap();
    story.post(&format!("{rotation}/complete"), json!({})).await;
    story
        .service
        .until("/v1/attention?kind=stuck", |answer| answer.body["items"][0].is_object())
        .await;
    for path in ["/v1/attention", "/v1/pull-secrets", &secrets("cls-2"), &rotation] {
        story.get(path).await;
    }
    let dry_run = format!("{}/rotations", secrets("cls-1"));
    story.post(&dry_run, json!({"dry_run": true})).await;
    story.service.kill();
    story.search_everything();
    story.service.restart().await;
    fs::write(&file, good).unwrap();
    story.in_phase(&rotation, "completed").await;
    story.fetch("cls-2").await;
}

async fn a_whole_life(format: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut registry = Talkative::start().await;
    let mut story = Story::start(directory.path(), format, &registry).await;
    viewer(&story).await;
    for cluster in ["cls-1", "cls-2"] {
        let made = story.post(&secrets(cluster), json!({})).await;
        assert_eq!(made.status, 200, "{}", made.body);
        story.fetch(cluster).await;
    }
    let first = story.fetch("cls-1").await;
    for authorization in authorizations() {
        assert_eq!(story.heartbeat("cls-1", &authorization).await.status, 401);
    }
    let pair = String::from_utf8(STANDARD.decode(&first).unwrap()).unwrap();
    let user = pair.split_once(':').unwrap().0;
    let wrong = STANDARD.encode(format!("{user}:{WRONG_SECRET}"));
    assert_eq!(story.heartbeat("cls-1", &format!("Basic {wrong}")).await.status, 401);

    a_talkative_registry(&mut story, &mut registry).await;
    a_broken_file_and_a_death(&mut story).await;
    // The first one is revoked by now.
    assert_eq!(story.heartbeat("cls-1", &format!("Basic {first}")).await.status, 401);
    break_glass(&mut story).await;
    every_route(&mut story).await;
    let page = story.service.metrics_page().await;
    story.look("metrics", page.as_bytes());
    let revoked = story.service.request(Method::DELETE, &secrets("cls-1"));
    assert_eq!(story.send(revoked).await.status, 204);
    story.search_everything();
    story.service.kill();
    story.search_everything();
    let mut leaks = std::mem::take(&mut story.leaks);
    leaks.sort();
    leaks.dedup();
    assert!(leaks.is_empty(), "secrets were found:\n{}", leaks.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks_with_a_json_log() {
    a_whole_life("json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks_with_a_text_log() {
    a_whole_life("text").await;
}
