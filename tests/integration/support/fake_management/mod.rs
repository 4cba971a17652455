//! A fake management cluster: the API server's four resources and HyperShift's control-plane-pki-operator.
//!
//! The operator's stalls are part of it: requests that it never answers, certificates that begin in the year 1 and
//! end five minutes early, finished requests that are collected, conditions without a status, revocations that
//! time out. Requests fail as told (`fault`), and the log says what was applied, whoever heard of it.
//!
//! ```text
//! let cluster = fake_management::start();
//! cluster.sign(Signing::Silent);              // the operator cannot read it and says nothing
//! cluster.fault(Verb::Create, Fault::LoseAfter);
//! cluster.collect();                          // an hour has passed
//! assert_eq!(cluster.applied(Kind::Requests), 1);
//! ```

mod api;
mod operator;

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use hyperfleet_credentials::signers::kubernetes_csr::{KubernetesCsr, Names};
use secrecy::SecretString;
use serde_json::Value;

use self::api::World;
pub use self::api::{Entry, Kind, Verb};
pub use self::operator::Signing;
use super::fake_quay::wire::{HttpRequest, Reply};

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not applied, and this is the answer.
    Instead(u16),
    /// The same with `retryAfterSeconds`.
    Later(u16, u32),
    /// It is applied, and nobody hears of it.
    LoseAfter,
    /// It is not applied, and nobody hears of it.
    LoseBefore,
}

struct Shared {
    world: Mutex<World>,
    token: String,
    stopping: AtomicBool,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

/// A running fake.
pub struct FakeManagement {
    /// `http://127.0.0.1:<port>`
    pub url: String,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A healthy one, with one control plane in this namespace.
pub fn start(namespace: &str) -> FakeManagement {
    let shared = Arc::new(Shared {
        world: Mutex::new(World::new(namespace)),
        token: "management-token".to_owned(),
        stopping: AtomicBool::new(false),
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &shared))
    };
    FakeManagement { url: format!("http://{address}"), address, shared, accepting: Some(accepting) }
}

impl FakeManagement {
    /// A signer that logs in with a good token.
    pub fn signer(&self) -> KubernetesCsr {
        self.signer_with(&self.shared.token)
    }

    /// A signer that logs in with this token.
    pub fn signer_with(&self, token: &str) -> KubernetesCsr {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(self.url.parse().unwrap());
        config.auth_info.token = Some(SecretString::from(token.to_owned()));
        config.default_retry = false;
        KubernetesCsr::new(kube::Client::try_from(config).unwrap(), Names::default())
    }

    /// A kubeconfig that names it, with a good token.
    pub fn kubeconfig(&self) -> String {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "management",
            "clusters": [{"name": "management", "cluster": {"server": self.url}}],
            "users": [{"name": "service", "user": {"token": self.shared.token}}],
            "contexts": [{
                "name": "management", "context": {"cluster": "management", "user": "service"},
            }],
        })
        .to_string()
    }

    /// What the operator makes of the requests that are approved from now on.
    pub fn sign(&self, signing: Signing) {
        self.shared.world().operator.signing = signing;
    }

    /// The operator looks at what is approved and not signed yet once more.
    pub fn reconcile(&self) {
        self.shared.world().reconcile_all();
    }

    /// The next request with this verb meets this.
    pub fn fault(&self, verb: Verb, fault: Fault) {
        self.shared.world().faults.push_back((verb, fault));
    }

    /// An hour has passed: finished requests are gone.
    pub fn collect(&self) {
        self.shared.world().collect();
    }

    /// Somebody says no to everything that is not signed yet.
    pub fn deny(&self) {
        self.shared.world().deny();
    }

    /// The operator is one that does not know the class of these credentials.
    pub fn forget_class(&self) {
        self.shared.world().operator.knows_class = false;
    }

    /// The operator does the next step of every revocation.
    pub fn step(&self) {
        self.shared.world().step();
    }

    /// Ten minutes have passed and the old authority is still accepted somewhere.
    pub fn time_out(&self) {
        self.shared.world().time_out();
    }

    /// Every object of this kind is removed by somebody.
    pub fn remove_all(&self, kind: Kind) {
        self.shared.world().remove_all(kind);
    }

    /// Puts an object there, as somebody else would.
    pub fn plant(&self, kind: Kind, name: &str, object: Value) {
        self.shared.world().plant(kind, name, object);
    }

    /// The object, as it is.
    pub fn object(&self, kind: Kind, name: &str) -> Option<Value> {
        self.shared.world().object(kind, name)
    }

    /// The names of the requests that have a certificate.
    pub fn signed(&self) -> Vec<String> {
        self.shared.world().signed()
    }

    /// Every request so far.
    pub fn log(&self) -> Vec<Entry> {
        self.shared.world().log.clone()
    }

    /// How many objects of this kind were ever made by requests.
    pub fn applied(&self, kind: Kind) -> usize {
        let made = |entry: &&Entry| entry.verb == Verb::Create && entry.applied;
        self.log().iter().filter(made).filter(|entry| entry.kind == Some(kind)).count()
    }

    /// The authorities (PEM) that API servers of the control plane would trust.
    pub fn authorities(&self) -> String {
        self.shared.world().operator.authorities()
    }

    /// The routine refresh: a new authority signs, the old one stays trusted.
    pub fn refresh_authority(&self) {
        self.shared.world().operator.refresh();
    }
}

impl Drop for FakeManagement {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A client that went away is no matter of the fake's.
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(request) = HttpRequest::read(&mut reader)? {
        let known = request.authorization("Bearer") == Some(shared.token.as_str());
        let reply: Option<Reply> = shared.world().handle(&request, known);
        let Some(reply) = reply else { break };
        writer.write_all(&reply.bytes("Mon, 30 Nov 2026 20:01:34 GMT"))?;
    }
    Ok(())
}
