//! The real program, in a directory of its own, on free ports.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

const FAILPOINTS: &str = "HYPERFLEET_FAILPOINTS";

/// How a test wants the program configured: environment variables on top of `--dev`.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    env: Vec<(String, String)>,
    shell: Option<String>,
}

impl Setup {
    /// Periods that a test can wait for.
    pub fn quick() -> Self {
        Self::default()
            .env("HYPERFLEET_ROTATION_MIN_OVERLAP", "0s")
            .env("HYPERFLEET_ROTATION_QUIET", "0s")
            .env("HYPERFLEET_RETRY_INITIAL", "100ms")
            .env("HYPERFLEET_RETRY_MAX", "1s")
            .env("HYPERFLEET_SCHEDULER_TICK", "100ms")
            .env("HYPERFLEET_LOG_LEVEL", "debug")
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What a shell does before it becomes the program.
    pub fn after(mut self, commands: &str) -> Self {
        self.shell = Some(commands.to_owned());
        self
    }

    /// The local registry is this one.
    pub fn registry(self, registry: &super::docker_registry::DockerRegistry) -> Self {
        self.env("HYPERFLEET_REGISTRIES_LOCAL_HOST", &registry.host)
            .env("HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL", &registry.url())
            .env("HYPERFLEET_REGISTRIES_LOCAL_FILE", &registry.htpasswd.to_string_lossy())
    }
}

/// A running program; dropping it kills it.
pub struct Service {
    child: Child,
    directory: PathBuf,
    setup: Setup,
    /// `http://127.0.0.1:<port>`
    pub api: String,
    /// `http://127.0.0.1:<port>`
    pub metrics: String,
    /// The admin's.
    pub token: String,
    client: Client,
    starts: u32,
}

impl Service {
    /// Starts the program in this directory and waits until it is ready.
    pub async fn start(directory: &Path, setup: Setup) -> Self {
        let mut service = Self::spawned(directory, setup);
        service.comes_up().await;
        service
    }

    /// Starts the program and does not wait for anything.
    pub fn spawned(directory: &Path, setup: Setup) -> Self {
        // A second test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(70)).build().unwrap();
        Self {
            child: spawn(directory, &setup, 1),
            directory: directory.to_owned(),
            setup,
            api: String::new(),
            metrics: String::new(),
            token: String::new(),
            client,
            starts: 1,
        }
    }

    /// kill -9: nothing is flushed, nothing is said.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: it ends what it began.
    pub fn terminate(&self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// SIGTERM, and its orderly end.
    pub fn stop(&mut self) {
        self.terminate();
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }

    /// Starts it again over the same data, on other ports.
    pub async fn restart(&mut self) {
        self.start_again();
        self.comes_up().await;
    }

    /// Starts it again and does not wait for anything.
    pub fn start_again(&mut self) {
        self.starts += 1;
        self.child = spawn(&self.directory, &self.setup, self.starts);
    }

    /// Starts it again with these failure points and does not wait for anything.
    pub fn start_armed(&mut self, failpoints: &str) {
        self.setup.env.retain(|(name, _)| name != FAILPOINTS);
        if !failpoints.is_empty() {
            self.setup.env.push((FAILPOINTS.to_owned(), failpoints.to_owned()));
        }
        self.start_again();
    }

    /// Starts it again with these failure points; false when it died before it was ready.
    pub async fn restart_armed(&mut self, failpoints: &str) -> bool {
        self.start_armed(failpoints);
        self.is_ready().await
    }

    /// A second process over the same data, in place of a running one that stays.
    pub fn second(&self) -> tokio::process::Child {
        let command = command(&self.directory, &self.setup);
        let mut command = tokio::process::Command::from(command);
        let null = Stdio::null;
        command.stdin(null()).stdout(null()).stderr(null()).kill_on_drop(true).spawn().unwrap()
    }

    /// Waits until what was started is ready.
    pub async fn restart_ready(&mut self) {
        self.comes_up().await;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, named as `kill` names it.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// How it has ended, when it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(240);
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it has logged this message.
    pub async fn logged(&self, message: &str) {
        self.logged_times(message, 1).await;
    }

    /// The same for so many times.
    pub async fn logged_times(&self, message: &str, times: usize) {
        let deadline = Instant::now() + Duration::from_secs(240);
        let text = format!("\"message\":\"{message}\"");
        while self.log().matches(&text).count() < times {
            assert!(Instant::now() < deadline, "not logged: {message}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(log_file(&self.directory, self.starts)).unwrap_or_default()
    }

    /// Everything that any start of it has logged.
    pub fn whole_log(&self) -> String {
        (1..=self.starts)
            .map(|start| fs::read_to_string(log_file(&self.directory, start)).unwrap_or_default())
            .collect()
    }

    async fn comes_up(&mut self) {
        assert!(self.is_ready().await, "the service did not come up:\n{}", self.log());
    }

    /// Waits until it is ready; false when it ended instead.
    async fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) || Instant::now() >= deadline {
                return false;
            }
            if let (Some(api), Some(metrics)) = (self.listener("api"), self.listener("metrics")) {
                self.api = format!("http://{api}");
                self.metrics = format!("http://{metrics}");
                let ready = self.client.get(format!("{}/readyz", self.api)).send().await;
                if ready.is_ok_and(|response| response.status() == 200) {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let token = fs::read_to_string(self.directory.join("data/admin.token")).unwrap();
        self.token = token.trim().to_owned();
        true
    }

    fn listener(&self, name: &str) -> Option<String> {
        let log = self.log();
        // In a text log the fields stand behind the message.
        let text = " listening address=";
        let in_text = log.lines().filter(|line| line.ends_with(&format!(" listener={name}")));
        let in_text = in_text.filter_map(|line| line.split_once(text)?.1.split(' ').next());
        log.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|entry| entry["message"] == "listening" && entry["listener"] == name)
            .and_then(|entry| entry["address"].as_str().map(str::to_owned))
            .or_else(|| in_text.map(str::to_owned).next())
    }

    /// A request by the admin.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// A request by nobody.
    pub fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.api))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body).send().await.unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path).send().await.unwrap()).await
    }

    /// The page of the second listener.
    pub async fn metrics_page(&self) -> String {
        let page = self.client.get(format!("{}/metrics", self.metrics)).send().await.unwrap();
        assert_eq!(page.status(), 200);
        page.text().await.unwrap()
    }

    /// Presents the credential of a document, as the cluster's telemetry does.
    pub async fn heartbeat(&self, cluster: &str, auth: &str, body: Value) -> Answer {
        let path = format!("/v1/clusters/{cluster}/pull-secrets/heartbeats");
        let request = self
            .anonymous(Method::POST, &path)
            .header("Authorization", format!("Basic {auth}"))
            .json(&body);
        Answer::of(request.send().await.unwrap()).await
    }

    /// Asks until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(240);
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(
                Instant::now() < deadline,
                "not as wanted: {} {}\n{}",
                answer.status,
                answer.body,
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_file(directory: &Path, start: u32) -> PathBuf {
    directory.join(format!("service-{start}.log"))
}

fn spawn(directory: &Path, setup: &Setup, start: u32) -> Child {
    let log = File::create(log_file(directory, start)).unwrap();
    let mut command = command(directory, setup);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn command(directory: &Path, setup: &Setup) -> Command {
    let program = env!("CARGO_BIN_EXE_hyperfleet-credentials");
    let mut command = match &setup.shell {
        None => Command::new(program),
        Some(first) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\""), program]);
            shell
        }
    };
    command
        .args(["serve", "--dev"])
        .current_dir(directory)
        .env_clear()
        .env("HYPERFLEET_SERVER_PORT", "0")
        .env("HYPERFLEET_METRICS_PORT", "0")
        .envs(setup.env.iter().map(|(name, value)| (name, value)));
    command
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    /// As it came.
    pub text: String,
    pub body: Value,
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
        Self { status, headers, text, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The `auth` value of the document's entry for a host.
    pub fn auth(&self, host: &str) -> String {
        self.body["pull_secret"]["auths"][host]["auth"].as_str().unwrap_or_default().to_owned()
    }

    pub fn problem(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }
}
