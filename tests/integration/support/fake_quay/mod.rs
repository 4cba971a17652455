//! A fake of Quay on a loopback port, line by line after what was measured on a running one.
//!
//! It runs on threads of its own, so it goes on answering whatever becomes of the service or of a
//! test's runtime, and it keeps its own log of the truth (`truth`). Requests fail as a script says
//! (`fault`). Dropping the handle ends it.
//!
//! ```text
//! let quay = fake_quay::start();
//! quay.add_team("pullers");                        // as the configuration names it
//! std::fs::write(&token_file, &quay.token)?;       // url: quay.url, organization: quay.organization
//! quay.next(Op::CreateRobot, Fault::LoseAfter);    // applied, but nobody hears of it
//! quay.script(|call| (call.nth % 7 == 0).then(|| Fault::Instead(Reply::rate_limited())));
//! quay.reached(|log| log.iter().any(|entry| entry.what.is_change())).await;
//! assert!(quay.reused_names().is_empty());         // the judge asks the log, not the service
//! ```

#![expect(clippy::disallowed_methods, reason = "a slow registry is slow on threads of its own")]

mod answers;
mod api;
mod fault;
mod registry;
mod server;
mod truth;
pub mod wire;
mod world;

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyperfleet_credentials::time::{Clock, Timestamp};
use serde_json::json;

pub use self::answers::{duplicate_key, read_only, shape_a, shape_b};
pub use self::fault::{CallInfo, Fault, Gate, Op, When};
use self::server::{Shared, accept};
pub use self::truth::{Entry, What};
pub use self::wire::Reply;
use self::world::{Organization, Team, World};

/// The organisation that every fake begins with.
pub const ORGANIZATION: &str = "acme";

/// A running fake.
pub struct FakeQuay {
    /// `http://127.0.0.1:<port>`
    pub url: String,
    /// The organisation that the token administers.
    pub organization: String,
    /// An OAuth token.
    pub token: String,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A healthy Quay with the organisation `acme`: no teams, no repositories, no robots.
pub fn start() -> FakeQuay {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut world = World::new(address.to_string());
    let token = world.random(40);
    world.organizations.insert(ORGANIZATION.to_owned(), Organization::default());
    world.tokens.insert(token.clone(), [ORGANIZATION.to_owned()].into());
    let shared = Arc::new(Shared::new(world));
    let accepting = thread::spawn({
        let shared = Arc::clone(&shared);
        move || accept(&listener, &shared)
    });
    FakeQuay {
        url: format!("http://{address}"),
        organization: ORGANIZATION.to_owned(),
        token,
        address,
        shared,
        accepting: Some(accepting),
    }
}

impl Drop for FakeQuay {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        for connection in self.shared.connections.lock().unwrap().values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// What a test arranges.
impl FakeQuay {
    /// The full name of a robot of the fake's organisation.
    pub fn full(&self, short: &str) -> String {
        format!("{}+{short}", self.organization)
    }

    /// Another organisation; the token administers it only if it is told to.
    pub fn add_organization(&self, name: &str, administered: bool) {
        let mut world = self.shared.world();
        world.organizations.entry(name.to_owned()).or_default();
        if administered {
            let token = world.tokens.get_mut(&self.token).unwrap();
            token.insert(name.to_owned());
        }
    }

    pub fn add_team(&self, name: &str) {
        let mut world = self.shared.world();
        let organization = world.organizations.get_mut(&self.organization).unwrap();
        organization.teams.insert(name.to_owned(), Team::default());
    }

    /// A repository, which the teams named may read.
    pub fn add_repository(&self, name: &str, teams: &[&str]) {
        let mut world = self.shared.world();
        let organization = world.organizations.get_mut(&self.organization).unwrap();
        organization.repositories.entry(name.to_owned()).or_default();
        for team in teams {
            let team = organization.teams.get_mut(*team).unwrap();
            team.repositories.insert(name.to_owned());
        }
    }

    /// A robot of somebody else's making, by its full name.
    pub fn add_robot(&self, full: &str, secret: &str, description: &str) {
        let mut world = self.shared.world();
        assert!(!world.robots.contains_key(full), "{full} is taken");
        world.create(None, full, description, json!({}));
        world.robots.get_mut(full).unwrap().token = secret.to_owned();
    }

    /// Somebody else deletes a robot. False when there was none.
    pub fn delete_behind_the_back(&self, full: &str) -> bool {
        self.shared.world().delete(None, full)
    }

    /// A mirror uses the robot, so it cannot be deleted.
    pub fn let_mirror(&self, full: &str, mirrors: bool) {
        self.shared.world().robots.get_mut(full).unwrap().mirrors = mirrors;
    }

    /// `ROBOTS_DISALLOW`.
    pub fn disallow_robots(&self, disallowed: bool) {
        self.shared.world().robots_disallowed = disallowed;
    }

    pub fn set_read_only(&self, read_only: bool) {
        self.shared.world().read_only = read_only;
    }

    /// A new token in place of the one before, which is refused from now on.
    pub fn replace_token(&mut self) {
        let mut world = self.shared.world();
        let organizations = world.tokens.remove(&self.token).unwrap();
        self.token = world.random(40);
        world.tokens.insert(self.token.clone(), organizations);
    }

    /// Moves the fake's clock.
    pub fn advance(&self, time: Duration) {
        self.shared.world().ahead += time;
    }

    /// The fake's clock, for whoever has to agree with it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        struct Of(Arc<Shared>);
        impl Clock for Of {
            fn now(&self) -> Timestamp {
                self.0.world().now()
            }
        }
        Arc::new(Of(Arc::clone(&self.shared)))
    }

    /// One request of this kind fails so: the next, or the one after those that are queued.
    pub fn next(&self, op: Op, fault: Fault) {
        self.shared.world().queues.entry(op).or_default().push_back(Some(fault));
    }

    /// The same for a request that goes well, so that faults may be queued behind it.
    pub fn next_well(&self, op: Op) {
        self.shared.world().queues.entry(op).or_default().push_back(None);
    }

    /// Asks the closure about each request for which nothing is queued. Runs outside the lock.
    pub fn script(&self, script: impl Fn(&CallInfo) -> Option<Fault> + Send + Sync + 'static) {
        self.shared.world().script = Some(Arc::new(script));
    }

    /// Every request fails so until [`Self::heal`].
    pub fn break_down(&self, fault: Fault) {
        self.script(move |_| Some(fault.clone()));
    }

    /// Forgets script and queues.
    pub fn heal(&self) {
        let mut world = self.shared.world();
        world.script = None;
        world.queues.clear();
    }
}

/// What a judge asks.
impl FakeQuay {
    /// Everything that happened, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.shared.world().log.clone()
    }

    /// What really changed, in order.
    pub fn changes(&self) -> Vec<Entry> {
        self.log().into_iter().filter(|entry| entry.what.is_change()).collect()
    }

    /// Full names of the robots that exist now and begin so.
    pub fn live(&self, prefix: &str) -> Vec<String> {
        let world = self.shared.world();
        world.robots.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// The most robots that ever lived at once whose full names begin so.
    pub fn most_live_at_once(&self, prefix: &str) -> usize {
        let history = truth::live_over_time(&self.log(), prefix);
        history.iter().map(|(_, _, live)| live.len()).max().unwrap_or(0)
    }

    /// Robots that were created more than once; must always be empty.
    pub fn reused_names(&self) -> Vec<String> {
        truth::reused(&self.log())
    }

    /// Would a login with this work now? Touches nothing.
    pub fn secret_works(&self, username: &str, secret: &str) -> bool {
        self.shared.world().robots.get(username).is_some_and(|robot| robot.token == secret)
    }

    /// How many secrets were told by listings; nobody needs one that way.
    pub fn secrets_listed(&self) -> usize {
        self.shared.world().secrets_listed
    }

    pub fn is_member(&self, full: &str, team: &str) -> bool {
        let world = self.shared.world();
        let team = world.organizations[&self.organization].teams.get(team);
        team.is_some_and(|team| team.members.contains(full))
    }

    pub fn may_read(&self, full: &str, repository: &str) -> bool {
        self.shared.world().may_read(full, &self.organization, repository)
    }

    /// How many requests of a kind came.
    pub fn requests(&self, op: Op) -> usize {
        self.shared.world().calls_of.get(&op).copied().unwrap_or(0)
    }

    /// Waits until the log is as the test wants it.
    ///
    /// # Panics
    /// After 20 seconds.
    pub async fn reached(&self, wanted: impl Fn(&[Entry]) -> bool + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let wait = move || {
            let limit = Duration::from_secs(20);
            let world = shared.world();
            let waited =
                shared.happened.wait_timeout_while(world, limit, |world| !wanted(&world.log));
            assert!(!waited.unwrap().1.timed_out(), "it did not happen");
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
    }
}
