//! One death, and the life around it: a credential before it, one that is asked for or revoked while it falls, and
//! everything revoked in the end. Callers hear nothing when the service dies, and ask again.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::super::signed_elsewhere::{self, Elsewhere};
use super::super::world::{B, Scene, V1, log_in, quick};
use super::judge::{self, Rows};
use crate::support::postgres;
use crate::support::service::Setup;

const ABORTED: i32 = 6;
const KILLED: i32 = 9;

/// Which half of a credential's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Issuing,
    Revoking,
}

/// The calls, as failure points name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Call {
    Make,
    Submit,
    Endorse,
    Collect,
    Rotate,
    Check,
    Probe,
}

/// When exactly.
#[derive(Debug, Clone, Copy)]
pub enum At {
    /// When this call comes by this point for the first time.
    Point { point: &'static str, call: Call },
    /// So long after the request was sent.
    Millisecond(u64),
}

/// One death.
#[derive(Debug, Clone, Copy)]
pub struct Strike {
    pub moment: Moment,
    pub at: At,
}

/// A signer with its surroundings.
pub trait Signer {
    fn scene(&mut self) -> &mut Scene;
    /// What adapters and operators do all the time. Nobody minds when the service is not there.
    async fn tend(&mut self);
    /// Of the certificates that are out there: none is unknown.
    async fn judge(&self, rows: &Rows);
    /// Whether one alone can be revoked.
    const SINGLE: bool;
}

/// `local_ca`, and an adapter for its bundle.
pub struct Embedded(Scene);

/// `kubernetes_csr`, and the operator that signs.
pub struct Operators(Elsewhere);

fn setup(database: Option<String>) -> Setup {
    let setup = quick().env("HYPERFLEET_SCHEDULER_LEASE", "6s");
    match database {
        Some(url) => setup.env("HYPERFLEET_DB_URL", &url),
        None => setup,
    }
}

impl Embedded {
    pub async fn start(database: Option<String>) -> (Self, Option<String>) {
        (Self(Scene::with(setup(database.clone()), 2, json!({})).await), database)
    }
}

impl Operators {
    pub async fn start(database: Option<String>) -> (Self, Option<String>) {
        (Self(signed_elsewhere::start_with(setup(database.clone())).await), database)
    }
}

impl Signer for Embedded {
    const SINGLE: bool = true;

    fn scene(&mut self) -> &mut Scene {
        &mut self.0
    }

    async fn tend(&mut self) {
        let bundle = format!("{V1}/trust-bundle");
        let Some((200, text)) = answer(&self.0, "adapter", Method::GET, &bundle, None).await else {
            return;
        };
        self.0.servers.iter().for_each(|server| server.load_bundle(&text));
    }

    async fn judge(&self, rows: &Rows) {
        judge::bundle(&self.0, rows).await;
    }
}

impl Signer for Operators {
    const SINGLE: bool = false;

    fn scene(&mut self) -> &mut Scene {
        &mut self.0.scene
    }

    async fn tend(&mut self) {
        self.0.management.step();
        self.0.scene.servers[0].load_bundle(&self.0.management.authorities());
    }

    async fn judge(&self, rows: &Rows) {
        judge::requests(&self.0.management, rows).await;
    }
}

/// Status and text; none where the service died before the answer was read.
async fn answer(
    scene: &Scene,
    role: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Option<(u16, String)> {
    let request = scene.world.request_as(role, method, path);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.text().await.ok()?))
}

impl Strike {
    pub async fn fall<S: Signer>(self, (mut signer, database): (S, Option<String>)) {
        println!("{self:?}");
        let before = match self.moment {
            // The first of a cluster: what is made for the cluster is made now, too.
            Moment::Issuing => None,
            Moment::Revoking => Some(issued(&mut signer, "before").await),
        };
        self.arm(&mut signer, database.as_deref()).await;
        match (self.moment, before) {
            (Moment::Revoking, Some((id, kubeconfig))) => {
                self.revoking(&mut signer, database.as_deref(), &id, &kubeconfig).await;
            }
            (Moment::Issuing | Moment::Revoking, _) => {
                self.issuing(&mut signer, database.as_deref()).await;
            }
        }
    }

    async fn arm<S: Signer>(self, signer: &mut S, database: Option<&str>) {
        let At::Point { point, call } = self.at else { return };
        let rule = format!("{point}:{}=kill", call.as_ref());
        signer.scene().world.service.kill();
        forget_the_dead(database).await;
        let service = &mut signer.scene().world.service;
        assert!(service.restart_armed(&rule).await, "{self:?}\n{}", service.log());
    }

    /// It dies, by this strike and nothing else, and comes back without one.
    async fn die<S: Signer>(self, signer: &mut S, database: Option<&str>, began: Instant) {
        let expected = match self.at {
            At::Point { .. } => ABORTED,
            At::Millisecond(_) => KILLED,
        };
        let deadline = began + Duration::from_secs(120);
        let status = loop {
            if let At::Millisecond(after) = self.at
                && began.elapsed() >= Duration::from_millis(after)
            {
                signer.scene().world.service.signal("KILL");
            }
            if let Some(status) = signer.scene().world.service.has_ended() {
                break status;
            }
            let log = || signer_log(began, deadline);
            assert!(Instant::now() < deadline, "{self:?}: it does not die ({})", log());
            signer.tend().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let service = &mut signer.scene().world.service;
        assert_eq!(status.signal(), Some(expected), "{self:?}\n{}", service.log());
        forget_the_dead(database).await;
        service.start_armed("");
        service.restart_ready().await;
    }

    async fn issuing<S: Signer>(self, signer: &mut S, database: Option<&str>) {
        let asked = json!({"username": "ada"});
        let began = Instant::now();
        let scene = signer.scene();
        let promised = answer(scene, "operator", Method::POST, B, Some(asked.clone())).await;
        self.die(signer, database, began).await;
        let found = find(signer.scene(), "ada").await;
        // What was promised is there; what was not may be there, and is asked for again where it is not.
        let id = match (promised, found) {
            (Some((202, text)), Some(found)) => {
                let told: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(told["id"], found.as_str(), "{self:?}");
                found
            }
            (None, Some(found)) => found,
            (None, None) => signer.scene().asked(asked).await,
            (Some((status, text)), found) => panic!("{self:?}: {status} {text}, {found:?}"),
        };
        let kubeconfig = until_issued(signer, &id).await;
        self.end(signer, database, &[kubeconfig]).await;
    }

    async fn revoking<S: Signer>(
        self,
        signer: &mut S,
        database: Option<&str>,
        id: &str,
        kubeconfig: &str,
    ) {
        let path = if S::SINGLE { format!("{B}/{id}") } else { B.to_owned() };
        let began = Instant::now();
        let promised = answer(signer.scene(), "operator", Method::DELETE, &path, None).await;
        self.die(signer, database, began).await;
        if let Some((status, text)) = &promised {
            assert_eq!(*status, 202, "{self:?}: {text}");
            assert_eq!(signer.scene().kubeconfig(id).await, None, "{self:?}");
        }
        if promised.is_none() && signer.scene().state(id).await == "issued" {
            assert_eq!(signer.scene().delete(&path).await.status, 202, "{self:?}");
        }
        until_revoked(signer, id).await;
        assert_eq!(log_in(kubeconfig).await, Err(401), "{self:?}: it is called revoked");
        // And the next one works.
        let (_, next) = issued(signer, "after").await;
        self.end(signer, database, &[kubeconfig.to_owned(), next]).await;
    }

    /// Everything is known; everything is revoked; nothing works.
    async fn end<S: Signer>(self, signer: &mut S, database: Option<&str>, handed_out: &[String]) {
        let rows = Rows::open(signer.scene(), database).await;
        signer.judge(&rows).await;
        assert_eq!(signer.scene().delete(B).await.status, 202, "{self:?}");
        let all = signer.scene().revocation().await;
        let path = format!("{V1}/revocations/{}", all["revocation_id"].as_str().unwrap());
        let ended = |seen: &Value| !seen["ended_at"].is_null();
        while !ended(&signer.scene().get(&path).await.body) {
            signer.tend().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for kubeconfig in handed_out {
            assert_eq!(log_in(kubeconfig).await, Err(401), "{self:?}: all are revoked");
        }
        rows.assert_nothing_live().await;
        signer.judge(&rows).await;
        rows.assert_calls_are_paired().await;
    }
}

fn signer_log(began: Instant, deadline: Instant) -> String {
    format!("waited {:?} of {:?}", began.elapsed(), deadline - began)
}

/// A killed process does not say goodbye, and PostgreSQL's row of it has to get stale first.
async fn forget_the_dead(database: Option<&str>) {
    if let Some(url) = database {
        let old = "UPDATE replicas SET seen_at = seen_at - interval '1 hour'";
        postgres::execute(url, old).await;
    }
}

/// The one with this name that is not over.
async fn find(scene: &Scene, username: &str) -> Option<String> {
    let listed = scene.get(&format!("{B}?search=username%3D%27{username}%27")).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    let items = listed.body["items"].as_array().unwrap();
    assert!(items.len() <= 1, "one wish, one credential: {}", listed.text);
    items.first().map(|item| item["id"].as_str().unwrap().to_owned())
}

async fn issued<S: Signer>(signer: &mut S, username: &str) -> (String, String) {
    let id = signer.scene().asked(json!({"username": username})).await;
    let kubeconfig = until_issued(signer, &id).await;
    (id, kubeconfig)
}

/// Its kubeconfig, which works.
async fn until_issued<S: Signer>(signer: &mut S, id: &str) -> String {
    until_state(signer, id, "issued").await;
    let kubeconfig = signer.scene().kubeconfig(id).await.expect("it is issued");
    assert!(log_in(&kubeconfig).await.is_ok(), "what is issued works");
    kubeconfig
}

async fn until_revoked<S: Signer>(signer: &mut S, id: &str) {
    until_state(signer, id, "revoked").await;
}

async fn until_state<S: Signer>(signer: &mut S, id: &str, wanted: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let state = signer.scene().state(id).await;
        if state == wanted {
            return;
        }
        let service = &signer.scene().world.service;
        assert!(Instant::now() < deadline, "{state}, not {wanted}\n{}", service.log());
        signer.tend().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
