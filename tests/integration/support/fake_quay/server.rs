//! Connections, and the way of a request: written down, spoilt as the script says, handled, answered.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::api::Api;
use super::fault::{CallInfo, Fault, Op};
use super::registry;
use super::truth::What;
use super::wire::{HttpRequest, Reply, drip};
use super::world::{World, http_date};

/// What the handle and all connections hold.
pub struct Shared {
    world: Mutex<World>,
    pub happened: Condvar,
    pub stopping: AtomicBool,
    pub connections: Mutex<HashMap<u64, TcpStream>>,
}

impl Shared {
    pub fn new(world: World) -> Self {
        Self {
            world: Mutex::new(world),
            happened: Condvar::new(),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

pub fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Ok(twin) = stream.try_clone() else { continue };
        shared.connections.lock().unwrap().insert(number, twin);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A client that went away is no matter of the fake's.
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
            shared.connections.lock().unwrap().remove(&number);
        });
    }
}

fn serve(stream: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(request) = HttpRequest::read(&mut reader)? {
        let (number, fault) = arrive(shared, &request);
        let note = |what| {
            shared.world().note(Some(number), what);
            shared.happened.notify_all();
        };
        let Some((reply, how)) = work(shared, number, request, fault) else {
            note(What::Lost);
            return Ok(());
        };
        let bytes = reply.bytes(&http_date(shared.world().now()));
        match how {
            Sent::Whole => {
                note(What::Answered { status: reply.status });
                writer.write_all(&bytes)?;
            }
            Sent::Half => {
                note(What::Lost);
                // Without a body it breaks off in the head.
                let cut = if reply.body.is_empty() { bytes.len() } else { reply.body.len() };
                return writer.write_all(&bytes[..bytes.len() - cut.div_ceil(2)]);
            }
            Sent::Dripping(pause) => {
                note(What::Answered { status: reply.status });
                drip(&mut writer, &bytes, pause)?;
            }
        }
    }
    Ok(())
}

/// How much of an answer is sent, and how.
enum Sent {
    Whole,
    Half,
    Dripping(Duration),
}

/// Writes the request down and finds out what is to go wrong with it.
fn arrive(shared: &Shared, request: &HttpRequest) -> (u64, Option<Fault>) {
    let (op, robot) = classify(request);
    let mut world = shared.world();
    world.requests += 1;
    let number = world.requests;
    let nth = {
        let calls = world.calls_of.entry(op).or_default();
        *calls += 1;
        *calls - 1
    };
    let (method, path) = (request.method.clone(), format!("/{}", request.segments.join("/")));
    world.note(Some(number), What::Request { op, method, path, robot: robot.clone() });
    let queued = world.queues.get_mut(&op).and_then(VecDeque::pop_front);
    let script = world.script.clone();
    drop(world);
    shared.happened.notify_all();
    let info = CallInfo { op, robot, nth };
    (number, queued.unwrap_or_else(|| script.and_then(|script| script(&info))))
}

/// Does what is asked, or what the fault says. None: no answer at all.
fn work(
    shared: &Arc<Shared>,
    number: u64,
    request: HttpRequest,
    fault: Option<Fault>,
) -> Option<(Reply, Sent)> {
    let handle = |request: &HttpRequest| handle(&mut shared.world(), number, request);
    match fault {
        None => Some((handle(&request), Sent::Whole)),
        Some(Fault::Before(when)) => {
            when.come();
            Some((handle(&request), Sent::Whole))
        }
        Some(Fault::After(when)) => {
            let reply = handle(&request);
            when.come();
            Some((reply, Sent::Whole))
        }
        Some(Fault::LoseBefore) => None,
        Some(Fault::LoseAfter) => {
            handle(&request);
            None
        }
        Some(Fault::AppliedLate(when)) => {
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                when.come();
                self::handle(&mut shared.world(), number, &request);
                shared.happened.notify_all();
            });
            None
        }
        Some(Fault::Instead(reply)) => Some((reply, Sent::Whole)),
        Some(Fault::InsteadAfter(reply)) => {
            handle(&request);
            Some((reply, Sent::Whole))
        }
        Some(Fault::Truncated) => Some((handle(&request), Sent::Half)),
        Some(Fault::Drip(pause)) => Some((handle(&request), Sent::Dripping(pause))),
    }
}

fn handle(world: &mut World, number: u64, request: &HttpRequest) -> Reply {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["api", "v1", ..] => Api { world, number, request }.answer(),
        ["v2", ..] => registry::answer(world, number, request),
        _ => Reply::html(404, "<h1>Not Found</h1>"),
    }
}

fn classify(request: &HttpRequest) -> (Op, String) {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let full = |organization: &str, short: &str| format!("{organization}+{short}");
    match (request.method.as_str(), segments.as_slice()) {
        (method, ["api", "v1", "organization", organization, "robots", short]) => {
            let op = match method {
                "PUT" => Op::CreateRobot,
                "GET" => Op::GetRobot,
                "DELETE" => Op::DeleteRobot,
                _ => Op::Other,
            };
            (op, full(organization, short))
        }
        ("POST", ["api", "v1", "organization", organization, "robots", short, "regenerate"]) => {
            (Op::Regenerate, full(organization, short))
        }
        ("GET", ["api", "v1", "organization", organization, "robots", short, "permissions"]) => {
            (Op::RobotPermissions, full(organization, short))
        }
        ("GET", ["api", "v1", "organization", _, "robots"]) => (Op::ListRobots, String::new()),
        ("GET", ["api", "v1", "organization", _, "team", _, "members"]) => {
            (Op::TeamMembers, String::new())
        }
        ("PUT", ["api", "v1", "organization", _, "team", _, "members", member]) => {
            (Op::JoinTeam, (*member).to_owned())
        }
        ("DELETE", ["api", "v1", "organization", _, "team", _, "members", member]) => {
            (Op::LeaveTeam, (*member).to_owned())
        }
        ("PUT", ["api", "v1", "repository", .., "permissions", "user", member]) => {
            (Op::Grant, (*member).to_owned())
        }
        ("GET", ["api", "v1", "organization", _, "logs"]) => (Op::OrgLog, String::new()),
        ("GET", ["v2"] | ["v2", ""]) => (Op::Version, String::new()),
        ("GET", ["v2", "auth"]) => (Op::Auth, registry::user(request)),
        ("GET", ["v2", .., "manifests" | "blobs", _]) => (Op::Pull, String::new()),
        ("GET", ["v2", .., "tags", "list"]) => (Op::Tags, String::new()),
        _ => (Op::Other, String::new()),
    }
}
