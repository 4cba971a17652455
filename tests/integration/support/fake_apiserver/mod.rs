//! A fake kube-apiserver on a loopback port: real TLS, real client certificates, one resource.
//!
//! Like the real one it asks for a client certificate and does not demand it, tells clients which authorities it
//! knows, looks at the chain for each request with the client CA file that it has by then, and answers `401`
//! when the chain is unknown. It reads the file when it is told (`load_bundle`), and keeps its own log of the
//! truth. Dropping the handle ends it.
//!
//! ```text
//! let server = fake_apiserver::start();
//! server.load_bundle(&bundle);                 // as an adapter would
//! server.behave(Mode::Answers(503));           // everybody gets this
//! assert!(server.log().iter().all(|entry| entry.status != Some(201)));
//! ```

mod tls;

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};
use serde_json::json;

use self::tls::{Own, Trust, User};
use super::fake_quay::wire::{HttpRequest, Reply};

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As a healthy one.
    Normal,
    /// It goes on with every authority that it ever knew, whatever the file says now.
    StillAccepts,
    /// It closes every connection.
    Down,
    /// `401` for everybody.
    RefusesEverything,
    /// It answers nobody until the mode changes.
    Slow,
    /// This status for everybody.
    Answers(u16),
    /// It takes everybody for somebody else.
    Mistakes,
}

/// One request, as it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Numbered, from 0.
    pub connection: u64,
    /// Method and path.
    pub request: String,
    /// The name and the groups in the certificate; none without one.
    pub user: Option<User>,
    /// Whether the chain led to a known authority, whatever the answer was.
    pub trusted: bool,
    /// The answer; none while it is held back.
    pub status: Option<u16>,
}

struct World {
    mode: Mode,
    /// What the file says.
    file: Trust,
    /// What it ever said.
    ever: Trust,
    log: Vec<Entry>,
}

struct Shared {
    own: Own,
    world: Mutex<World>,
    changed: Condvar,
    stopping: AtomicBool,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

/// A running fake.
pub struct FakeApiserver {
    /// `https://127.0.0.1:<port>`
    pub url: String,
    /// The certificate (PEM) that its own leads to.
    pub ca: String,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A healthy one that knows no client authority yet.
pub fn start() -> FakeApiserver {
    let own = Own::new();
    let ca = own.ca.clone();
    let world = World {
        mode: Mode::Normal,
        file: Trust::default(),
        ever: Trust::default(),
        log: Vec::new(),
    };
    let shared = Arc::new(Shared {
        own,
        world: Mutex::new(world),
        changed: Condvar::new(),
        stopping: AtomicBool::new(false),
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &shared))
    };
    let url = format!("https://{address}");
    FakeApiserver { url, ca, address, shared, accepting: Some(accepting) }
}

impl FakeApiserver {
    /// It reads its client CA file, which now holds this.
    pub fn load_bundle(&self, pem: &str) {
        let mut world = self.shared.world();
        world.file = Trust::of(pem);
        world.ever.add(pem);
    }

    /// It behaves like this from now on.
    pub fn behave(&self, mode: Mode) {
        self.shared.world().mode = mode;
        self.shared.changed.notify_all();
    }

    /// Every request so far.
    pub fn log(&self) -> Vec<Entry> {
        self.shared.world().log.clone()
    }

    /// Waits until the log is so.
    pub async fn reached(&self, wanted: impl Fn(&[Entry]) -> bool + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let waiting = move || {
            let world = shared.world();
            drop(shared.changed.wait_while(world, |world| !wanted(&world.log)).unwrap());
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }
}

impl Drop for FakeApiserver {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.behave(Mode::Down);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (connection, stream) in (0..).zip(listener.incoming()) {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if shared.world().mode == Mode::Down {
            let _ = stream.shutdown(Shutdown::Both);
            continue;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A client that went away is no matter of the fake's.
            let _ = serve(stream, connection, &shared);
        });
    }
}

fn serve(stream: TcpStream, connection: u64, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let config = shared.own.config(&shared.world().file);
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(session, stream));
    while let Some(request) = HttpRequest::read(&mut stream)? {
        let chain = stream.get_ref().conn.peer_certificates().map(<[_]>::to_vec);
        let Some(reply) = shared.answer(connection, &request, chain.as_deref()) else { break };
        stream.get_mut().write_all(&reply.bytes("Mon, 30 Nov 2026 20:01:34 GMT"))?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

impl Shared {
    /// None: the connection is closed without an answer.
    fn answer(
        &self,
        connection: u64,
        request: &HttpRequest,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Option<Reply> {
        let mut world = self.world();
        let trust = if world.mode == Mode::StillAccepts { &world.ever } else { &world.file };
        let trusted = chain.is_some_and(|chain| trust.knows(chain));
        let user = chain.and_then(User::of);
        let path = format!("{} /{}", request.method, request.segments.join("/"));
        let at = world.log.len();
        world.log.push(Entry {
            connection,
            request: path,
            user: user.clone(),
            trusted,
            status: None,
        });
        self.changed.notify_all();
        while world.mode == Mode::Slow {
            world = self.changed.wait(world).unwrap();
        }
        let reply = match world.mode {
            Mode::Down => return None,
            Mode::RefusesEverything => status(401),
            Mode::Answers(code) => status(code).with("Location", "https://127.0.0.1:1/elsewhere"),
            Mode::Mistakes => review("system:somebody-else", &[]),
            Mode::Normal | Mode::StillAccepts | Mode::Slow => healthy(request, user, trusted),
        };
        world.log[at].status = Some(reply.status);
        self.changed.notify_all();
        Some(reply)
    }
}

fn healthy(request: &HttpRequest, user: Option<User>, trusted: bool) -> Reply {
    let reviews = ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"];
    match user {
        Some(_) if !trusted => status(401),
        // Anonymous: may not even ask who it is.
        None => status(403),
        Some(_) if request.segments != reviews => status(404),
        Some(_) if request.method != "POST" => status(405),
        Some(user) => review(&user.name, &user.groups),
    }
}

fn review(name: &str, groups: &[String]) -> Reply {
    let all: Vec<&str> =
        groups.iter().map(String::as_str).chain(["system:authenticated"]).collect();
    Reply::json(
        201,
        &json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": "2026-11-30T20:01:34Z"},
            "status": {"userInfo": {"username": name, "groups": all}},
        }),
    )
}

fn status(code: u16) -> Reply {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
    Reply::json(code, &body)
}
