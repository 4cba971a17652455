//! No pull ever fails: rotations one after the other, while the service is killed again and again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use reqwest::Method;
use serde_json::json;

use crate::support::docker_registry::{self, DockerRegistry};
use crate::support::image;
use crate::support::seed::{random, seed};
use crate::support::service::{Answer, Service, Setup};

const PATH: &str = "/v1/clusters/cls-pulls/pull-secrets";
const ROTATIONS: u32 = 5;

/// Pulls with whatever document stands in a file, until told to stop.
struct Puller {
    stop: Arc<AtomicBool>,
    pulls: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Puller {
    fn start(directory: &Path, image: String) -> Self {
        let (stop, pulls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (directory, stopped, counter) = (directory.to_owned(), stop.clone(), pulls.clone());
        let thread = std::thread::spawn(move || {
            let mut failures = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                if let Err(failure) = image::pull(&directory.join("auth.json"), &image, &directory)
                {
                    failures.push(failure);
                }
                counter.fetch_add(1, Ordering::SeqCst);
            }
            failures
        });
        Self { stop, pulls, thread: Some(thread) }
    }

    fn finish(&mut self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// The cluster: fetches like an adapter, presents what it holds like telemetry. Survives the service's absence.
struct Cluster<'a> {
    service: &'a tokio::sync::Mutex<Service>,
    directory: PathBuf,
    host: String,
    pulls: Option<Arc<AtomicU32>>,
}

impl Cluster<'_> {
    async fn request(&self, method: Method, path: &str) -> Option<Answer> {
        let request = self.service.lock().await.request(method, path);
        Some(Answer::of(request.send().await.ok()?).await)
    }

    /// Writes the document atomically, as a kubelet's volume does.
    async fn fetch(&self) -> Option<()> {
        let answer = self.request(Method::GET, PATH).await.filter(|answer| answer.status == 200)?;
        let document = answer.body["pull_secret"].as_object()?;
        let bytes = serde_json::to_vec(document).unwrap();
        let file = self.directory.join("auth.json");
        if std::fs::read(&file).is_ok_and(|held| held == bytes) {
            return Some(());
        }
        let new = self.directory.join("auth.new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, file).unwrap();
        // A pull that began with the old document ends before the cluster says that it uses the new one.
        self.pull_ended().await;
        Some(())
    }

    async fn pull_ended(&self) {
        let Some(pulls) = &self.pulls else { return };
        let before = pulls.load(Ordering::SeqCst);
        while pulls.load(Ordering::SeqCst) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn heartbeat(&self) -> Option<()> {
        let text = std::fs::read_to_string(self.directory.join("auth.json")).ok()?;
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let auth = document["auths"][&self.host]["auth"].as_str().unwrap().to_owned();
        let request = {
            let service = self.service.lock().await;
            service
                .anonymous(Method::POST, &format!("{PATH}/heartbeats"))
                .header("Authorization", format!("Basic {auth}"))
        };
        let answer = Answer::of(request.send().await.ok()?).await;
        // What the cluster holds is valid as long as it holds it.
        assert!(answer.status == 200 || answer.status >= 500, "{} {}", answer.status, answer.body);
        Some(())
    }

    async fn completed(&self) -> Option<u64> {
        let path = format!("{PATH}/rotations?status=completed&limit=1");
        self.request(Method::GET, &path).await?.body["pagination"]["total_count"].as_u64()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pull_fails_while_the_service_is_killed_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let registry = docker_registry::start(directory.path());
    let service = Service::start(directory.path(), Setup::quick().registry(&registry)).await;
    let created = service.post(PATH, json!({})).await;
    assert_eq!(created.status, 200, "{}", created.body);

    let service = tokio::sync::Mutex::new(service);
    let mut cluster = Cluster {
        service: &service,
        directory: directory.path().to_owned(),
        host: registry.host.clone(),
        pulls: None,
    };
    cluster.fetch().await.unwrap();
    let image = format!("{}/team/app:v1", registry.host);
    image::push(&directory.path().join("auth.json"), &image, directory.path());
    let mut puller = Puller::start(directory.path(), image);
    cluster.pulls = Some(puller.pulls.clone());

    let mut random = random(seed(), 0);
    let mut kills = 0;
    let mut next_kill = Instant::now() + Duration::from_millis(random.random_range(1000..2000));
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        assert!(Instant::now() < deadline, "{}", service.lock().await.whole_log());
        let _ = cluster.fetch().await;
        let _ = cluster.heartbeat().await;
        if cluster.completed().await.is_some_and(|done| done >= u64::from(ROTATIONS)) && kills >= 5
        {
            break;
        }
        // 409 while one is running.
        let _ = cluster.request(Method::POST, &format!("{PATH}/rotations")).await;
        if Instant::now() >= next_kill {
            let mut service = service.lock().await;
            service.kill();
            service.restart().await;
            kills += 1;
            next_kill = Instant::now() + Duration::from_millis(random.random_range(1000..2000));
        }
    }
    settle(&cluster, &registry).await;
    let failures = puller.finish();
    let pulls = puller.pulls.load(Ordering::SeqCst);
    println!("{pulls} pulls, {kills} kills");
    assert!(pulls > 10, "only {pulls} pulls");
    assert_eq!(failures, Vec::<String>::new(), "{}", service.lock().await.whole_log());
}

/// Whatever the last kill left over is finished; one account is left.
async fn settle(cluster: &Cluster<'_>, registry: &DockerRegistry) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        cluster.fetch().await.unwrap();
        cluster.heartbeat().await.unwrap();
        let answer = cluster.request(Method::GET, PATH).await.unwrap();
        let lines = std::fs::read_to_string(&registry.htpasswd).unwrap();
        let accounts = lines.lines().filter(|line| line.starts_with("hyp-")).count();
        if answer.body["rotation"].is_null() && accounts == 1 {
            return;
        }
        let log = cluster.service.lock().await.log();
        assert!(Instant::now() < deadline, "{accounts} accounts: {}\n{log}", answer.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn skopeo_is_there() {
    let found = Command::new("skopeo").arg("--version").output();
    assert!(found.is_ok(), "these tests pull with skopeo: apt-get install -y skopeo");
}
