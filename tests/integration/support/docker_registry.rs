//! A real registry (Debian package `docker-registry`) with an htpasswd file on a loopback port.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A running registry; dropping it ends the process.
pub struct DockerRegistry {
    child: Child,
    /// `127.0.0.1:<port>`
    pub host: String,
    /// The file that it reads.
    pub htpasswd: PathBuf,
}

impl DockerRegistry {
    /// `http://<host>`
    pub fn url(&self) -> String {
        format!("http://{}", self.host)
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a registry that keeps everything below `directory`. An htpasswd file that is there
/// already is used as it is.
///
/// # Panics
/// When the program is missing or does not come up: such a test fails, it is never skipped.
pub fn start(directory: &Path) -> DockerRegistry {
    let htpasswd = directory.join("htpasswd");
    if !htpasswd.exists() {
        // Else the registry makes one with a user of its own.
        File::create(&htpasswd).expect("the htpasswd file");
    }
    // Between finding a port free and taking it somebody else may take it.
    for _ in 0..5 {
        let mut registry = spawn(directory, &htpasswd);
        if registry.comes_up() {
            return registry;
        }
    }
    let log = std::fs::read_to_string(directory.join("registry.log")).unwrap_or_default();
    panic!("docker-registry did not come up:\n{log}");
}

fn spawn(directory: &Path, htpasswd: &Path) -> DockerRegistry {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let host = free.expect("a free port").to_string();
    let configuration = directory.join("registry.json");
    // JSON is YAML, too.
    let text = serde_json::json!({
        "version": 0.1,
        "log": { "level": "info" },
        "storage": { "filesystem": { "rootdirectory": directory.join("data") } },
        "http": { "addr": host, "secret": "test" },
        "auth": { "htpasswd": { "realm": "test", "path": htpasswd } },
    });
    std::fs::write(&configuration, text.to_string()).expect("the configuration");
    let log = File::create(directory.join("registry.log")).expect("the log");
    let child = Command::new("docker-registry")
        .arg("serve")
        .arg(&configuration)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "docker-registry cannot be started ({error}); these tests need it: \
                 apt-get install -y docker-registry"
            )
        });
    DockerRegistry { child, host, htpasswd: htpasswd.to_owned() }
}

impl DockerRegistry {
    #[expect(
        clippy::disallowed_methods,
        reason = "a port can only be polled, and nobody else waits"
    )]
    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if TcpStream::connect(&self.host).is_ok() {
                // The port answers, but is it ours? A second registry on it ends at once.
                return matches!(self.child.try_wait(), Ok(None));
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            sleep(Duration::from_millis(20));
        }
        false
    }
}
